//! Activation functions and their gradients.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

use super::compare::saturate;
use super::elementwise::{FLOAT, INEXACT, REAL, map, map_as, only};
use super::unary::conj;
use super::{Args, Registry, outs};
use crate::ensure;
use crate::error::{Error, Result};
use crate::ir::V;

pub(super) fn register(r: &mut Registry) {
    rectifiers(r);
    exponentials(r);
    sigmoids(r);
    hard(r);
    gated(r);
}

fn rectifiers(r: &mut Registry) {
    r.op("aten::relu", |a| map(a, "relu", REAL, &[0], |x| x[0].max(0i64)));
    r.op("aten::threshold", |a| {
        let (threshold, value) = (a.num(1)?, a.num(2)?);
        map(a, "threshold_cpu", REAL, &[0], |x| {
            let (x, dtype) = (x[0], x[0].dtype());
            x.le(threshold.to(dtype)).select(value.to(dtype), x)
        })
    });
    r.op("aten::threshold_backward", |a| {
        let threshold = a.num(2)?;
        map(a, "threshold_cpu", REAL, &[0, 1], |x| {
            let (grad, x) = (x[0], x[1]);
            x.le(threshold.to(x.dtype())).select(grad.full_like(0i64), grad)
        })
    });
    r.op("aten::leaky_relu", |a| {
        let slope = a.num(1)?;
        map(a, "leaky_relu_cpu", FLOAT, &[0], |x| {
            let x = x[0];
            x.gt(0.0).select(x, x * slope.to(x.dtype()))
        })
    });
    r.op("aten::leaky_relu_backward", |a| {
        // The sign of the result is that of the operand, so it doesn't matter which one is given.
        let slope = a.num(2)?;
        map(a, "leaky_relu_backward_cpu", FLOAT, &[0, 1], |x| {
            let (grad, x) = (x[0], x[1]);
            x.gt(0.0).select(grad, grad * slope.to(x.dtype()))
        })
    });
    r.op("aten::_prelu_kernel", |a| {
        map(a, "prelu_cpu", FLOAT, &[0, 1], |x| {
            let (x, weight) = (x[0], x[1]);
            x.gt(0.0).select(x, weight * x)
        })
    });
    r.op("aten::_prelu_kernel_backward", |a| {
        let dtype = a.result_type(&[0, 1, 2])?;
        only("prelu_backward_cpu", dtype, FLOAT)?;
        let compute = dtype.opmath();
        let (grad, x, weight) = (a.to(0, compute)?, a.to(1, compute)?, a.to(2, compute)?);
        let positive = x.gt(0.0);
        let to_input = positive.select(grad, weight * grad);
        let to_weight = positive.select(x.full_like(0.0), x * grad);
        outs([to_input.convert(dtype), to_weight.convert(dtype)])
    });
}

fn exponentials(r: &mut Registry) {
    r.op("aten::elu", |a| {
        let (alpha, scale, rate) = (a.num(1)?, a.num(2)?, a.num(3)?);
        map(a, "elu_cpu", FLOAT, &[0], |x| {
            let (x, dtype) = (x[0], x[0].dtype());
            let scale = scale.to(dtype);
            let low = (x * rate.to(dtype)).expm1() * (alpha.to(dtype) * scale);
            x.lt(0.0).select(low, x * scale)
        })
    });
    r.op("aten::elu_backward", |a| {
        let (alpha, scale, rate) = (a.num(1)?, a.num(2)?, a.num(3)?);
        let of_result = a.bool(4)?;
        ensure!(
            !of_result || alpha.value.to_f64() >= 0.0,
            "In-place elu backward calculation is triggered with a negative slope which is not \
             supported. This is caused by calling in-place forward function with a negative slope, \
             please call out-of-place version instead."
        );
        map(a, "elu_backward_cpu", FLOAT, &[0, 5], |x| {
            let (grad, x, dtype) = (x[0], x[1], x[0].dtype());
            let (scale, rate) = (scale.to(dtype), rate.to(dtype));
            let low = alpha.to(dtype) * scale;
            let slope = if of_result { x + low } else { low * (x * rate).exp() };
            x.le(0.0).select(grad * rate * slope, grad * scale)
        })
    });
    r.op("aten::softplus", |a| {
        let (beta, threshold) = (a.num(1)?, a.num(2)?);
        map(a, "softplus_cpu", FLOAT, &[0], |x| {
            let (x, dtype) = (x[0], x[0].dtype());
            let beta = beta.to(dtype);
            let y = x * beta;
            y.gt(threshold.to(dtype)).select(x, y.exp().log1p() / beta)
        })
    });
    r.op("aten::softplus_backward", |a| {
        let (beta, threshold) = (a.num(2)?, a.num(3)?);
        map(a, "softplus_backward_cpu", FLOAT, &[0, 1], |x| {
            let (grad, x, dtype) = (x[0], x[1], x[0].dtype());
            let y = x * beta.to(dtype);
            y.gt(threshold.to(dtype)).select(grad, grad * y.logistic())
        })
    });
    r.op("aten::log_sigmoid_forward", |a| {
        let dtype = a.result_type(&[0])?;
        only("log_sigmoid_cpu", dtype, FLOAT)?;
        let y = log_sigmoid(a.to(0, dtype.opmath())?).convert(dtype);
        // The second return holds exp(−|x|) on the CPU; here the gradient recomputes it.
        outs([y, a.b.full(0.0, dtype, &[0])])
    });
    r.op("aten::log_sigmoid_backward", |a| {
        map(a, "log_sigmoid_backward_cpu", FLOAT, &[0, 1], |x| x[0] * (-x[1]).logistic())
    });
    r.op("aten::mish", |a| map(a, "mish_cpu", FLOAT, &[0], |x| x[0] * softplus(x[0]).tanh()));
    r.op("aten::mish_backward", |a| {
        map(a, "mish_backward_cpu", FLOAT, &[0, 1], |x| {
            let (grad, x) = (x[0], x[1]);
            let t = softplus(x).tanh();
            grad * (t + x * x.logistic() * (1.0 - t * t))
        })
    });
}

/// log(1 / (1 + e⁻ˣ))
pub(super) fn log_sigmoid(x: V<'_>) -> V<'_> {
    x.min(0.0) - (-x.abs()).exp().log1p()
}

/// log(1 + eˣ)
fn softplus(x: V<'_>) -> V<'_> {
    x.max(0.0) + (-x.abs()).exp().log1p()
}

fn sigmoids(r: &mut Registry) {
    r.op("aten::sigmoid_backward", |a| {
        map(a, "sigmoid_backward_cpu", INEXACT, &[0, 1], |x| {
            let (grad, y) = (x[0], x[1]);
            grad * conj((1.0 - y) * y)
        })
    });
    r.op("aten::tanh_backward", |a| {
        map(a, "tanh_backward_cpu", INEXACT, &[0, 1], |x| {
            let (grad, y) = (x[0], x[1]);
            grad * conj(1.0 - y * y)
        })
    });
    r.op("aten::silu", |a| map(a, "silu_cpu", INEXACT, &[0], |x| x[0] * x[0].logistic()));
    r.op("aten::silu_backward", |a| {
        map(a, "silu_backward_cpu", INEXACT, &[0, 1], |x| {
            let (grad, x) = (x[0], x[1]);
            let s = x.logistic();
            grad * (s * (1.0 + x * (1.0 - s)))
        })
    });
    r.op("aten::gelu", |a| {
        let tanh = by_tanh(a, 1)?;
        map(a, "GeluKernelImpl", FLOAT, &[0], |x| {
            let x = x[0];
            if tanh { 0.5 * x * (1.0 + gelu_inner(x).tanh()) } else { x * normal_cdf(x) }
        })
    });
    r.op("aten::gelu_backward", |a| {
        let tanh = by_tanh(a, 2)?;
        map(a, "GeluBackwardKernelImpl", FLOAT, &[0, 1], |x| {
            let (grad, x) = (x[0], x[1]);
            if !tanh {
                let pdf = (x * x * -0.5).exp() * (0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
                return grad * (normal_cdf(x) + x * pdf);
            }
            let t = gelu_inner(x).tanh();
            let slope = SQRT_2 * FRAC_2_SQRT_PI * 0.5 * (1.0 + x * x * (3.0 * GELU_CUBIC));
            grad * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope)
        })
    });
}

fn by_tanh(a: &Args<'_>, position: usize) -> Result<bool> {
    match a.str(position)? {
        "none" => Ok(false),
        "tanh" => Ok(true),
        other => Err(Error::runtime(format!(
            "approximate argument must be either none or tanh, but got '{other}'"
        ))),
    }
}

/// Probability that a standard normal value is below x.
fn normal_cdf(x: V<'_>) -> V<'_> {
    0.5 * (1.0 + (x * FRAC_1_SQRT_2).erf())
}

/// The cubic coefficient of GELU's tanh approximation (Hendrycks and Gimpel, 2016).
const GELU_CUBIC: f64 = 0.044715;

fn gelu_inner(x: V<'_>) -> V<'_> {
    SQRT_2 * FRAC_2_SQRT_PI * 0.5 * (x + GELU_CUBIC * x * x * x)
}

fn hard(r: &mut Registry) {
    r.op("aten::hardtanh", |a| {
        let (low, high) = (a.num(1)?, a.num(2)?);
        ensure!(
            !a.result_type(&[0])?.is_bool(),
            NotImplemented,
            "Bool inputs not supported for hardtanh"
        );
        map(a, "hardtanh", REAL, &[0], |x| {
            let (x, dtype) = (x[0], x[0].dtype());
            x.max(saturate(low, dtype)).min(saturate(high, dtype))
        })
    });
    r.op("aten::hardtanh_backward", |a| {
        let (low, high) = (a.num(2)?, a.num(3)?);
        map(a, "hardtanh_backward_cpu", FLOAT, &[0, 1], |x| {
            let (grad, x, dtype) = (x[0], x[1], x[0].dtype());
            let flat = x.le(low.to(dtype)).or(x.ge(high.to(dtype)));
            flat.select(grad.full_like(0.0), grad)
        })
    });
    r.op("aten::hardsigmoid", |a| {
        map(a, "hardsigmoid_cpu", FLOAT, &[0], |x| (x[0] + 3.0).max(0.0).min(6.0) / 6.0)
    });
    r.op("aten::hardsigmoid_backward", |a| {
        map(a, "hardsigmoid_backward", FLOAT, &[0, 1], |x| {
            let (grad, x) = (x[0], x[1]);
            x.gt(-3.0).and(x.lt(3.0)).select(grad / 6.0, 0.0)
        })
    });
    r.op("aten::hardswish", |a| {
        map(a, "hardswish_cpu", FLOAT, &[0], |x| x[0] * (x[0] + 3.0).max(0.0).min(6.0) / 6.0)
    });
    r.op("aten::hardswish_backward", |a| {
        map(a, "hardswish_backward_cpu", FLOAT, &[0, 1], |x| {
            let (grad, x) = (x[0], x[1]);
            let middle = x.lt(3.0).select(grad * (x / 3.0 + 0.5), grad);
            x.le(-3.0).select(grad.full_like(0.0), middle)
        })
    });
    r.op("aten::hardshrink", |a| {
        let lambda = a.num(1)?;
        map(a, "hardshrink_cpu", FLOAT, &[0], |x| {
            let (x, l) = (x[0], lambda.to(x[0].dtype()));
            x.ge(-l).and(x.le(l)).select(x.full_like(0.0), x)
        })
    });
    r.op("aten::softshrink", |a| {
        let lambda = a.num(1)?;
        let valid = lambda.value.to_f64() >= 0.0;
        ensure!(valid, "lambda must be greater or equal to 0, but found to be {}.", lambda.value);
        map(a, "softshrink_cpu", FLOAT, &[0], |x| {
            let (x, l) = (x[0], lambda.to(x[0].dtype()));
            // x · 0 and not 0: NaN stays.
            x.gt(l).select(x - l, x.lt(-l).select(x + l, x * 0.0))
        })
    });
    for name in ["aten::hardshrink_backward", "aten::softshrink_backward"] {
        r.op(name, |a| {
            let lambda = a.num(2)?;
            map(a, "shrink_backward_cpu", FLOAT, &[0, 1], |x| {
                let (grad, x, l) = (x[0], x[1], lambda.to(x[0].dtype()));
                x.ge(-l).and(x.le(l)).select(grad.full_like(0.0), grad)
            })
        });
    }
}

fn gated(r: &mut Registry) {
    r.op("aten::glu", |a| {
        let dim = glu_dim(a, 0, 1)?;
        let dtype = a.result_type(&[0])?;
        map_as(a, &[0], dtype, |x| {
            let (value, gate) = halves(x[0], dim);
            value * gate.logistic()
        })
    });
    r.op("aten::glu_backward", |a| {
        let dim = glu_dim(a, 1, 2)?;
        let dtype = a.result_type(&[1])?;
        map_as(a, &[0, 1], dtype, |x| {
            let (value, gate) = halves(x[1], dim);
            let s = gate.logistic();
            let to_value = x[0] * s;
            let to_gate = x[0] * value * s * (1.0 - s);
            a.b.concat(&[to_value, to_gate], dim)
        })
    });
}

/// The dimension that a GLU splits, of the operand at `position`.
fn glu_dim(a: &Args<'_>, position: usize, dim: usize) -> Result<usize> {
    let x = a.t(position)?;
    only("glu_cpu", x.dtype(), FLOAT)?;
    ensure!(x.rank() > 0, "glu does not support 0-dimensional tensors");
    let dim = a.dim(dim, x.rank())?;
    let n = x.size(dim);
    ensure!(n % 2 == 0, "Halving dimension must be even, but dimension {dim} is size {n}");
    Ok(dim)
}

fn halves(x: V<'_>, dim: usize) -> (V<'_>, V<'_>) {
    let n = x.size(dim);
    (x.slice(dim, 0, n / 2, 1), x.slice(dim, n / 2, n, 1))
}
