//! Variance, standard deviation and log-sum-exp.

use super::reduce::{count, divide_by_count, unsupported};
use super::{Args, Out, Registry, outs};
use crate::ensure;
use crate::error::Result;
use crate::ir::{DType, ReduceKind, V};

pub(super) fn register(r: &mut Registry) {
    r.op("aten::var.correction", |a| variance(a, false)?.0.out());
    r.op("aten::std.correction", |a| variance(a, true)?.0.out());
    r.op("aten::var_mean.correction", |a| variance(a, false).and_then(|(v, m)| outs([v, m])));
    r.op("aten::std_mean.correction", |a| variance(a, true).and_then(|(v, m)| outs([v, m])));
    r.op("aten::logsumexp", logsumexp);
}

/// |x|², real.
pub(super) fn square(x: V<'_>) -> V<'_> {
    if x.dtype().is_complex() {
        let (re, im) = (x.real(), x.imag());
        re * re + im * im
    } else {
        x * x
    }
}

/// Mean over `dims` (kept), and the sum of the squared distances from it.
pub(super) fn moments<'b>(x: V<'b>, dims: &[i64], keepdim: bool) -> (V<'b>, V<'b>) {
    let mean = divide_by_count(x.sum(dims, true), count(x, dims));
    (mean, square(x - mean).sum(dims, keepdim))
}

/// (variance or its root, mean), by two passes.
fn variance<'b>(a: &Args<'b>, root: bool) -> Result<(V<'b>, V<'b>)> {
    let x = a.t(0)?;
    let dtype = x.dtype();
    ensure!(
        dtype.is_inexact(),
        NotImplemented,
        "std and var only support floating point and complex dtypes"
    );
    let dims = a.dims(1, x.rank())?;
    let keepdim = a.bool(3)?;
    let x = x.convert(dtype.opmath());
    let n = count(x, &dims) as f64;
    let (mean, squares) = moments(x, &dims, keepdim);
    // f64, so that a large count stays exact.
    let degrees = match a.opt_num(2)? {
        None => a.b.full((n - 1.0).max(0.0), DType::F64, &[]),
        Some(correction) => (n - correction.to(DType::F64)).max(0.0),
    };
    let var = squares / degrees.convert(squares.dtype());
    let spread = if root { var.sqrt() } else { var };
    let mean = mean.reshape(&spread.sizes());
    Ok((spread.convert(dtype.real()), mean.convert(dtype)))
}

fn logsumexp<'b>(a: &Args<'b>) -> Out<'b> {
    let x = a.t(0)?;
    let dtype = if x.dtype().is_integral() { DType::F32 } else { x.dtype() };
    if dtype.is_complex() {
        return Err(unsupported("logsumexp", dtype));
    }
    let dims = a.dims(1, x.rank())?;
    let x = x.convert(dtype).convert(dtype.opmath());
    let top = x.reduce(ReduceKind::Max, &dims, true);
    // An infinite maximum would make NaN of itself.
    let shift = top.is_inf().select(top.full_like(0.0), top);
    let sum = (x - shift).exp().sum(&dims, a.bool(2)?);
    (sum.log() + shift.reshape(&sum.sizes())).convert(dtype).out()
}
