//! Cumulative functions along a dimension.

use super::reduce::{accumulated, unsupported};
use super::sort::at_least_1d;
use super::{Args, Out, Registry, outs};
use crate::ir::{DType, ReduceKind, V};

pub(super) fn register(r: &mut Registry) {
    r.op("aten::cumsum", |a| scan(a, "cumsum", ReduceKind::Sum));
    r.op("aten::cumprod", |a| scan(a, "cumprod", ReduceKind::Prod));
    r.op("aten::cummax", |a| extreme(a, "cummax", true));
    r.op("aten::cummin", |a| extreme(a, "cummin", false));
    r.op("aten::_logcumsumexp", logcumsumexp);
}

fn scan<'b>(a: &Args<'b>, op: &str, kind: ReduceKind) -> Out<'b> {
    let x = a.t(0)?;
    let dim = a.dim(1, x.rank())?;
    let dtype = a.opt_dtype(2)?.unwrap_or(accumulated(x.dtype()));
    if dtype.is_bool() {
        return Err(unsupported(op, dtype));
    }
    let x = x.convert(dtype);
    if x.rank() == 0 || x.numel() == 0 {
        return x.out();
    }
    x.convert(dtype.opmath()).cumulative(kind, dim).convert(dtype).out()
}

/// The running extreme and where it was last reached; NaN stays once it came.
fn extreme<'b>(a: &Args<'b>, op: &str, max: bool) -> Out<'b> {
    let x = a.t(0)?;
    let dim = a.dim(1, x.rank())?;
    let dtype = x.dtype();
    if dtype.is_complex() {
        return Err(unsupported(op, dtype));
    }
    if x.rank() == 0 || x.numel() == 0 {
        return outs([x, a.b.full(0i64, DType::I64, &x.sizes())]);
    }
    let ordered = if dtype.is_bool() { DType::U8 } else { dtype.opmath() };
    let x = x.convert(ordered);
    let kind = if max { ReduceKind::Max } else { ReduceKind::Min };
    let values = x.cumulative(kind, dim);
    // Windows of XLA:CPU drop NaN from an extreme, so where it came is scanned apart.
    let values = if ordered.is_float() {
        let seen = x.is_nan().convert(DType::I32).cumulative(ReduceKind::Max, dim);
        seen.ne(0i64).select(x.full_like(f64::NAN), values)
    } else {
        values
    };
    let reached = x.eq(values);
    let reached = if ordered.is_float() { reached.or(x.is_nan()) } else { reached };
    let position = a.b.iota(DType::I64, &x.sizes(), dim);
    let indices = reached.select(position, 0i64).cumulative(ReduceKind::Max, dim);
    outs([values.convert(dtype), indices])
}

/// log(eˣ + eʸ)
fn log_add_exp<'b>(x: V<'b>, y: V<'b>) -> V<'b> {
    let top = x.max(y);
    // Equal infinities have no difference to speak of; NaN passes through `top`.
    let gap = x.eq(y).select(top.full_like(0.0), (x - y).abs());
    top + (-gap).exp().log1p()
}

fn logcumsumexp<'b>(a: &Args<'b>) -> Out<'b> {
    let x = a.t(0)?;
    let dim = a.dim(1, x.rank())?;
    let dtype = x.dtype();
    if !dtype.is_float() {
        return Err(unsupported("logcumsumexp", dtype));
    }
    let (x, restore) = at_least_1d(x.convert(dtype.opmath()));
    // Log-depth scan: after step k each element covers the 2ᵏ ones up to it.
    let n = x.size(dim);
    let mut y = x;
    let mut reach = 1;
    while reach < n {
        let earlier = y.slice(dim, 0, n - reach, 1).pad_dim(f64::NEG_INFINITY, dim, reach, 0);
        y = log_add_exp(y, earlier);
        reach *= 2;
    }
    restore(y).convert(dtype).out()
}
