//! Gradient scaling of mixed-precision training.

use super::{Registry, outs};
use crate::ir::V;

pub(super) fn register(r: &mut Registry) {
    // (scale, growth tracker, overflow found, growth factor, backoff factor, growth interval)
    r.op("aten::_amp_update_scale", |a| {
        let (scale, tracker, found) = (a.t(0)?, a.t(1)?, a.t(2)?);
        let (growth, backoff) = (a.num(3)?.to(scale.dtype()), a.num(4)?.to(scale.dtype()));
        let overflow: V<'_> = found.gt(0.0);
        let steps = tracker + 1i64;
        let due = steps.eq(a.int(5)?);
        let grown = scale * growth;
        // A scale that would be infinite stays.
        let grown = grown.unary(crate::ir::UnaryOp::IsFinite).select(grown, scale);
        let scale = overflow.select(scale * backoff, due.select(grown, scale));
        let mut out = outs([scale])?;
        // Its schema doesn't return the tracker that it writes.
        out.writes.push((1, overflow.or(due).select(tracker.full_like(0i64), steps)));
        Ok(out)
    });
}
