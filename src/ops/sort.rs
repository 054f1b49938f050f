//! Sorting and selection by order along a dimension.

use super::reduce::{check_not_empty, one_dim, pick, unsupported};
use super::{Args, Out, Registry, outs};
use crate::ensure;
use crate::error::Result;
use crate::ir::{DType, Number, ReduceKind, Shape, V};

pub(super) fn register(r: &mut Registry) {
    r.op("aten::sort", |a| sort(a, 1));
    r.op("aten::sort.stable", |a| sort(a, 2));
    r.op("aten::topk", topk);
    r.op("aten::kthvalue", kthvalue);
    r.op("aten::median", |a| median(a, false));
    r.op("aten::nanmedian", |a| median(a, true));
    r.op("aten::median.dim", |a| median_dim(a, false));
    r.op("aten::nanmedian.dim", |a| median_dim(a, true));
    r.op("aten::mode", mode);
}

/// A scalar as a vector of one; and what undoes that on a result.
pub(super) fn at_least_1d(x: V<'_>) -> (V<'_>, impl Fn(V<'_>) -> V<'_>) {
    let scalar = x.rank() == 0;
    let lifted = if scalar { x.reshape(&[1]) } else { x };
    (lifted, move |v: V<'_>| if scalar { v.reshape(&[]) } else { v })
}

/// The elements in order along `dim`, and where each was. Stable; NaN is the largest.
fn sorted<'b>(op: &str, x: V<'b>, dim: usize, descending: bool) -> Result<(V<'b>, V<'b>)> {
    let dtype = x.dtype();
    // PyTorch sorts bools but selects none among them.
    if dtype.is_complex() || (dtype.is_bool() && !matches!(op, "sort" | "mode")) {
        return Err(unsupported(op, dtype));
    }
    let key = if dtype.is_bool() { x.convert(DType::U8) } else { x };
    let index = x.b.iota(DType::I64, &x.sizes(), dim);
    if x.numel() == 0 {
        return Ok((x, index));
    }
    let out = x.b.sort(&[key, index], dim, descending);
    Ok((out[0].convert(dtype), out[1]))
}

/// `dim` and `descending` are at `first` and the position after it.
fn sort<'b>(a: &Args<'b>, first: usize) -> Out<'b> {
    let x = a.t(0)?;
    let dim = a.dim(first, x.rank())?;
    let (x, restore) = at_least_1d(x);
    let (values, indices) = sorted("sort", x, dim, a.bool(first + 1)?)?;
    outs([restore(values), restore(indices)])
}

fn topk<'b>(a: &Args<'b>) -> Out<'b> {
    let x = a.t(0)?;
    let (k, dim) = (a.int(1)?, a.dim(2, x.rank())?);
    let scalar = x.rank() == 0;
    let (x, _) = at_least_1d(x);
    ensure!((0..=x.size(dim)).contains(&k), "selected index k out of range");
    let (values, indices) = sorted("topk", x, dim, a.bool(3)?)?;
    if scalar {
        // A scalar is its own largest element whatever k is.
        return outs([values.reshape(&[]), indices.reshape(&[])]);
    }
    outs([values.slice(dim, 0, k, 1), indices.slice(dim, 0, k, 1)])
}

/// Position `at` of each sorted line, the dimension kept or not.
fn select_at<'b>(v: V<'b>, dim: usize, at: i64, keepdim: bool) -> V<'b> {
    if keepdim { v.slice(dim, at, at + 1, 1) } else { v.at(dim, at) }
}

fn kthvalue<'b>(a: &Args<'b>) -> Out<'b> {
    let x = a.t(0)?;
    let (k, dim) = (a.int(1)?, a.dim(2, x.rank())?);
    check_not_empty("kthvalue", x, &one_dim(a, 2, x)?)?;
    let scalar = x.rank() == 0;
    let (x, _) = at_least_1d(x);
    ensure!(
        k >= 1 && k <= x.size(dim),
        "kthvalue(): selected number k out of range for dimension {dim}"
    );
    let keepdim = a.bool(3)? && !scalar;
    let (values, indices) = sorted("kthvalue", x, dim, false)?;
    let at = |v| select_at(v, dim, k - 1, keepdim);
    outs([at(values), at(indices)])
}

/// Positions (kept) of the median among the elements of each line that are numbers.
fn middle_of_numbers<'b>(x: V<'b>, dim: usize) -> V<'b> {
    let numbers = x.eq(x).convert(DType::I64).sum(&[dim as i64], true);
    (numbers - 1i64).max(0i64) / 2i64
}

fn median<'b>(a: &Args<'b>, ignore_nan: bool) -> Out<'b> {
    let x = a.t(0)?.flatten();
    let dtype = x.dtype();
    if x.numel() == 0 {
        if !dtype.is_float() {
            return Err(unsupported("median of an empty tensor", dtype));
        }
        return a.b.full(f64::NAN, dtype, &[]).out();
    }
    let (values, _) = sorted("median", x, 0, false)?;
    if !dtype.is_float() {
        return values.at(0, (x.numel() - 1) / 2).out();
    }
    if ignore_nan {
        return pick(values, 0, middle_of_numbers(x, 0)).out();
    }
    let any_nan = x.is_nan().reduce(ReduceKind::Or, &[0], false);
    any_nan.select(a.b.full(f64::NAN, dtype, &[]), values.at(0, (x.numel() - 1) / 2)).out()
}

fn median_dim<'b>(a: &Args<'b>, ignore_nan: bool) -> Out<'b> {
    let x = a.t(0)?;
    let dim = a.dim(1, x.rank())?;
    check_not_empty("median", x, &one_dim(a, 1, x)?)?;
    let scalar = x.rank() == 0;
    let keepdim = a.bool(2)? && !scalar;
    let (x, _) = at_least_1d(x);
    let (values, indices) = sorted("median", x, dim, false)?;
    let at = (x.size(dim) - 1) / 2;
    if !x.dtype().is_float() {
        return outs([select_at(values, dim, at, keepdim), select_at(indices, dim, at, keepdim)]);
    }
    let kept = |v: V<'b>| if keepdim { v.unsqueeze(dim) } else { v };
    if ignore_nan {
        let middle = middle_of_numbers(x, dim);
        return outs([kept(pick(values, dim, middle)), kept(pick(indices, dim, middle))]);
    }
    // A NaN in a line is its median: the first one, as it sorts after every number.
    let nan = x.is_nan().convert(DType::I64);
    let numbers = a.b.full(x.size(dim), DType::I64, &[]) - nan.sum(&[dim as i64], true);
    let any_nan = numbers.lt(x.size(dim));
    let position = any_nan.select(numbers, at);
    outs([kept(pick(values, dim, position)), kept(pick(indices, dim, position))])
}

fn mode<'b>(a: &Args<'b>) -> Out<'b> {
    let x = a.t(0)?;
    let dim = a.dim(1, x.rank())?;
    check_not_empty("mode", x, &one_dim(a, 1, x)?)?;
    let scalar = x.rank() == 0;
    let keepdim = a.bool(2)? && !scalar;
    let (x, _) = at_least_1d(x);
    let (values, indices) = sorted("mode", x, dim, false)?;
    if x.numel() == 0 {
        let sizes: Shape = x.reduce_sizes(dim, keepdim);
        return outs([
            a.b.full(Number::Int(0), x.dtype(), &sizes),
            a.b.full(0i64, DType::I64, &sizes),
        ]);
    }
    // The longest run of equal elements; of several the first, which has the smallest value.
    let n = x.size(dim);
    let position = a.b.iota(DType::I64, &x.sizes(), dim);
    let run_start = if n == 1 {
        position
    } else {
        let changed = values.slice(dim, 1, n, 1).ne(values.slice(dim, 0, n - 1, 1));
        let changed = changed.pad_dim(true, dim, 1, 0);
        changed.select(position, 0i64).cumulative(ReduceKind::Max, dim)
    };
    let (_, last) = (position - run_start).arg_reduce(true, dim, true);
    let kept = |v: V<'b>| if keepdim { v.unsqueeze(dim) } else { v };
    outs([kept(pick(values, dim, last)), kept(pick(indices, dim, last))])
}

impl V<'_> {
    /// The sizes after a reduction of one dimension.
    fn reduce_sizes(self, dim: usize, keepdim: bool) -> Shape {
        let mut sizes = self.sizes();
        if keepdim {
            sizes[dim] = 1;
        } else {
            sizes.remove(dim);
        }
        sizes
    }
}
