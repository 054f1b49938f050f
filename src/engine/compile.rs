//! Programs made runnable: loaded from the disk cache, or compiled and kept there.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Instant;

use super::device_error;
use super::promise::Promise;
use crate::error::Result;
use crate::observe::stats::{Times, add};
use crate::pjrt::{self, Cache, CompileOptions, Entry, Found, Identity, Key};

/// Bytes of compiled programs kept on disk, unless `TORCHTPU_CACHE_SIZE` says.
const CACHE_SIZE: u64 = 2 << 30;

/// An executable with what running it needs to know.
pub struct Compiled {
    pub executable: pjrt::Executable,
    /// Scratch bytes of a run, as the compiler planned it.
    pub temporaries: u64,
}

/// A program that was sent to the compiler.
pub type Pending = Arc<Promise<Arc<Compiled>>>;

pub struct Compiler {
    client: Arc<pjrt::Client>,
    disk: Option<Disk>,
    times: Arc<Times>,
}

/// A program's place in the disk cache, where it is to be written.
struct Unkept<'a> {
    disk: &'a Disk,
    key: Key,
    /// What the plugin told.
    temporaries: Option<u64>,
}

impl Compiler {
    pub fn new(client: Arc<pjrt::Client>, times: Arc<Times>) -> Compiler {
        Compiler { client, disk: Disk::from_env(), times }
    }

    /// Where compiled programs are kept; `None` if they aren't.
    pub fn folder(&self) -> Option<&std::path::Path> {
        self.disk.as_ref().map(|disk| disk.cache.folder())
    }

    /// Settles `result` with the program of the module, then keeps it on disk if it was compiled.
    /// `small`: it has few operations, and compile time matters more than what an optimiser may
    /// still find in them.
    pub fn make(
        &self,
        small: bool,
        module: impl FnOnce() -> Result<String>,
        result: &Promise<Arc<Compiled>>,
    ) {
        let start = Instant::now();
        let module = module();
        add(&self.times.optimise, start.elapsed());
        let made = module.and_then(|text| {
            dump(&text);
            self.find(small, &text)
        });
        match made {
            Ok((compiled, None)) => result.settle(Ok(compiled)),
            Ok((compiled, Some(unkept))) => {
                // Counted before somebody may see the result, and end the process.
                let _writing = unkept.disk.begin();
                result.settle(Ok(compiled.clone()));
                self.keep(&unkept, &compiled.executable);
            }
            Err(e) => result.settle(Err(e)),
        }
    }

    fn find(&self, small: bool, text: &str) -> Result<(Arc<Compiled>, Option<Unkept<'_>>)> {
        let platform = self.client.platform_name();
        let options = CompileOptions::faithful(platform);
        let options = if small { options.quick(platform) } else { options };

        let start = Instant::now();
        let place = self.disk.as_ref().and_then(|disk| disk.key(&self.client, text, &options));
        if let Some((disk, key)) = place
            && let Some(compiled) = self.load(disk, &key)
        {
            add(&self.times.load, start.elapsed());
            return Ok((Arc::new(compiled), None));
        }
        add(&self.times.load, start.elapsed());

        let start = Instant::now();
        let executable = self
            .client
            .compile_with(text, &options)
            .map_err(|e| device_error(&e, "XLA can't compile this program"))?;
        add(&self.times.compile, start.elapsed());
        let temporaries = executable.memory_stats().ok().map(|s| s.temp.max(0) as u64);
        let unkept = place.map(|(disk, key)| Unkept { disk, key, temporaries });
        let temporaries = temporaries.unwrap_or(0);
        Ok((Arc::new(Compiled { executable, temporaries }), unkept))
    }

    /// The program that the cache has under this key, if the plugin takes it.
    fn load(&self, disk: &Disk, key: &Key) -> Option<Compiled> {
        let counters = &self.times.disk;
        match disk.cache.load(key) {
            Found::Hit(Entry { temporaries, serialized }) => {
                match self.client.deserialize(&serialized) {
                    Ok(executable) => {
                        counters.hits.fetch_add(1, Relaxed);
                        counters.bytes_read.fetch_add(serialized.len() as u64, Relaxed);
                        return Some(Compiled {
                            executable,
                            temporaries: temporaries.unwrap_or(0),
                        });
                    }
                    Err(e) => {
                        tracing::warn!("a program on disk can't be loaded: {e}");
                        disk.cache.remove(key);
                        counters.rejected.fetch_add(1, Relaxed);
                    }
                }
            }
            Found::Rejected => {
                counters.rejected.fetch_add(1, Relaxed);
            }
            Found::Miss => {}
        }
        counters.misses.fetch_add(1, Relaxed);
        None
    }

    fn keep(&self, unkept: &Unkept<'_>, executable: &pjrt::Executable) {
        let Unkept { disk, key, temporaries } = unkept;
        if disk.unwritable.load(Relaxed) {
            return;
        }
        // Some plugins can't, or not every program.
        let Ok(serialized) = executable.serialize() else {
            self.times.disk.unserialisable.fetch_add(1, Relaxed);
            return;
        };
        match disk.cache.store(key, &Entry { temporaries: *temporaries, serialized }) {
            Ok(bytes) => {
                self.times.disk.bytes_written.fetch_add(bytes, Relaxed);
            }
            Err(e) => {
                if !disk.unwritable.swap(true, Relaxed) {
                    eprintln!(
                        "deferandfuse: compiled programs can't be kept in {}: {e}. The next \
                         process will compile them again. TORCHTPU_CACHE_DIR chooses another \
                         folder, TORCHTPU_CACHE=off does without.",
                        disk.cache.folder().display()
                    );
                }
            }
        }
    }

    /// Waits until what is being written to disk is there.
    pub fn finish_writing(&self) {
        if let Some(disk) = &self.disk {
            let mut writing = disk.writing.lock().unwrap_or_else(|e| e.into_inner());
            while *writing > 0 {
                writing = disk.written.wait(writing).unwrap_or_else(|e| e.into_inner());
            }
        }
    }
}

/// The disk cache, as this process uses it.
struct Disk {
    cache: Cache,
    /// Of plugin and machine; `None` if they can't be told.
    identity: OnceLock<Option<Identity>>,
    /// Writing failed, and the user knows.
    unwritable: AtomicBool,
    /// Programs that are being written.
    writing: Mutex<usize>,
    written: Condvar,
}

struct Writing<'a>(&'a Disk);

impl Disk {
    /// `TORCHTPU_CACHE=off` switches it off, as does having no place for it. A setting that
    /// isn't understood is told of and left out.
    fn from_env() -> Option<Disk> {
        if std::env::var("TORCHTPU_CACHE").is_ok_and(|v| v == "off") {
            return None;
        }
        let limit = match std::env::var("TORCHTPU_CACHE_SIZE") {
            Ok(text) => parse_size(&text).unwrap_or_else(|| {
                eprintln!(
                    "deferandfuse: TORCHTPU_CACHE_SIZE={text} isn't a size such as 500M or 2G; \
                     using 2G"
                );
                CACHE_SIZE
            }),
            Err(_) => CACHE_SIZE,
        };
        Some(Disk::new(Cache::new(folder()?, limit)))
    }

    fn new(cache: Cache) -> Disk {
        Disk {
            cache,
            identity: OnceLock::new(),
            unwritable: AtomicBool::new(false),
            writing: Mutex::default(),
            written: Condvar::new(),
        }
    }

    fn key(
        &self,
        client: &pjrt::Client,
        text: &str,
        options: &CompileOptions,
    ) -> Option<(&Disk, Key)> {
        let identity = self.identity.get_or_init(|| {
            Identity::of(client, &self.cache)
                .inspect_err(|e| tracing::warn!("no disk cache: {e}"))
                .ok()
        });
        Some((self, identity.as_ref()?.key(text, options)))
    }

    fn begin(&self) -> Writing<'_> {
        *self.writing.lock().unwrap_or_else(|e| e.into_inner()) += 1;
        Writing(self)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        *self.0.writing.lock().unwrap_or_else(|e| e.into_inner()) -= 1;
        self.0.written.notify_all();
    }
}

/// `TORCHTPU_CACHE_DIR`, else `deferandfuse` where the user's caches are.
fn folder() -> Option<PathBuf> {
    let named = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(folder) = named("TORCHTPU_CACHE_DIR") {
        return Some(folder);
    }
    // The XDG specification: a path that isn't absolute is to be ignored.
    let caches = named("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    Some(caches.or_else(|| Some(named("HOME")?.join(".cache")))?.join("deferandfuse"))
}

/// Bytes: a number, with K, M, G or T for powers of 1024.
fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let shift = match text.chars().last()?.to_ascii_uppercase() {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    digits.trim_end().parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Writes a module into the folder `TORCHTPU_DUMP`, for a person to read. Named by its hash, so
/// the same program has the same name in every run. A folder that can't be written is no reason
/// to fail a program.
fn dump(module: &str) {
    if let Some(folder) = std::env::var_os("TORCHTPU_DUMP") {
        let hash = crate::ir::graph::seeded().hash_one(module);
        let path = std::path::Path::new(&folder).join(format!("region-{hash:016x}.mlir"));
        if let Err(e) = std::fs::write(&path, module) {
            tracing::warn!("{} can't be written: {e}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("1000"), Some(1000));
        assert_eq!(parse_size("3k"), Some(3072));
        assert_eq!(parse_size(" 2 G "), Some(2 << 30));
        for wrong in ["", "G", "-1", "1.5G", "many", "99999999T"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }

    /// The first argument is donated; the product is scratch memory.
    const MODULE: &str = "
        func.func @main(%a: tensor<64x64xf32> {tf.aliasing_output = 0 : i32}) -> tensor<64x64xf32> {
          %b = stablehlo.sine %a : tensor<64x64xf32>
          %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
            : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
          %d = stablehlo.dot_general %c, %b, contracting_dims = [1] x [0]
            : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
          return %d : tensor<64x64xf32>
        }";

    /// A process's compiler, with `folder` as the disk cache.
    fn compiler(folder: &std::path::Path) -> Compiler {
        let choice = pjrt::discover(&pjrt::Candidates::default()).expect("a plugin");
        let plugin = pjrt::Plugin::load(choice.path).expect("a plugin");
        let client = Arc::new(pjrt::Client::new(plugin, &[]).expect("a client"));
        let disk = Some(Disk::new(Cache::new(folder, CACHE_SIZE)));
        Compiler { client, disk, times: Arc::default() }
    }

    fn make(compiler: &Compiler) -> Arc<Compiled> {
        let promise = Pending::default();
        compiler.make(false, || Ok(MODULE.to_owned()), &promise);
        compiler.finish_writing();
        promise.with(Arc::clone).expect("a program")
    }

    /// The program's result for a matrix of ones, given away.
    fn run(compiler: &Compiler, program: &Compiled) -> Vec<u8> {
        let ones: Vec<u8> = 1f32.to_le_bytes().repeat(64 * 64);
        let x = compiler.client.upload(pjrt::DType::F32, &[64, 64], &ones).expect("an upload");
        let results = program.executable.execute(&[&x], &[true]).expect("a run");
        assert!(x.is_deleted().expect("whether it is"), "not donated");
        let mut bytes = vec![0; ones.len()];
        results[0].download(&mut bytes).expect("a result");
        bytes
    }

    fn counts(compiler: &Compiler) -> [u64; 3] {
        let disk = &compiler.times.disk;
        [&disk.hits, &disk.misses, &disk.rejected].map(|n| n.load(Relaxed))
    }

    #[test]
    fn a_program_from_disk_is_the_one_that_was_compiled() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = compiler(folder.path());
        let compiled = make(&first);
        assert_eq!(counts(&first), [0, 1, 0]);
        assert!(first.times.compile.load(Relaxed) > 0);
        assert!(compiled.temporaries > 0);

        let second = compiler(folder.path());
        let loaded = make(&second);
        assert_eq!(counts(&second), [1, 0, 0]);
        assert_eq!(second.times.compile.load(Relaxed), 0);
        assert_eq!(loaded.temporaries, compiled.temporaries);
        assert_eq!(run(&second, &loaded), run(&first, &compiled));
    }

    #[test]
    fn what_the_plugin_refuses_is_compiled_again_and_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = compiler(folder.path());
        let compiled = make(&first);
        let disk = first.disk.as_ref().expect("a cache");
        let options = CompileOptions::faithful(first.client.platform_name());
        let (_, key) = disk.key(&first.client, MODULE, &options).expect("a key");
        let bad = Entry { temporaries: None, serialized: b"not an executable".to_vec() };
        disk.cache.store(&key, &bad).expect("stored");

        let second = compiler(folder.path());
        let again = make(&second);
        assert_eq!(counts(&second), [0, 1, 1]);
        assert_eq!(run(&second, &again), run(&first, &compiled));
        let third = compiler(folder.path());
        make(&third);
        assert_eq!(counts(&third), [1, 0, 0]);
    }

    #[test]
    fn other_options_are_another_program() {
        let folder = tempfile::tempdir().expect("a folder");
        let compiler = compiler(folder.path());
        let disk = compiler.disk.as_ref().expect("a cache");
        let key = |text: &str, options| disk.key(&compiler.client, text, options).expect("a key").1;
        let plain = CompileOptions::default();
        let other = plain.clone().with_override("a", pjrt::OptionValue::Bool(true));
        assert_eq!(key(MODULE, &plain), key(MODULE, &plain));
        assert_ne!(key(MODULE, &plain), key(MODULE, &other));
        assert_ne!(key(MODULE, &plain), key(&MODULE.replace("sine", "cosine"), &plain));
    }
}
