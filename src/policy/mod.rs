//! When to flush: the three modes. Nothing else decides.
//!
//! A decision is a function of the op stream alone, never of time, threads or addresses, so that
//! every rank of a distributed program cuts its trace at the same places.

mod repetition;

use std::fmt;
use std::str::FromStr;

use smallvec::{SmallVec, smallvec};

use crate::trace::{Store, Trace};
pub use repetition::Repetition;

/// How eagerly recorded ops run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Mode {
    /// Each op at once, asynchronously.
    #[default]
    Strict,
    /// Each op at once, waiting for it.
    Debug,
    /// Ops are deferred until something needs a value, and run as fused regions.
    DeferAndFuse,
}

impl Mode {
    pub const ALL: [Mode; 3] = [Mode::Strict, Mode::Debug, Mode::DeferAndFuse];

    pub fn name(self) -> &'static str {
        match self {
            Mode::Strict => "strict",
            Mode::Debug => "debug",
            Mode::DeferAndFuse => "defer_and_fuse",
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        Mode::ALL.into_iter().find(|m| m.name() == text).ok_or_else(|| {
            format!("unknown mode {text:?}: it must be strict, debug or defer_and_fuse")
        })
    }
}

/// Why a trace was flushed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Reason {
    /// Strict and Debug: after each op.
    EachOp,
    /// The host reads a value.
    HostRead,
    /// The host reads the size of a result that depends on data.
    ResultSize,
    /// `torch.tpu.synchronize()`.
    Synchronize,
    /// `torch.tpu.flush()`, an event, or a change of mode.
    Explicit,
    /// The ops repeat themselves, and an iteration is complete.
    Repetition,
    /// As many ops as `Limits::ops` are pending.
    PendingOps,
    /// Results of `Limits::bytes` are pending.
    PendingBytes,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::EachOp => "each_op",
            Reason::HostRead => "host_read",
            Reason::ResultSize => "result_size",
            Reason::Synchronize => "synchronize",
            Reason::Explicit => "explicit",
            Reason::Repetition => "repetition",
            Reason::PendingOps => "pending_ops",
            Reason::PendingBytes => "pending_bytes",
        })
    }
}

/// What DeferAndFuse defers at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub ops: usize,
    /// Bytes of all results in the trace.
    pub bytes: u64,
}

impl Default for Limits {
    /// A training step of a model of some hundred layers fits; an unread loop stays bounded.
    fn default() -> Limits {
        Limits { ops: 16_384, bytes: 16 << 30 }
    }
}

impl Limits {
    /// `TORCHTPU_MAX_PENDING_OPS` and `TORCHTPU_MAX_PENDING_BYTES`, where they are numbers.
    pub fn from_env() -> Limits {
        let read = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
        let default = Limits::default();
        Limits {
            ops: read("TORCHTPU_MAX_PENDING_OPS").map_or(default.ops, |n| n.max(1) as usize),
            bytes: read("TORCHTPU_MAX_PENDING_BYTES").unwrap_or(default.bytes),
        }
    }
}

/// A reason to flush, and what to flush: prefixes of the trace, each of so many steps counted from
/// its present start, one region after the other.
pub type Decision = (Reason, SmallVec<[usize; 1]>);

/// Decides after each op that was recorded.
#[derive(Debug)]
pub struct Policy {
    pub limits: Limits,
    repetition: Repetition,
}

impl Policy {
    pub fn new(limits: Limits) -> Policy {
        Policy { limits, repetition: Repetition::default() }
    }

    /// Whether to flush after the last step of `trace`, and why.
    pub fn after_step<B>(
        &mut self,
        mode: Mode,
        trace: &Trace,
        store: &Store<B>,
    ) -> Option<Decision> {
        let pending = trace.steps.len();
        if mode != Mode::DeferAndFuse {
            return Some((Reason::EachOp, smallvec![pending]));
        }
        let last = trace.steps.last()?;
        if self.repetition.cuts_after(last.template.id) {
            return Some((Reason::Repetition, smallvec![pending]));
        }
        let cuts = self.repetition.find(trace, store);
        if !cuts.is_empty() {
            return Some((Reason::Repetition, cuts.into()));
        }
        if pending >= self.limits.ops {
            return Some((Reason::PendingOps, smallvec![repetition::landmark(trace)]));
        }
        if trace.bytes >= self.limits.bytes {
            return Some((Reason::PendingBytes, smallvec![pending]));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_parse_their_names() {
        for mode in Mode::ALL {
            assert_eq!(mode.name().parse(), Ok(mode));
        }
        assert!("eager".parse::<Mode>().is_err_and(|e| e.contains("defer_and_fuse")));
    }
}
