//! Counters, and the source lines that steps were recorded at.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::policy::Reason;

/// What was recorded, flushed, compiled and run since the start or the last reset.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub ops_recorded: u64,
    /// Distinct calls: expansions made.
    pub templates: u64,
    pub flushes: BTreeMap<Reason, u64>,
    /// Ops of flushed traces that no live value needed.
    pub ops_dead: u64,
    /// Distinct programs asked for, whether they had to be compiled or were on disk.
    pub regions_compiled: u64,
    /// Flushes whose program was there already.
    pub cache_hits: u64,
    /// Programs compiled anew because a number changed.
    pub recompiled_for_number: u64,
    /// A hash of what was flushed, in order: the ops, their wiring, where the cuts fell and what
    /// outlived them. Equal for equal programs of one build.
    pub digest: u64,
}

/// Time spent, in nanoseconds, and events counted by threads that don't hold the recorder.
#[derive(Debug, Default)]
pub struct Times {
    /// Making programs cheaper, and writing them as text.
    pub optimise: AtomicU64,
    /// In the plugin's compiler.
    pub compile: AtomicU64,
    /// Looking programs up on disk and loading them, whether they were there or not.
    pub load: AtomicU64,
    pub execute: AtomicU64,
    pub executions: AtomicU64,
    pub disk: Disk,
}

/// What the disk cache did.
#[derive(Debug, Default)]
pub struct Disk {
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    /// Files that were damaged, foreign, or refused by the plugin. Misses, too.
    pub rejected: AtomicU64,
    /// Programs that the plugin can't serialise.
    pub unserialisable: AtomicU64,
    pub bytes_read: AtomicU64,
    pub bytes_written: AtomicU64,
}

/// Adds a duration to a sum of nanoseconds.
pub fn add(sum: &AtomicU64, took: std::time::Duration) {
    sum.fetch_add(took.as_nanos() as u64, Relaxed);
}

impl Times {
    pub fn executed(&self, took: std::time::Duration) {
        add(&self.execute, took);
        self.executions.fetch_add(1, Relaxed);
    }

    pub fn reset(&self) {
        let Times { optimise, compile, load, execute, executions, disk } = self;
        let Disk { hits, misses, rejected, unserialisable, bytes_read, bytes_written } = disk;
        let times = [optimise, compile, load, execute, executions];
        for sum in times.into_iter().chain([
            hits,
            misses,
            rejected,
            unserialisable,
            bytes_read,
            bytes_written,
        ]) {
            sum.store(0, Relaxed);
        }
    }
}

/// A Python source line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    pub file: String,
    pub line: u32,
    pub function: String,
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.line == 0 {
            write!(f, "{} in {}", self.file, self.function)
        } else {
            write!(f, "{}:{} in {}", self.file, self.line, self.function)
        }
    }
}

/// Source lines by number; 0 is unknown.
#[derive(Debug, Default)]
pub struct Locations(Vec<Location>);

impl Locations {
    pub fn add(&mut self, location: Location) -> u32 {
        self.0.push(location);
        self.0.len() as u32
    }

    pub fn get(&self, id: u32) -> Option<&Location> {
        self.0.get((id as usize).checked_sub(1)?)
    }
}
