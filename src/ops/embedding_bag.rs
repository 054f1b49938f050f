//! Embedding lookups reduced within bags, and their gradients.

use super::{Args, Out, Registry, outs};
use crate::ensure;
use crate::ir::{DType, Number, ReduceKind, ScatterKind, V};

pub(super) fn register(r: &mut Registry) {
    for name in ["aten::_embedding_bag", "aten::_embedding_bag_forward_only"] {
        r.op(name, embedding_bag);
    }
    // (grad, indices, offsets, offset2bag, …, sparse, …) and the same without offsets and sparse.
    r.op("aten::_embedding_bag_backward", |a| {
        ensure!(!a.bool(9)?, NotImplemented, "sparse gradients of embedding_bag");
        dense_backward(a, 3, 10)
    });
    r.op("aten::_embedding_bag_dense_backward", |a| dense_backward(a, 2, 8));
    r.op("aten::_embedding_bag_per_sample_weights_backward", weights_backward);
}

const SUM: i64 = 0;
const MEAN: i64 = 1;
const MAX: i64 = 2;

const ADD: ScatterKind = ScatterKind::Reduce(ReduceKind::Sum);

/// The bag that each of `n` indices is in.
fn bags<'b>(offsets: V<'b>, n: i64) -> V<'b> {
    let count = offsets.size(0);
    let i = offsets.b.iota(DType::I64, &[n, count], 0);
    let begun = i.ge(offsets.convert(DType::I64)).convert(DType::I64);
    begun.sum(&[1], false) - 1i64
}

/// The gradient or value rows that count: 1 where an index isn't the padding one.
fn counts<'b>(indices: V<'b>, padding: i64, dtype: DType) -> V<'b> {
    indices.convert(DType::I64).ne(padding).convert(dtype)
}

/// (weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
/// include_last_offset, padding_idx) → output, offset2bag, bag_size, max_indices
fn embedding_bag<'b>(a: &Args<'b>) -> Out<'b> {
    let (weight, indices, offsets) = (a.t(0)?, a.t(1)?, a.t(2)?);
    let (mode, padding) = (a.int(4)?, a.int(8)?);
    ensure!(
        weight.rank() == 2 && indices.rank() == 1 && offsets.rank() == 1,
        "embedding_bag: expected a matrix of weights and vectors of indices and offsets, got {}, \
         {} and {}",
        weight.ty(),
        indices.ty(),
        offsets.ty()
    );
    let dtype = weight.dtype();
    let compute = dtype.opmath();
    let (n, width) = (indices.size(0), weight.size(1));
    let offsets = if a.bool(7)? {
        ensure!(offsets.size(0) >= 1, "include_last_offset: number of offset should be at least 1");
        offsets.slice(0, 0, offsets.size(0) - 1, 1)
    } else {
        offsets
    };
    let count = offsets.size(0);
    let integer = indices.dtype();
    let result = [count, width];
    if n == 0 || count == 0 || width == 0 {
        let max = a.b.full(0i64, integer, if mode == MAX { &result } else { &result[..1] });
        return outs([
            a.b.full(0i64, dtype, &result),
            a.b.full(0i64, integer, &[n]),
            a.b.full(0i64, integer, &[count]),
            max,
        ]);
    }
    let bag = bags(offsets, n);
    let present = counts(indices, padding, compute);
    let sizes = a.b.full(0i64, compute, &[count]).put_flat(ADD, bag, present, false);
    let rows = weight.convert(compute).take(0, indices);
    let zeros = a.b.full(0i64, compute, &result);
    let mut max_indices = a.b.full(0i64, integer, &[count]);
    let output = if mode == MAX {
        let keep = indices.convert(DType::I64).ne(padding).unsqueeze(1);
        let lowest = a.b.full(compute.min_value(), compute, &result);
        let keep = keep.broadcast_to(&rows.sizes());
        let low = rows.full_like(compute.min_value());
        let candidates = keep.select(rows, low);
        let kind = ScatterKind::Reduce(ReduceKind::Max);
        let best = super::scatter::rows(lowest, kind, 0, bag, candidates);
        // The first index of each bag that reaches its maximum.
        let reached = candidates.eq(best.take(0, bag)).and(keep);
        let place = a.b.iota(DType::I64, &rows.sizes(), 0);
        let place = reached.select(place, Number::Int(n));
        let first = a.b.full(n, DType::I64, &result);
        let kind = ScatterKind::Reduce(ReduceKind::Min);
        let first = super::scatter::rows(first, kind, 0, bag, place);
        let filled = first.lt(n);
        let chosen = indices.take(0, first.min(n - 1));
        max_indices = filled.select(chosen, Number::Int(0));
        filled.select(best, Number::Int(0).cast(compute))
    } else {
        let mut rows = rows;
        if let Some(w) = a.opt(6)? {
            ensure!(
                mode == SUM,
                "embedding_bag: per_sample_weights was not None, but mode isn't sum"
            );
            rows = rows * w.convert(compute).unsqueeze(1);
        }
        let keep = indices.convert(DType::I64).ne(padding).unsqueeze(1);
        let keep = keep.broadcast_to(&rows.sizes());
        let rows = keep.select(rows, Number::Int(0).cast(compute));
        let sum = super::scatter::rows(zeros, ADD, 0, bag, rows);
        if mode == MEAN { sum / sizes.max(1.0).unsqueeze(1) } else { sum }
    };
    outs([output.convert(dtype), bag.convert(integer), sizes.convert(integer), max_indices])
}

/// (grad, indices, …, offset2bag at `i`, bag_size, maximum_indices, num_weights,
/// scale_grad_by_freq, mode, …, per_sample_weights at `j`, padding_idx)
fn dense_backward<'b>(a: &Args<'b>, i: usize, j: usize) -> Out<'b> {
    let (grad, indices, bag) = (a.t(0)?, a.t(1)?, a.t(i)?);
    let (rows, mode, padding) = (a.int(i + 3)?, a.int(i + 5)?, a.int(j + 1)?);
    let dtype = grad.dtype();
    let compute = dtype.opmath();
    let grad = grad.convert(compute);
    let (n, width) = (indices.size(0), grad.size(1));
    let zeros = a.b.full(0i64, compute, &[rows, width]);
    if n == 0 || zeros.numel() == 0 || grad.numel() == 0 {
        return zeros.convert(dtype).out();
    }
    let indices = indices.convert(DType::I64);
    if mode == MAX {
        // Each element of the result came from one row; empty bags name a row but carry nothing.
        let filled = a.t(i + 1)?.convert(DType::I64).gt(0i64).unsqueeze(1);
        let filled = filled.broadcast_to(&grad.sizes());
        let grad = filled.select(grad, Number::Int(0).cast(compute));
        let column = a.b.iota(DType::I64, &grad.sizes(), 1);
        let at = a.t(i + 2)?.convert(DType::I64) * width + column;
        let sum = zeros.flatten().put_flat(ADD, at, grad, false);
        return sum.reshape(&[rows, width]).convert(dtype).out();
    }
    let mut share = grad.take(0, bag);
    if mode == MEAN {
        let sizes = a.t(i + 1)?.convert(compute).max(1.0);
        share = share / sizes.take(0, bag).unsqueeze(1);
    }
    if let Some(w) = a.opt(j)? {
        share = share * w.convert(compute).unsqueeze(1);
    }
    if a.bool(i + 4)? {
        let ones = a.b.full(1i64, compute, &[n]);
        let seen = a.b.full(0i64, compute, &[rows]).put_flat(ADD, indices, ones, false);
        share = share / seen.take(0, indices).unsqueeze(1);
    }
    // The padding row's gradient goes out of range, where it is dropped.
    let index = if padding >= 0 {
        indices.eq(padding).select(indices.full_like(rows), indices)
    } else {
        indices
    };
    super::scatter::rows(zeros, ADD, 0, index, share).convert(dtype).out()
}

/// (grad, weight, indices, offsets, offset2bag, mode, padding_idx)
fn weights_backward<'b>(a: &Args<'b>) -> Out<'b> {
    let (grad, weight, indices, bag) = (a.t(0)?, a.t(1)?, a.t(2)?, a.t(4)?);
    let padding = a.int(6)?;
    let dtype = grad.dtype();
    let compute = dtype.opmath();
    let n = indices.size(0);
    if n == 0 || grad.numel() == 0 {
        return a.b.full(0i64, dtype, &[n]).out();
    }
    let rows = weight.convert(compute).take(0, indices);
    let dot = (grad.convert(compute).take(0, bag) * rows).sum(&[1], false);
    let present = indices.convert(DType::I64).ne(padding);
    present.select(dot, Number::Int(0).cast(compute)).convert(dtype).out()
}
