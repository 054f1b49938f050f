//! Normalisation of each channel over a batch, and its running statistics.

use super::args::opt_outs;
use super::norm::{check_float, input_gradient};
use super::reduce::count;
use super::statistics::moments;
use super::{Args, Out, Outputs, Registry};
use crate::ensure;
use crate::error::Result;
use crate::ir::{DType, Shape, V};

pub(super) fn register(r: &mut Registry) {
    // input, weight, bias, running_mean, running_var, training, momentum, eps
    for name in ["aten::native_batch_norm", "aten::_native_batch_norm_legit"] {
        r.op(name, |a| forward(a, Some(3), a.bool(5)?, Some(6), 7));
    }
    r.op("aten::_native_batch_norm_legit.no_stats", |a| forward(a, None, a.bool(3)?, None, 5));
    r.op("aten::_native_batch_norm_legit_no_training", |a| forward(a, Some(3), false, None, 6));
    r.op("aten::_batch_norm_with_update", |a| {
        with_reserve(a, forward(a, Some(3), true, Some(5), 6)?)
    });
    r.op("aten::_batch_norm_no_update", |a| with_reserve(a, forward(a, Some(3), false, None, 6)?));
    for name in ["aten::native_batch_norm_backward", "aten::batch_norm_backward"] {
        r.op(name, backward);
    }
}

/// The reserve space that other devices keep for their backward, empty.
fn with_reserve<'b>(a: &Args<'b>, mut out: Outputs<'b>) -> Out<'b> {
    out.values.push(Some(a.b.full(0i64, DType::U8, &[0])));
    Ok(out)
}

/// Every dimension but the channels'.
fn others(x: V<'_>) -> Shape {
    (0..x.rank() as i64).filter(|&d| d != 1).collect()
}

/// A value of each channel, its other dimensions 1.
fn channel<'b>(v: V<'b>, x: V<'b>) -> V<'b> {
    let mut sizes = Shape::from_elem(1, x.rank());
    sizes[1] = x.size(1);
    v.convert(x.dtype()).reshape(&sizes)
}

/// A per-channel argument, checked.
fn parameter<'b>(a: &Args<'b>, i: usize, name: &str, channels: i64) -> Result<Option<V<'b>>> {
    let v = a.opt(i)?;
    if let Some(v) = v {
        ensure!(
            v.numel() == channels,
            "{name} should contain {channels} elements not {}",
            v.numel()
        );
    }
    Ok(v)
}

/// `running`: where the running mean and after it the running variance are.
fn forward<'b>(
    a: &Args<'b>,
    running: Option<usize>,
    training: bool,
    momentum: Option<usize>,
    eps: usize,
) -> Out<'b> {
    let input = a.t(0)?;
    check_float("batch_norm", input)?;
    ensure!(
        input.rank() >= 2,
        "batch_norm: expected input of at least 2 dimensions, got {}",
        input.rank()
    );
    let channels = input.size(1);
    let weight = parameter(a, 1, "weight", channels)?;
    let bias = parameter(a, 2, "bias", channels)?;
    let (running_mean, running_var) = match running {
        None => (None, None),
        Some(i) => (
            parameter(a, i, "running_mean", channels)?,
            parameter(a, i + 1, "running_var", channels)?,
        ),
    };
    let compute = input.dtype().opmath();
    let (x, eps) = (input.convert(compute), a.num(eps)?.to(compute));
    let dims = others(x);
    let mut out = Outputs::default();
    let (mean, rstd, saved) = if training {
        let n = count(x, &dims) as f64;
        let (mean, squares) = moments(x, &dims, false);
        let mean = mean.reshape(&[channels]);
        let rstd = (squares / n + eps).rsqrt();
        if let (Some(momentum), Some(i)) = (momentum, running) {
            // The running variance is the unbiased one.
            let fresh = [(running_mean, mean), (running_var, squares / (n - 1.0))];
            for (position, (old, new)) in fresh.into_iter().enumerate() {
                let Some(old) = old else { continue };
                let wide = old.convert(old.dtype().opmath());
                let m = a.num(momentum)?.to(wide.dtype());
                let keep = a.b.full(1.0, wide.dtype(), &[]) - m;
                let mixed = wide * keep + new.convert(wide.dtype()).reshape(&wide.sizes()) * m;
                out.writes.push((i + position, mixed.convert(old.dtype())));
            }
        }
        (mean, rstd, [mean, rstd])
    } else {
        let (Some(mean), Some(var)) = (running_mean, running_var) else {
            ensure!(
                false,
                Value,
                "running_mean and running_var must be defined in evaluation mode"
            );
            return opt_outs([]);
        };
        let empty = a.b.full(0.0, compute, &[0]);
        (mean, (var.convert(compute) + eps).rsqrt(), [empty, empty])
    };
    // One scale and one shift a channel.
    let scale = weight.map_or(channel(rstd, x), |w| channel(rstd, x) * channel(w, x));
    let y = (x - channel(mean, x)) * scale;
    let y = bias.map_or(y, |b| y + channel(b, x));
    out.values.push(Some(y.convert(input.dtype())));
    out.values.extend(saved.map(Some));
    Ok(out)
}

/// grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, mask
fn backward<'b>(a: &Args<'b>) -> Out<'b> {
    let (grad, input, weight) = (a.t(0)?, a.t(1)?, a.opt(2)?);
    let (train, mask) = (a.bool(7)?, a.bools(9)?);
    let compute = input.dtype().opmath();
    let (g, x) = (grad.convert(compute), input.convert(compute));
    let dims = others(x);
    let (mean, rstd) = if train {
        (a.t(5)?, a.t(6)?)
    } else {
        let eps = a.num(8)?.to(compute);
        (a.t(3)?, (a.t(4)?.convert(compute) + eps).rsqrt())
    };
    let rstd = channel(rstd, x);
    let normed = (x - channel(mean, x)) * rstd;
    let weighted = weight.map_or(g, |w| g * channel(w, x));
    let kept = weight.map_or(compute, V::dtype);
    opt_outs([
        mask[0].then(|| {
            let dx = if train {
                input_gradient(weighted, normed, rstd, &dims, true)
            } else {
                weighted * rstd
            };
            dx.convert(input.dtype())
        }),
        mask[1].then(|| (g * normed).sum(&dims, false).convert(kept)),
        mask[2].then(|| g.sum(&dims, false).convert(kept)),
    ])
}
