//! The disk cache: entries that are whole or not there at all, whoever is killed while writing.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use defer_and_fuse::pjrt::{Cache, Entry, Found, Key};

/// Set for a process that this file's tests start: what it does, and the folder it does it in.
const CHILD: &str = "CACHE_TEST_CHILD";
const FOLDER: &str = "CACHE_TEST_FOLDER";
const MIB: u64 = 1 << 20;

fn key(i: u64) -> Key {
    Key::of([b"test".as_slice(), &i.to_le_bytes()])
}

/// The entry that belongs to `key(i)`, and to no other key.
fn entry(i: u64, bytes: usize) -> Entry {
    let serialized = (0..bytes as u64).map(|at| (at.wrapping_mul(i + 1) >> 3) as u8 ^ i as u8);
    Entry { temporaries: i.is_multiple_of(2).then_some(i), serialized: serialized.collect() }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("the folder").map(|f| f.expect("a file").path()).collect();
    files.sort();
    files
}

fn with_extension(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let of = |path: &PathBuf| path.extension().is_some_and(|e| e == extension);
    files(folder).into_iter().filter(of).collect()
}

fn set_age(path: &Path, age: Duration) {
    let file = File::options().write(true).open(path).expect("the file");
    file.set_modified(SystemTime::now() - age).expect("the file's time");
}

#[test]
fn what_is_stored_is_found_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::new(folder.path().join("deep/down"), MIB);
    assert_eq!(cache.load(&key(1)), Found::Miss);
    for i in 0..4 {
        let bytes = cache.store(&key(i), &entry(i, 100 * i as usize)).expect("stored");
        assert!(bytes > 100 * i);
    }
    // Another process's view.
    let cache = Cache::new(cache.folder(), MIB);
    for i in 0..4 {
        assert_eq!(cache.load(&key(i)), Found::Hit(entry(i, 100 * i as usize)));
    }
    cache.store(&key(1), &entry(7, 10)).expect("stored");
    assert_eq!(cache.load(&key(1)), Found::Hit(entry(7, 10)));
    cache.remove(&key(1));
    assert_eq!(cache.load(&key(1)), Found::Miss);
}

#[cfg(unix)]
#[test]
fn the_folder_is_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::new(folder.path().join("mine"), MIB);
    cache.store(&key(1), &entry(1, 10)).expect("stored");
    let mode = |path: &Path| fs::metadata(path).expect("its mode").permissions().mode() & 0o777;
    assert_eq!(mode(cache.folder()), 0o700);
    assert_eq!(mode(&files(cache.folder())[0]), 0o600);
}

#[test]
fn parts_of_a_key_do_not_run_together() {
    let of = |parts: &[&str]| Key::of(parts.iter().map(|p| p.as_bytes()));
    assert_eq!(of(&["ab", "c"]), of(&["ab", "c"]));
    assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
    assert_ne!(of(&["ab"]), of(&["ab", ""]));
}

/// Any file that isn't exactly what was written is refused once, and gone.
#[test]
fn damaged_and_foreign_files_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::new(folder.path(), MIB);
    cache.store(&key(1), &entry(1, 300)).expect("stored");
    let path = files(folder.path()).remove(0);
    let good = fs::read(&path).expect("the entry");
    let refused = |bytes: &[u8], what: &str| {
        fs::write(&path, bytes).expect("written");
        assert_eq!(cache.load(&key(1)), Found::Rejected, "{what}");
        assert!(!path.exists(), "{what}: removed");
        assert_eq!(cache.load(&key(1)), Found::Miss, "{what}");
    };
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        refused(&bytes, &format!("a bit of byte {at} turned over"));
    }
    for length in 0..good.len() {
        refused(&good[..length], &format!("{length} of {} bytes", good.len()));
    }
    refused(&[&good[..], b"x"].concat(), "bytes too many");
    refused(
        b"not an entry at all, but long enough to have a header of its own, to be sure: \
              anybody may have put it here under that name",
        "a foreign file",
    );

    // An entry under another's name.
    cache.store(&key(2), &entry(2, 300)).expect("stored");
    refused(&fs::read(&files(folder.path())[0]).expect("it"), "the entry of another key");

    fs::write(&path, &good).expect("written");
    assert_eq!(cache.load(&key(1)), Found::Hit(entry(1, 300)));
}

#[test]
fn what_was_not_used_for_longest_goes_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let size = 10_000;
    // Room for eight entries and their headers.
    let cache = Cache::new(folder.path(), 8 * (size as u64 + 200));
    for i in 0..8 {
        cache.store(&key(i), &entry(i, size)).expect("stored");
    }
    for path in files(folder.path()) {
        set_age(&path, Duration::from_secs(60));
    }
    // Used just now, which makes the others the oldest.
    for i in [1, 6] {
        assert_eq!(cache.load(&key(i)), Found::Hit(entry(i, size)));
    }
    for i in 8..14 {
        cache.store(&key(i), &entry(i, size)).expect("stored");
    }
    let kept: Vec<u64> =
        (0..14).filter(|&i| cache.load(&key(i)) == Found::Hit(entry(i, size))).collect();
    assert_eq!(kept, [1, 6, 8, 9, 10, 11, 12, 13]);

    // What can't fit isn't kept, and drives nothing out.
    assert_eq!(cache.store(&key(99), &entry(99, 9 * size)).expect("not an error"), 0);
    assert_eq!(files(folder.path()).len(), 8);
}

#[test]
fn a_sweep_leaves_what_it_does_not_know() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = |name: &str| folder.path().join(name);
    let names = ["notes.txt", "young.unfinished", "old.unfinished"];
    for name in names {
        fs::write(own(name), "x").expect("written");
    }
    set_age(&own("notes.txt"), Duration::from_secs(100_000));
    set_age(&own("old.unfinished"), Duration::from_secs(100_000));
    Cache::new(folder.path(), 0).sweep().expect("swept");
    let left: Vec<bool> = names.iter().map(|name| own(name).exists()).collect();
    assert_eq!(left, [true, true, false]);
}

#[test]
fn a_folder_that_cannot_be_is_an_error_of_storing_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "in the way").expect("written");
    let cache = Cache::new(&file, MIB);
    assert_eq!(cache.load(&key(1)), Found::Miss);
    assert!(cache.store(&key(1), &entry(1, 10)).is_err());
    assert_eq!(fs::read(&file).expect("still there"), b"in the way");
}

/// Bytes of an entry of the processes below: large enough that a kill often falls into a write.
const LARGE: usize = 4 << 20;
const KEYS: u64 = 3;

/// A process of this file's own, doing what `what` says in `folder`. Returns once it is at work.
fn child(what: &str, folder: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "the_other_process", "--ignored", "--nocapture"])
        .env(CHILD, what)
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut output = BufReader::new(child.stdout.take().expect("its output"));
    let at_work = |line: std::io::Result<String>| line.expect("its output").contains("at work");
    assert!(output.by_ref().lines().any(at_work), "it started");
    // Its last words still need somewhere to go.
    child.stdout = Some(output.into_inner());
    child
}

/// What `child` runs.
#[test]
#[ignore = "only as a process that other tests start"]
fn the_other_process() {
    let folder = std::env::var(FOLDER).expect("started by another test");
    let cache = Cache::new(folder, KEYS * LARGE as u64 + MIB);
    let entries: Vec<Entry> = (0..KEYS).map(|i| entry(i, LARGE)).collect();
    println!("at work");
    match std::env::var(CHILD).expect("started by another test").as_str() {
        // Until it is killed.
        "write" => loop {
            for (i, entry) in entries.iter().enumerate() {
                cache.store(&key(i as u64), entry).expect("stored");
            }
        },
        "share" => {
            let mut hits = 0;
            for round in 0..60 {
                let i = round % KEYS;
                match cache.load(&key(i)) {
                    Found::Hit(found) => {
                        assert!(found == entries[i as usize], "another's entry");
                        hits += 1;
                    }
                    Found::Miss => {}
                    Found::Rejected => panic!("a file that wasn't whole"),
                }
                cache.store(&key(i), &entries[i as usize]).expect("stored");
                if round % 7 == 0 {
                    cache.remove(&key(i));
                }
            }
            assert!(hits > 0, "nothing was ever found");
        }
        what => panic!("no such work: {what}"),
    }
}

#[test]
fn two_hundred_kills_leave_whole_entries() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::new(folder.path(), KEYS * LARGE as u64 + MIB);
    let entries: Vec<Entry> = (0..KEYS).map(|i| entry(i, LARGE)).collect();
    let (mut whole, mut abandoned) = (0, 0);
    for kill in 0..200u64 {
        let mut writer = child("write", folder.path());
        // Spread over a few writes' time; where in a write it falls is up to the machine.
        std::thread::sleep(Duration::from_micros(kill * 131 % 9000));
        writer.kill().expect("killed");
        writer.wait().expect("its end");

        for i in 0..KEYS {
            match cache.load(&key(i)) {
                Found::Hit(found) => {
                    assert!(found == entries[i as usize], "kill {kill}: another entry");
                    whole += 1;
                }
                Found::Miss => {}
                Found::Rejected => panic!("kill {kill} left a file under a name that isn't whole"),
            }
        }
        // What is left of the write can't be taken for an entry, and goes with the next sweep
        // once it is old.
        for path in with_extension(folder.path(), "unfinished") {
            abandoned += 1;
            set_age(&path, Duration::from_secs(3600));
        }
        cache.sweep().expect("swept");
        assert_eq!(with_extension(folder.path(), "unfinished"), Vec::<PathBuf>::new());
    }
    // Else the kills never fell where they were meant to.
    assert!(whole > 0 && abandoned > 0, "{whole} entries, {abandoned} unfinished files");

    // The cache is usable.
    cache.store(&key(0), &entries[0]).expect("stored");
    assert_eq!(cache.load(&key(0)), Found::Hit(entries[0].clone()));
    assert!(with_extension(folder.path(), "program").len() <= KEYS as usize);
}

#[test]
fn processes_share_a_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let children: Vec<Child> = (0..4).map(|_| child("share", folder.path())).collect();
    for mut child in children {
        assert!(child.wait().expect("its end").success());
    }
    assert_eq!(with_extension(folder.path(), "unfinished"), Vec::<PathBuf>::new());
}
