//! Softmax and its logarithm, forward and backward.

use super::reduce::unsupported;
use super::{Args, Out, Registry};
use crate::ensure;
use crate::error::Result;
use crate::ir::{DType, ReduceKind, Shape, V};

pub(super) fn register(r: &mut Registry) {
    r.op("aten::_softmax", |a| forward(a, "softmax", softmax));
    r.op("aten::_log_softmax", |a| forward(a, "log_softmax", log_softmax));
    r.op("aten::_safe_softmax", safe_softmax);
    r.op("aten::_softmax_backward_data", |a| {
        backward(a, |grad, y, dims| (grad - (grad * y).sum(dims, true)) * y)
    });
    r.op("aten::_log_softmax_backward_data", |a| {
        backward(a, |grad, y, dims| grad - y.exp() * grad.sum(dims, true))
    });
}

/// The dimension as a list; a scalar is the softmax of one element.
fn dims(a: &Args<'_>, i: usize, x: V<'_>) -> Result<Shape> {
    super::reduce::one_dim(a, i, x)
}

fn softmax<'b>(x: V<'b>, dims: &[i64]) -> V<'b> {
    let e = (x - x.reduce(ReduceKind::Max, dims, true)).exp();
    e / e.sum(dims, true)
}

fn log_softmax<'b>(x: V<'b>, dims: &[i64]) -> V<'b> {
    let shifted = x - x.reduce(ReduceKind::Max, dims, true);
    shifted - shifted.exp().sum(dims, true).log()
}

fn forward<'b>(a: &Args<'b>, op: &str, f: impl FnOnce(V<'b>, &[i64]) -> V<'b>) -> Out<'b> {
    let x = a.t(0)?;
    let dtype = x.dtype();
    if !dtype.is_float() {
        return Err(unsupported(op, dtype));
    }
    let half_to_float = a.bool(2)?;
    ensure!(
        !half_to_float || dtype.opmath() != dtype,
        "{op}: conversion is supported for Half and BFloat16 types only, but got {}",
        dtype.scalar_type_name()
    );
    let out = if half_to_float { DType::F32 } else { dtype };
    f(x.convert(dtype.opmath()), &dims(a, 1, x)?).convert(out).out()
}

fn backward<'b>(a: &Args<'b>, f: impl FnOnce(V<'b>, V<'b>, &[i64]) -> V<'b>) -> Out<'b> {
    let (grad, y) = (a.t(0)?, a.t(1)?);
    ensure!(
        grad.sizes() == y.sizes(),
        "softmax_backward: expected grad_output and output of one shape, but got {:?} and {:?}",
        &grad.sizes()[..],
        &y.sizes()[..]
    );
    let dims = dims(a, 2, y)?;
    let input = a.opt_dtype(3)?.unwrap_or(y.dtype());
    let compute = y.dtype().opmath();
    f(grad.convert(compute), y.convert(compute), &dims).convert(input).out()
}

/// Rows that are −inf throughout (all masked) become zero instead of NaN.
fn safe_softmax<'b>(a: &Args<'b>) -> Out<'b> {
    let x = a.t(0)?;
    let dtype = a.opt_dtype(2)?.unwrap_or(x.dtype());
    if !dtype.is_float() || x.dtype().is_complex() {
        return Err(unsupported("softmax", dtype));
    }
    let dims = dims(a, 1, x)?;
    let x = x.convert(dtype).convert(dtype.opmath());
    let masked = x.eq(f64::NEG_INFINITY).reduce(ReduceKind::And, &dims, true);
    let y = softmax(x, &dims);
    masked.select(y.full_like(0.0), y).convert(dtype).out()
}
