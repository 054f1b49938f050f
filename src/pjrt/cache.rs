//! A folder of compiled programs that outlives the process.
//!
//! An entry is one file, named by its [`Key`]: a hash of all that the program depends on. A file
//! is written beside its place and then moved there, which the file system does at once or not at
//! all: a reader sees a whole entry or none, whenever a writer ends and however many there are.
//! What is read is checked against the key, the length and the checksum in its header, so that a
//! damaged or foreign file is never handed to the plugin, which would run it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// What an entry begins with. Another layout of the header is another magic.
const MAGIC: [u8; 8] = *b"DFXLA\0\0\x01";
/// Magic, key, temporaries, length of what follows the header, checksum of everything else.
const HEADER: usize = 8 + 32 + 8 + 8 + 32;
const CHECKSUM: usize = HEADER - 32;
const ENTRY: &str = "program";
const UNFINISHED: &str = "unfinished";
/// A file that has been unfinished for this long was left by a writer that was killed.
const ABANDONED: Duration = Duration::from_secs(10 * 60);
/// The folder is looked over after this part of its limit was written.
const SWEEP: u64 = 16;

/// The hash of everything that a compiled program depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key([u8; 32]);

impl Key {
    /// The hash of a list of parts. The division into parts counts.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Key {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        Key(*hasher.finalize().as_bytes())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A program as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Scratch bytes of a run, if the plugin told when it compiled: it may not tell of a program
    /// that it loaded.
    pub temporaries: Option<u64>,
    /// What [`Executable::serialize`](super::Executable::serialize) gave.
    pub serialized: Vec<u8>,
}

/// The outcome of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Hit(Entry),
    Miss,
    /// There was a file, but not one to trust. It is gone now.
    Rejected,
}

/// A folder of entries. Any number of processes may share it.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    /// Bytes that the entries may take together, give or take what was written since the last
    /// time somebody looked.
    limit: u64,
    /// Bytes written since this process looked the folder over.
    unswept: AtomicU64,
}

impl Cache {
    /// A cache in `folder`, which is made, for this user alone, when something is first stored.
    pub fn new(folder: impl Into<PathBuf>, limit: u64) -> Cache {
        // The first entry is followed by a sweep, so that many short processes sweep too.
        Cache { folder: folder.into(), limit, unswept: AtomicU64::new(limit) }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.folder.join(format!("{}.{ENTRY}", blake3::Hash::from_bytes(key.0).to_hex()))
    }

    /// Looks an entry up and marks it as used now.
    pub fn load(&self, key: &Key) -> Found {
        let Ok(mut file) = File::open(self.path(key)) else { return Found::Miss };
        match read(&mut file, key) {
            Ok(Some(entry)) => {
                // Only the order of eviction is lost if this isn't allowed.
                let _ = file.set_modified(SystemTime::now());
                Found::Hit(entry)
            }
            Ok(None) => {
                self.remove(key);
                Found::Rejected
            }
            // A disk that can't be read now is no reason to throw away what is on it.
            Err(_) => Found::Miss,
        }
    }

    /// Removes an entry, if it is there.
    pub fn remove(&self, key: &Key) {
        let _ = fs::remove_file(self.path(key));
    }

    /// Keeps an entry, in place of any that has the key, and makes room for it if it must. One
    /// that is larger than the limit is not kept. Returns the bytes written.
    ///
    /// # Errors
    /// The folder can't be made or written to, or the disk is full. The cache is as it was.
    pub fn store(&self, key: &Key, entry: &Entry) -> io::Result<u64> {
        let bytes = (HEADER + entry.serialized.len()) as u64;
        if bytes > self.limit {
            return Ok(0);
        }
        make_private(&self.folder)?;
        let mut file =
            tempfile::Builder::new().suffix(&format!(".{UNFINISHED}")).tempfile_in(&self.folder)?;
        file.write_all(&header(key, entry))?;
        file.write_all(&entry.serialized)?;
        file.persist(self.path(key)).map_err(|e| e.error)?;
        if self.unswept.fetch_add(bytes, Relaxed) + bytes > self.limit / SWEEP {
            self.unswept.store(0, Relaxed);
            self.sweep()?;
        }
        Ok(bytes)
    }

    /// Removes what killed writers left behind, and the entries not used for longest until the
    /// rest is within the limit.
    ///
    /// # Errors
    /// The folder can't be listed.
    pub fn sweep(&self) -> io::Result<()> {
        let now = SystemTime::now();
        let mut entries = Vec::new();
        let mut total = 0;
        for file in fs::read_dir(&self.folder)? {
            let path = file?.path();
            // Gone already: another process sweeps too.
            let Ok(about) = path.symlink_metadata() else { continue };
            let used = about.modified()?;
            match path.extension().and_then(|e| e.to_str()) {
                Some(ENTRY) => {
                    total += about.len();
                    entries.push((used, about.len(), path));
                }
                Some(UNFINISHED) if now.duration_since(used).is_ok_and(|age| age > ABANDONED) => {
                    let _ = fs::remove_file(path);
                }
                // Not ours.
                _ => {}
            }
        }
        entries.sort();
        for (_, bytes, path) in entries {
            if total <= self.limit {
                break;
            }
            if fs::remove_file(path).is_ok() {
                total -= bytes;
            }
        }
        Ok(())
    }
}

/// The entry in a file that was opened under `key`; `None` if the file isn't one.
fn read(file: &mut File, key: &Key) -> io::Result<Option<Entry>> {
    let length = file.metadata()?.len();
    let mut header = [0; HEADER];
    if length < HEADER as u64 {
        return Ok(None);
    }
    file.read_exact(&mut header)?;
    let (magic, rest) = header.split_at(MAGIC.len());
    let (known, rest) = rest.split_at(32);
    let word = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&rest[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    // Before the allocation: a damaged length may be any number.
    if magic != MAGIC || known != key.0 || word(8) != length - HEADER as u64 {
        return Ok(None);
    }
    let mut serialized = Vec::with_capacity(word(8) as usize);
    file.read_to_end(&mut serialized)?;
    if checksum(&header[..CHECKSUM], &serialized) != header[CHECKSUM..] {
        return Ok(None);
    }
    let temporaries = Some(word(0)).filter(|&t| t != u64::MAX);
    Ok(Some(Entry { temporaries, serialized }))
}

fn header(key: &Key, entry: &Entry) -> [u8; HEADER] {
    let temporaries = entry.temporaries.unwrap_or(u64::MAX).to_le_bytes();
    let length = (entry.serialized.len() as u64).to_le_bytes();
    let mut header = [0; HEADER];
    let mut at = 0;
    for part in [&MAGIC[..], &key.0, &temporaries, &length] {
        header[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    let sum = checksum(&header[..at], &entry.serialized);
    header[at..].copy_from_slice(&sum);
    header
}

fn checksum(header: &[u8], serialized: &[u8]) -> [u8; 32] {
    *blake3::Hasher::new().update(header).update(serialized).finalize().as_bytes()
}

/// Makes a folder, and those above it, that only this user may enter: what is in it gets run.
fn make_private(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}
