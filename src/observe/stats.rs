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
    /// Distinct programs sent to the compiler.
    pub regions_compiled: u64,
    /// Flushes whose program was there already.
    pub cache_hits: u64,
    /// Programs compiled anew because a number changed.
    pub recompiled_for_number: u64,
}

/// Time spent, in nanoseconds, by threads that don't hold the recorder.
#[derive(Debug, Default)]
pub struct Times {
    pub compile: AtomicU64,
    pub execute: AtomicU64,
    pub executions: AtomicU64,
}

impl Times {
    pub fn compiled(&self, took: std::time::Duration) {
        self.compile.fetch_add(took.as_nanos() as u64, Relaxed);
    }

    pub fn executed(&self, took: std::time::Duration) {
        self.execute.fetch_add(took.as_nanos() as u64, Relaxed);
        self.executions.fetch_add(1, Relaxed);
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
