//! Vector norms and distances.

use super::reduce::{count, unsupported};
use super::statistics::square;
use super::{Args, Out, Registry};
use crate::ensure;
use crate::error::{Error, Result};
use crate::ir::types::broadcast_shapes;
use crate::ir::{DType, Number, ReduceKind, Shape, V};

pub(super) fn register(r: &mut Registry) {
    r.op("aten::linalg_vector_norm", |a| {
        let x = a.t(0)?;
        norm(x, a.pinned(1)?.to_f64(), &a.dims(2, x.rank())?, a.bool(3)?, a.opt_dtype(4)?)
    });
    r.op("aten::norm.Scalar", |a| {
        let x = a.t(0)?;
        norm(x, order(a, 1)?, &x.all_dims(), false, None)
    });
    r.op("aten::norm.ScalarOpt_dtype", |a| {
        let x = a.t(0)?;
        norm(x, order(a, 1)?, &x.all_dims(), false, a.opt_dtype(2)?)
    });
    r.op("aten::norm.ScalarOpt_dim", |a| {
        let x = a.t(0)?;
        norm(x, order(a, 1)?, &a.dims(2, x.rank())?, a.bool(3)?, None)
    });
    r.op("aten::norm.ScalarOpt_dim_dtype", |a| {
        let x = a.t(0)?;
        norm(x, order(a, 1)?, &a.dims(2, x.rank())?, a.bool(3)?, a.opt_dtype(4)?)
    });
    r.op("aten::renorm", renorm);
    r.op("aten::_cdist_forward", cdist);
    r.op("aten::_cdist_backward", cdist_backward);
}

/// The order of a norm decides what is computed, so it is part of the graph.
fn order(a: &Args<'_>, i: usize) -> Result<f64> {
    if a.is_none(i) { Ok(2.0) } else { Ok(a.pinned(i)?.to_f64()) }
}

fn norm<'b>(x: V<'b>, p: f64, dims: &[i64], keepdim: bool, dtype: Option<DType>) -> Out<'b> {
    ensure!(
        x.dtype().is_inexact(),
        NotImplemented,
        "linalg.vector_norm: Expected a floating point or complex tensor as input. Got {}",
        x.dtype().scalar_type_name()
    );
    let dtype = dtype.unwrap_or(x.dtype());
    ensure!(
        dtype.is_complex() == x.dtype().is_complex() && dtype.is_inexact(),
        "linalg.vector_norm: dtype should be {} for an input of dtype {}. Got {dtype}",
        if x.dtype().is_complex() { "complex" } else { "floating point" },
        x.dtype()
    );
    vector_norm(x.convert(dtype.opmath()), p, dims, keepdim)?.convert(dtype.real()).out()
}

/// (Σ |x|ᵖ)^(1/p) over `dims`, real.
fn vector_norm<'b>(x: V<'b>, p: f64, dims: &[i64], keepdim: bool) -> Result<V<'b>> {
    let n = count(x, dims);
    if p < 0.0 || p == f64::INFINITY {
        let shown = if p.is_infinite() { p.to_string() } else { format!("{p:?}") };
        ensure!(
            n != 0,
            "linalg.vector_norm cannot compute the {shown} norm on an empty tensor because the \
             operation does not have an identity"
        );
    }
    let real = x.dtype().real();
    if p == 0.0 {
        return Ok(x.convert(DType::Bool).convert(real).sum(dims, keepdim));
    }
    if n == 1 {
        return Ok(x.abs().reduce(ReduceKind::Sum, dims, keepdim));
    }
    Ok(if p == 1.0 {
        x.abs().sum(dims, keepdim)
    } else if p == 2.0 {
        square(x).sum(dims, keepdim).sqrt()
    } else if p == f64::INFINITY {
        x.abs().reduce(ReduceKind::Max, dims, keepdim)
    } else if p == f64::NEG_INFINITY {
        x.abs().reduce(ReduceKind::Min, dims, keepdim)
    } else {
        x.abs().pow(p).sum(dims, keepdim).pow(1.0 / p)
    })
}

fn renorm<'b>(a: &Args<'b>) -> Out<'b> {
    let x = a.t(0)?;
    let dtype = x.dtype();
    let p = a.pinned(1)?.to_f64();
    let positive = p > 0.0;
    ensure!(positive, "renorm: non-positive-norm not supported");
    ensure!(x.rank() > 1, "renorm: input needs at least 2 dimensions, got {} dimensions", x.rank());
    if !dtype.is_inexact() {
        return Err(unsupported("renorm", dtype));
    }
    let dim = a.dim(2, x.rank())? as i64;
    let others: Shape = (0..x.rank() as i64).filter(|&d| d != dim).collect();
    let x = x.convert(dtype.opmath());
    let norm = vector_norm(x, p, &others, true)?;
    let limit = a.num(3)?.to(norm.dtype());
    let factor = norm.gt(limit).select(limit / (norm + 1e-7), 1.0);
    (x * factor.convert(x.dtype())).convert(dtype).out()
}

/// x1 `[…, n, d]` and x2 `[…, m, d]` in their common batch.
fn pairs<'b>(x: V<'b>, y: V<'b>) -> Result<(V<'b>, V<'b>)> {
    let (xs, ys) = (x.sizes(), y.sizes());
    ensure!(xs.len() >= 2, "cdist only supports at least 2D tensors, X1 got: {}D", xs.len());
    ensure!(ys.len() >= 2, "cdist only supports at least 2D tensors, X2 got: {}D", ys.len());
    let (xb, yb) = (xs.len() - 2, ys.len() - 2);
    ensure!(
        xs[xb + 1] == ys[yb + 1],
        "X1 and X2 must have the same number of columns. X1: {} X2: {}",
        xs[xb + 1],
        ys[yb + 1]
    );
    let dtype = x.dtype();
    if !matches!(dtype, DType::F32 | DType::F64) || y.dtype() != dtype {
        return Err(unsupported("cdist", dtype));
    }
    let batch = broadcast_shapes(&xs[..xb], &ys[..yb]).map_err(Error::runtime)?;
    let full =
        |own: &Shape, n: usize| -> Shape { batch.iter().chain(&own[n..]).copied().collect() };
    Ok((x.broadcast_to(&full(&xs, xb)), y.broadcast_to(&full(&ys, yb))))
}

/// Every row of x minus every row of y: `[…, n, m, d]`.
fn differences<'b>(x: V<'b>, y: V<'b>) -> V<'b> {
    let at = x.rank();
    x.unsqueeze(at - 1) - y.unsqueeze(at - 2)
}

fn cdist<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, y) = pairs(a.t(0)?, a.t(1)?)?;
    let p = a.pinned(2)?.to_f64();
    let accepted = p >= 0.0;
    ensure!(accepted, "cdist only supports non-negative p values");
    let rank = x.rank();
    let last = [rank as i64 - 1];
    // As PyTorch does it: from 25 rows on by a matrix product, unless told not to (mode 2).
    let many = x.size(rank - 2) > 25 || y.size(rank - 2) > 25;
    let mode = a.opt_int(3)?.unwrap_or(0);
    if p == 2.0 && (mode == 1 || (mode == 0 && many)) {
        let norms = |v: V<'b>| (v * v).sum(&last, true);
        let squared = norms(x) + norms(y).t() - x.bmm(y.t()) * 2.0;
        return squared.max(0.0).sqrt().out();
    }
    let difference = differences(x, y);
    vector_norm(difference, p, &[rank as i64], false)?.out()
}

fn cdist_backward<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, y) = pairs(a.t(1)?, a.t(2)?)?;
    let p = a.pinned(3)?.to_f64();
    let rank = x.rank();
    if p == 0.0 {
        return x.full_like(0.0).out();
    }
    let difference = differences(x, y);
    let (grad, distance) = (a.t(0)?.unsqueeze(rank), a.t(4)?.unsqueeze(rank));
    let zero = Number::float(0.0);
    let each = if p == 1.0 {
        grad * difference.sign()
    } else if p == f64::INFINITY {
        let reached = difference.abs().eq(distance);
        reached.select(grad * difference.sign(), zero)
    } else {
        let power = if p == 2.0 {
            difference / distance
        } else {
            difference.sign() * difference.abs().pow(p - 1.0) / distance.pow(p - 1.0)
        };
        let flat = distance.eq(zero);
        let flat = if p < 1.0 {
            let (d, still) = flat.broadcast_with(difference.eq(zero));
            d.or(still)
        } else {
            flat
        };
        let slope = flat.select(power.full_like(0.0), power);
        grad * slope
    };
    each.sum(&[rank as i64 - 1], false).out()
}
