//! Sums, products, extremes and truth over dimensions.

use super::{Args, Out, Registry, outs};
use crate::ensure;
use crate::error::{Error, ErrorKind, Result};
use crate::ir::{DType, Number, ReduceKind, Shape, V};

pub(super) fn register(r: &mut Registry) {
    r.op("aten::sum", |a| {
        let x = a.t(0)?;
        sum(x, &x.all_dims(), false, a.opt_dtype(1)?).out()
    });
    r.op("aten::sum.dim_IntList", |a| {
        let x = a.t(0)?;
        sum(x, &a.dims(1, x.rank())?, a.bool(2)?, a.opt_dtype(3)?).out()
    });
    r.op("aten::nansum", |a| {
        let x = a.t(0)?;
        if x.dtype().is_complex() {
            return Err(unsupported("nansum", x.dtype()));
        }
        let zeroed = if x.dtype().is_float() { x.is_nan().select(x.full_like(0.0), x) } else { x };
        sum(zeroed, &a.dims(1, x.rank())?, a.bool(2)?, a.opt_dtype(3)?).out()
    });
    r.op("aten::mean", |a| {
        let x = a.t(0)?;
        mean(x, &x.all_dims(), false, a.opt_dtype(1)?)
    });
    r.op("aten::mean.dim", |a| {
        let x = a.t(0)?;
        mean(x, &a.dims(1, x.rank())?, a.bool(2)?, a.opt_dtype(3)?)
    });
    r.op("aten::prod", |a| {
        let x = a.t(0)?;
        prod(x, &x.all_dims(), false, a.opt_dtype(1)?)
    });
    r.op("aten::prod.dim_int", |a| {
        let x = a.t(0)?;
        prod(x, &one_dim(a, 1, x)?, a.bool(2)?, a.opt_dtype(3)?)
    });
    r.op("aten::amax", |a| amax(a, "amax", true));
    r.op("aten::amin", |a| amax(a, "amin", false));
    r.op("aten::max", |a| max(a, "max", true));
    r.op("aten::min", |a| max(a, "min", false));
    r.op("aten::max.dim", |a| max_dim(a, "max", true));
    r.op("aten::min.dim", |a| max_dim(a, "min", false));
    r.op("aten::aminmax", aminmax);
    r.op("aten::argmax", |a| argmax(a, "argmax", true));
    r.op("aten::argmin", |a| argmax(a, "argmin", false));
    for (kind, names) in [
        (ReduceKind::And, ["aten::all", "aten::all.dim", "aten::all.dims"]),
        (ReduceKind::Or, ["aten::any", "aten::any.dim", "aten::any.dims"]),
    ] {
        r.op(names[0], move |a| {
            let x = a.t(0)?;
            truth(x, kind, &x.all_dims(), false)
        });
        r.op(names[1], move |a| {
            let x = a.t(0)?;
            truth(x, kind, &one_dim(a, 1, x)?, a.bool(2)?)
        });
        r.op(names[2], move |a| {
            let x = a.t(0)?;
            // Unlike elsewhere, an empty list is no dimension here.
            let none = a.opt_ints(1)?.is_some_and(|d| d.is_empty());
            let dims = if none { Shape::new() } else { a.dims(1, x.rank())? };
            truth(x, kind, &dims, a.bool(2)?)
        });
    }
    r.op("aten::count_nonzero", |a| {
        let x = a.t(0)?;
        let dims = if a.is_none(1) { x.all_dims() } else { one_dim(a, 1, x)? };
        count_nonzero(x, &dims).out()
    });
    r.op("aten::count_nonzero.dim_IntList", |a| {
        let x = a.t(0)?;
        count_nonzero(x, &a.dims(1, x.rank())?).out()
    });
}

/// An op that PyTorch doesn't have for this dtype either, or that is left to the CPU.
pub(super) fn unsupported(op: &str, dtype: DType) -> Error {
    Error::new(
        ErrorKind::NotImplemented,
        format!("\"{op}\" not implemented for '{}'", dtype.scalar_type_name()),
    )
}

/// The type that sums and products of `dtype` have.
pub(super) fn accumulated(dtype: DType) -> DType {
    if dtype.is_integral() { DType::I64 } else { dtype }
}

/// A dimension argument as a list; a scalar has no dimension to reduce.
pub(super) fn one_dim(a: &Args<'_>, i: usize, x: V<'_>) -> Result<Shape> {
    let dim = a.dim(i, x.rank())? as i64;
    Ok((x.rank() > 0).then_some(dim).into_iter().collect())
}

/// x / n for a real n, part by part if complex.
pub(super) fn divide_by_count(x: V<'_>, n: i64) -> V<'_> {
    let n = n as f64;
    if x.dtype().is_complex() { (x.real() / n).complex(x.imag() / n) } else { x / n }
}

/// How many elements a reduction over `dims` takes in.
pub(super) fn count(x: V<'_>, dims: &[i64]) -> i64 {
    dims.iter().map(|&d| x.size(d as usize)).product()
}

/// Σ in the type that `x` converts to first (`dtype`, or by the rule of `accumulated`).
pub(super) fn sum<'b>(x: V<'b>, dims: &[i64], keepdim: bool, dtype: Option<DType>) -> V<'b> {
    let dtype = dtype.unwrap_or(accumulated(x.dtype()));
    let x = x.convert(dtype);
    if dtype.is_bool() {
        return x.reduce(ReduceKind::Or, dims, keepdim);
    }
    x.convert(dtype.opmath()).sum(dims, keepdim).convert(dtype)
}

fn mean<'b>(x: V<'b>, dims: &[i64], keepdim: bool, dtype: Option<DType>) -> Out<'b> {
    let out = dtype.unwrap_or(x.dtype());
    ensure!(
        out.is_inexact(),
        NotImplemented,
        "mean(): could not infer output dtype. {} dtype must be either a floating point or \
         complex dtype. Got: {}",
        if dtype.is_some() { "Optional" } else { "Input" },
        out.scalar_type_name()
    );
    let total = x.convert(out).convert(out.opmath()).sum(dims, keepdim);
    divide_by_count(total, count(x, dims)).convert(out).out()
}

fn prod<'b>(x: V<'b>, dims: &[i64], keepdim: bool, dtype: Option<DType>) -> Out<'b> {
    let dtype = dtype.unwrap_or(accumulated(x.dtype()));
    let x = x.convert(dtype);
    if dtype.is_bool() {
        return x.reduce(ReduceKind::And, dims, keepdim).out();
    }
    x.convert(dtype.opmath()).reduce(ReduceKind::Prod, dims, keepdim).convert(dtype).out()
}

fn truth<'b>(x: V<'b>, kind: ReduceKind, dims: &[i64], keepdim: bool) -> Out<'b> {
    let out = if x.dtype() == DType::U8 { DType::U8 } else { DType::Bool };
    x.convert(DType::Bool).reduce(kind, dims, keepdim).convert(out).out()
}

fn count_nonzero<'b>(x: V<'b>, dims: &[i64]) -> V<'b> {
    x.convert(DType::Bool).convert(DType::I64).sum(dims, false)
}

/// An extreme has no value over nothing.
pub(super) fn check_not_empty(op: &str, x: V<'_>, dims: &[i64]) -> Result<()> {
    for &d in dims {
        ensure!(
            x.size(d as usize) != 0,
            Index,
            "{op}(): Expected reduction dim {d} to have non-zero size."
        );
    }
    Ok(())
}

fn check_whole_not_empty(op: &str, x: V<'_>) -> Result<()> {
    ensure!(
        x.numel() != 0,
        "{op}(): Expected reduction dim to be specified for input.numel() == 0. Specify the \
         reduction dim with the 'dim' argument."
    );
    Ok(())
}

/// The largest or smallest element over `dims`; NaN if there is one.
fn extreme<'b>(op: &str, x: V<'b>, max: bool, dims: &[i64], keepdim: bool) -> Result<V<'b>> {
    let dtype = x.dtype();
    if dtype.is_complex() {
        return Err(unsupported(op, dtype));
    }
    let kind = match (dtype.is_bool(), max) {
        (true, true) => ReduceKind::Or,
        (true, false) => ReduceKind::And,
        (false, true) => ReduceKind::Max,
        (false, false) => ReduceKind::Min,
    };
    Ok(x.convert(dtype.opmath()).reduce(kind, dims, keepdim).convert(dtype))
}

/// The extreme along one dimension and where it is first found. A scalar is its own.
fn extreme_at<'b>(
    op: &str,
    x: V<'b>,
    max: bool,
    dim: usize,
    keepdim: bool,
) -> Result<(V<'b>, V<'b>)> {
    let dtype = x.dtype();
    if dtype.is_complex() {
        return Err(unsupported(op, dtype));
    }
    if x.rank() == 0 {
        return Ok((x, x.b.full(0i64, DType::I64, &[])));
    }
    let ordered = if dtype.is_bool() { DType::U8 } else { dtype.opmath() };
    let (value, index) = x.convert(ordered).arg_reduce(max, dim, keepdim);
    Ok((value.convert(dtype), index))
}

fn amax<'b>(a: &Args<'b>, op: &str, is_max: bool) -> Out<'b> {
    let x = a.t(0)?;
    let dims = a.dims(1, x.rank())?;
    if a.opt_ints(1)?.unwrap_or_default().is_empty() {
        check_whole_not_empty(op, x)?;
    } else {
        check_not_empty(op, x, &dims)?;
    }
    extreme(op, x, is_max, &dims, a.bool(2)?)?.out()
}

fn max<'b>(a: &Args<'b>, op: &str, is_max: bool) -> Out<'b> {
    let x = a.t(0)?;
    check_whole_not_empty(op, x)?;
    extreme(op, x, is_max, &x.all_dims(), false)?.out()
}

fn max_dim<'b>(a: &Args<'b>, op: &str, is_max: bool) -> Out<'b> {
    let x = a.t(0)?;
    let dims = one_dim(a, 1, x)?;
    check_not_empty(op, x, &dims)?;
    let (value, index) = extreme_at(op, x, is_max, a.dim(1, x.rank())?, a.bool(2)?)?;
    outs([value, index])
}

fn aminmax<'b>(a: &Args<'b>) -> Out<'b> {
    let x = a.t(0)?;
    let keepdim = a.bool(2)?;
    let dims = if a.is_none(1) {
        ensure!(
            x.numel() != 0,
            "aminmax(): cannot compute aminmax over an empty dimension as the operation has no \
             identity."
        );
        x.all_dims()
    } else {
        let dims = one_dim(a, 1, x)?;
        check_not_empty("aminmax", x, &dims)?;
        dims
    };
    outs([
        extreme("aminmax", x, false, &dims, keepdim)?,
        extreme("aminmax", x, true, &dims, keepdim)?,
    ])
}

fn argmax<'b>(a: &Args<'b>, op: &str, is_max: bool) -> Out<'b> {
    let x = a.t(0)?;
    let keepdim = a.bool(2)?;
    if x.dtype().is_bool() {
        return Err(unsupported(op, DType::Bool));
    }
    if !a.is_none(1) {
        check_not_empty(op, x, &one_dim(a, 1, x)?)?;
        return extreme_at(op, x, is_max, a.dim(1, x.rank())?, keepdim)?.1.out();
    }
    ensure!(
        x.numel() != 0,
        Index,
        "{op}(): Expected reduction dim to be specified for input.numel() == 0."
    );
    let (_, index) = extreme_at(op, x.flatten(), is_max, 0, false)?;
    let kept = Shape::from_elem(1, if keepdim { x.rank() } else { 0 });
    index.reshape(&kept).out()
}

/// The element of each line along `dim` whose position is `position` (sizes 1 along `dim`,
/// within range). `keepdim` is the caller's business: the dimension disappears.
pub(super) fn pick<'b>(x: V<'b>, dim: usize, position: V<'b>) -> V<'b> {
    let here = x.b.iota(DType::I64, &x.sizes(), dim).eq(position.convert(DType::I64));
    let dtype = x.dtype();
    let kind = if dtype.is_bool() { ReduceKind::Or } else { ReduceKind::Sum };
    let zero = Number::Int(0).cast(dtype);
    // One summand is not zero, so the sum is exact.
    here.select(x, zero).convert(dtype.opmath()).reduce(kind, &[dim as i64], false).convert(dtype)
}
