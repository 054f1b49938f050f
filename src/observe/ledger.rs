//! Device bytes in live buffers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes in device buffers now and at most. Counted by the engine itself, since a plugin may not
/// tell (XLA:CPU doesn't).
#[derive(Debug, Default)]
pub struct Ledger {
    current: AtomicU64,
    peak: AtomicU64,
    /// The largest of live buffers and an executable's temporaries together.
    peak_with_temporaries: AtomicU64,
    allocations: AtomicU64,
}

impl Ledger {
    pub fn allocated(&self, bytes: u64) {
        let now = self.current.fetch_add(bytes, Relaxed) + bytes;
        self.peak.fetch_max(now, Relaxed);
        self.peak_with_temporaries.fetch_max(now, Relaxed);
        self.allocations.fetch_add(1, Relaxed);
    }

    pub fn freed(&self, bytes: u64) {
        self.current.fetch_sub(bytes, Relaxed);
    }

    /// An executable with this much scratch memory runs beside the live buffers.
    pub fn ran(&self, temporaries: u64) {
        self.peak_with_temporaries.fetch_max(self.current() + temporaries, Relaxed);
    }

    pub fn current(&self) -> u64 {
        self.current.load(Relaxed)
    }

    pub fn peak(&self) -> u64 {
        self.peak.load(Relaxed)
    }

    pub fn peak_with_temporaries(&self) -> u64 {
        self.peak_with_temporaries.load(Relaxed)
    }

    pub fn allocations(&self) -> u64 {
        self.allocations.load(Relaxed)
    }

    pub fn reset_peak(&self) {
        self.peak.store(self.current(), Relaxed);
        self.peak_with_temporaries.store(self.current(), Relaxed);
    }
}
