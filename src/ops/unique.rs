//! Distinct values: unique and its relatives over the flattened tensor.

use super::index::{counted, positions};
use super::{Args, Out, Registry, outs};
use crate::ensure;
use crate::error::Result;
use crate::ir::{DType, ReduceKind, V};

pub(super) fn register(r: &mut Registry) {
    // (self, sorted, return_inverse[, return_counts]): sorted in any case, as torch's CPU is.
    r.sized(
        "aten::_unique2",
        |a| count(a.t(0)?, true),
        |a| unique(a, true, a.bool(2)?, Some(a.bool(3)?)),
    );
    r.sized("aten::_unique", |a| count(a.t(0)?, true), |a| unique(a, true, a.bool(2)?, None));
    // (self, return_inverse, return_counts, dim)
    r.sized(
        "aten::unique_consecutive",
        |a| {
            check_flat(a)?;
            count(a.t(0)?, false)
        },
        |a| {
            check_flat(a)?;
            unique(a, false, a.bool(1)?, Some(a.bool(2)?))
        },
    );
}

fn check_flat(a: &Args<'_>) -> Result<()> {
    let whole = a.is_none(3) || (a.int(3)? == 0 && a.t(0)?.rank() == 1);
    ensure!(whole, NotImplemented, "unique_consecutive along a dimension");
    Ok(())
}

/// A type in which the values are ordered and compared alike.
fn comparable(x: V<'_>) -> Result<V<'_>> {
    ensure!(!x.dtype().is_complex(), NotImplemented, "unique of complex numbers");
    let x = x.flatten();
    Ok(match x.dtype() {
        DType::Bool => x.convert(DType::U8),
        other => x.convert(other.opmath()),
    })
}

/// Whether each element of a sequence starts a run of equal ones.
fn starts(x: V<'_>) -> V<'_> {
    let n = x.size(0);
    if n < 2 {
        return x.b.full(true, DType::Bool, &[n]);
    }
    let change = x.slice(0, 1, n, 1).ne(x.slice(0, 0, n - 1, 1));
    x.b.concat(&[x.b.full(true, DType::Bool, &[1]), change], 0)
}

fn count(x: V<'_>, sort: bool) -> Result<Option<V<'_>>> {
    let x = comparable(x)?;
    let x = if sort { x.b.sort(&[x], 0, false)[0] } else { x };
    Ok(Some(starts(x).convert(DType::I64).sum(&[0], false)))
}

/// The values, for each element the position of its value, and how often each value occurs;
/// empty where not asked for.
fn unique<'b>(a: &Args<'b>, sort: bool, inverse: bool, counts: Option<bool>) -> Out<'b> {
    let x = a.t(0)?;
    let (n, total) = (counted(a)?, x.numel());
    let empty = a.b.full(0i64, DType::I64, &[0]);
    let flat = comparable(x)?;
    let (line, order) = if sort && total > 0 {
        let position = a.b.iota(DType::I64, &[total], 0);
        let sorted = a.b.sort(&[flat, position], 0, false);
        (sorted[0], Some(sorted[1]))
    } else {
        (flat, None)
    };
    let start = starts(line);
    let first = positions(start, n);
    let values = if n == 0 {
        a.b.full(0i64, x.dtype(), &[0])
    } else {
        line.take(0, first).convert(x.dtype())
    };
    let inverse = if !inverse {
        empty
    } else if total == 0 {
        a.b.full(0i64, DType::I64, &x.sizes())
    } else {
        let run = start.convert(DType::I64).cumulative(ReduceKind::Sum, 0) - 1i64;
        // Sorting by the positions undoes the sort.
        let back = order.map_or(run, |order| a.b.sort(&[order, run], 0, false)[1]);
        back.reshape(&x.sizes())
    };
    let mut results = vec![values, inverse];
    if let Some(wanted) = counts {
        results.push(if wanted && n > 0 {
            let next = first.slice(0, 1, n, 1);
            let ends = a.b.concat(&[next, a.b.full(total, DType::I64, &[1])], 0);
            ends - first
        } else {
            empty
        });
    }
    outs(results)
}
