//! Where a compiled program may run: the plugin that made it, and a machine such as this.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::time::UNIX_EPOCH;

use super::cache::{Cache, Entry, Found, Key};
use super::client::Client;
use super::options::CompileOptions;

/// Settings that plugins read from the environment when they compile.
const PLUGIN_SETTINGS: [&str; 2] = ["XLA_FLAGS", "LIBTPU_INIT_ARGS"];

/// The lines of `/proc/cpuinfo` that say what code a processor runs, on x86-64 and on ARM. All
/// processors of a machine are taken to be alike.
const PROCESSOR: [&str; 10] = [
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "flags",
    "Features",
    "CPU implementer",
    "CPU architecture",
    "CPU variant",
    "CPU part",
];

/// What every program of a client depends on besides its own text and options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity(Key);

impl Identity {
    /// Hashes the plugin's contents, wherever it lies, the platform and its devices, the
    /// processor (XLA:CPU compiles for the one it runs on, and for its number of threads), the
    /// plugin's settings in the environment, and our own version. The plugin's hash is kept in
    /// `cache`, since reading a plugin of some hundred megabytes takes a while.
    ///
    /// # Errors
    /// The plugin's file can't be read, or the system doesn't say what processor it runs on.
    pub fn of(client: &Client, cache: &Cache) -> io::Result<Identity> {
        let threads = std::thread::available_parallelism()?;
        let plugin = contents(client.plugin_path(), cache)?;
        let mut parts = vec![
            env!("CARGO_PKG_VERSION").as_bytes().to_vec(),
            plugin,
            client.api_version().to_string().into_bytes(),
            client.platform_name().as_bytes().to_vec(),
            client.platform_version().as_bytes().to_vec(),
            std::env::consts::ARCH.as_bytes().to_vec(),
            processor(&mut BufReader::new(File::open("/proc/cpuinfo")?))?,
            threads.get().to_le_bytes().to_vec(),
        ];
        parts.extend(client.devices().iter().map(|device| device.kind.as_bytes().to_vec()));
        for name in PLUGIN_SETTINGS {
            parts.push(name.as_bytes().to_vec());
            let value = std::env::var_os(name).unwrap_or_default();
            parts.push(value.into_encoded_bytes());
        }
        Ok(Identity(Key::of(parts.iter().map(Vec::as_slice))))
    }

    /// The key of a module compiled with these options.
    pub fn key(&self, module: &str, options: &CompileOptions) -> Key {
        Key::of([self.0.as_bytes(), &options.encode(), module.as_bytes()])
    }
}

/// The hash of a file's contents: what the cache knows of a file with this place, size and time of
/// change, else what reading it tells.
fn contents(path: &Path, cache: &Cache) -> io::Result<Vec<u8>> {
    let path = path.canonicalize()?;
    let about = path.metadata()?;
    let changed = about.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let known = Key::of([
        b"contents of",
        path.as_os_str().as_encoded_bytes(),
        &about.len().to_le_bytes(),
        &changed.as_nanos().to_le_bytes(),
    ]);
    if let Found::Hit(entry) = cache.load(&known) {
        return Ok(entry.serialized);
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(&path)?)?;
    let serialized = hasher.finalize().as_bytes().to_vec();
    // Where it can't be kept, programs can't either, and their writer says so.
    let _ = cache.store(&known, &Entry { temporaries: None, serialized: serialized.clone() });
    Ok(serialized)
}

/// What the first processor in the text of `/proc/cpuinfo` can do.
fn processor(cpuinfo: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut known = Vec::new();
    let mut line = String::new();
    while cpuinfo.read_line(&mut line)? > 1 {
        if PROCESSOR.contains(&line.split(':').next().unwrap_or_default().trim_end()) {
            known.extend_from_slice(line.as_bytes());
        }
        line.clear();
    }
    if known.is_empty() {
        return Err(io::Error::other("/proc/cpuinfo doesn't say what the processor can do"));
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> io::Result<Vec<u8>> {
        processor(&mut text.as_bytes())
    }

    #[test]
    fn a_processor_is_its_model_and_features() {
        let x86 =
            "processor\t: 0\nmodel name\t: A\ncpu MHz\t\t: 1000\nflags\t\t: avx avx2\n\nflags: b\n";
        assert_eq!(told(x86).expect("a processor"), b"model name\t: A\nflags\t\t: avx avx2\n");
        let slower = x86.replace("1000", "900");
        assert_eq!(told(x86).expect("x86"), told(&slower).expect("the same one"));
        let older = x86.replace("avx avx2", "avx");
        assert_ne!(told(x86).expect("x86"), told(&older).expect("another one"));
        let arm = "processor\t: 0\nFeatures\t: asimd sve\nCPU part\t: 0xd40\n";
        assert_eq!(told(arm).expect("ARM"), b"Features\t: asimd sve\nCPU part\t: 0xd40\n");
    }

    #[test]
    fn an_unknown_processor_has_no_identity() {
        assert!(told("").is_err());
        assert!(told("processor: 0\nnothing: else\n").is_err());
    }
}
