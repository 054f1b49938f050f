//! Loss functions and their gradients.

use super::activation::log_sigmoid;
use super::elementwise::{FLOAT, only};
use super::{Args, Out, Registry, outs};
use crate::ensure;
use crate::error::{Error, Result};
use crate::ir::{DType, V};

pub(super) fn register(r: &mut Registry) {
    regression(r);
    binary(r);
    r.op("aten::nll_loss_forward", |a| Nll::of(a, 0, 1, 2, 4)?.forward(a, 3));
    r.op("aten::nll_loss2d_forward", |a| Nll::of(a, 0, 1, 2, 4)?.forward(a, 3));
    r.op("aten::nll_loss_backward", |a| Nll::of(a, 1, 2, 3, 5)?.backward(a, 4, 6));
    r.op("aten::nll_loss2d_backward", |a| Nll::of(a, 1, 2, 3, 5)?.backward(a, 4, 6));
    r.op("aten::multi_margin_loss", |a| margin(a, None));
    r.op("aten::multi_margin_loss_backward", |a| margin(a, Some(0)));
}

/// What becomes of the element losses, in `at::Reduction`'s numbering.
#[derive(Clone, Copy, PartialEq)]
enum Reduction {
    None = 0,
    Mean = 1,
    Sum = 2,
}

impl Reduction {
    fn of(a: &Args<'_>, position: usize) -> Result<Reduction> {
        match a.int(position)? {
            0 => Ok(Reduction::None),
            1 => Ok(Reduction::Mean),
            2 => Ok(Reduction::Sum),
            n => Err(Error::runtime(format!("{n} is not a valid value for reduction"))),
        }
    }

    fn apply(self, loss: V<'_>) -> V<'_> {
        match self {
            Reduction::None => loss,
            Reduction::Mean => loss.mean(&loss.all_dims(), false),
            Reduction::Sum => loss.sum(&loss.all_dims(), false),
        }
    }

    /// The gradient that reaches each of the `n` element losses.
    fn spread(self, grad: V<'_>, n: i64) -> V<'_> {
        if self == Reduction::Mean { grad / n as f64 } else { grad }
    }
}

/// A reduced loss over the operands at `positions`.
fn loss<'b>(
    a: &Args<'b>,
    op: &str,
    positions: &[usize],
    reduction: usize,
    f: impl FnOnce(&[V<'b>]) -> V<'b>,
) -> Out<'b> {
    let dtype = a.result_type(positions)?;
    only(op, dtype, FLOAT)?;
    let reduction = Reduction::of(a, reduction)?;
    let x = operands(a, positions, dtype)?;
    reduction.apply(f(&x)).convert(dtype).out()
}

/// The gradient of a reduced loss. The first of `positions` is the incoming gradient; `f` sees
/// it as it reaches each element.
fn gradient<'b>(
    a: &Args<'b>,
    op: &str,
    positions: &[usize],
    reduction: usize,
    f: impl FnOnce(&[V<'b>]) -> V<'b>,
) -> Out<'b> {
    let dtype = a.result_type(positions)?;
    only(op, dtype, FLOAT)?;
    let reduction = Reduction::of(a, reduction)?;
    let mut x = operands(a, positions, dtype)?;
    let n = x[1].broadcast_with(x[2]).0.numel();
    x[0] = reduction.spread(x[0], n);
    f(&x).convert(dtype).out()
}

fn operands<'b>(a: &Args<'b>, positions: &[usize], dtype: DType) -> Result<Vec<V<'b>>> {
    positions.iter().map(|&i| Ok(a.to(i, dtype)?.convert(dtype.opmath()))).collect()
}

fn regression(r: &mut Registry) {
    r.op("aten::mse_loss", |a| {
        loss(a, "mse_cpu", &[0, 1], 2, |x| {
            let d = x[0] - x[1];
            d * d
        })
    });
    r.op("aten::mse_loss_backward", |a| {
        gradient(a, "mse_backward_cpu", &[0, 1, 2], 3, |x| x[0] * 2.0 * (x[1] - x[2]))
    });
    r.op("aten::smooth_l1_loss", |a| {
        let beta = a.num(3)?;
        let valid = beta.value.to_f64() >= 0.0;
        ensure!(valid, "smooth_l1_loss does not support negative values for beta.");
        loss(a, "smooth_l1_cpu", &[0, 1], 2, |x| {
            let z = (x[0] - x[1]).abs();
            let beta = beta.to(z.dtype());
            z.lt(beta).select(0.5 * z * z / beta, z - 0.5 * beta)
        })
    });
    r.op("aten::smooth_l1_loss_backward", |a| {
        let beta = a.num(4)?;
        gradient(a, "smooth_l1_backward_cpu_out", &[0, 1, 2], 3, |x| {
            let (grad, d) = (x[0], x[1] - x[2]);
            let beta = beta.to(d.dtype());
            let steep = d.ge(beta).select(grad, grad * d / beta);
            d.le(-beta).select(-grad, steep)
        })
    });
    r.op("aten::huber_loss", |a| {
        let delta = a.num(3)?;
        let valid = delta.value.to_f64() > 0.0;
        ensure!(valid, "huber_loss does not support non-positive values for delta.");
        loss(a, "huber_cpu", &[0, 1], 2, |x| {
            let z = (x[0] - x[1]).abs();
            let delta = delta.to(z.dtype());
            z.le(delta).select(0.5 * z * z, delta * (z - 0.5 * delta))
        })
    });
    r.op("aten::huber_loss_backward", |a| {
        let delta = a.num(4)?;
        gradient(a, "huber_backward_cpu_out", &[0, 1, 2], 3, |x| {
            let (grad, d) = (x[0], x[1] - x[2]);
            let delta = delta.to(d.dtype());
            let steep = d.ge(delta).select(grad * delta, grad * d);
            d.le(-delta).select(-grad * delta, steep)
        })
    });
    r.op("aten::soft_margin_loss", |a| {
        loss(a, "soft_margin", &[0, 1], 2, |x| -log_sigmoid(x[0] * x[1]))
    });
    r.op("aten::soft_margin_loss_backward", |a| {
        gradient(a, "soft_margin_backward", &[0, 1, 2], 3, |x| {
            -x[0] * x[2] * (-(x[1] * x[2])).logistic()
        })
    });
}

/// The floor of the logarithms in the binary cross-entropy, so that its sum stays finite.
const MIN_LOG: f64 = -100.0;

fn binary(r: &mut Registry) {
    r.op("aten::binary_cross_entropy", |a| {
        let positions = with_weight(a, &[0, 1], 2);
        loss(a, "binary_cross_entropy", &positions, 3, |x| {
            let (p, t) = (x[0], x[1]);
            let (yes, no) = (p.log().max(MIN_LOG), (-p).log1p().max(MIN_LOG));
            weighted((t - 1.0) * no - t * yes, x.get(2))
        })
    });
    r.op("aten::binary_cross_entropy_backward", |a| {
        let positions = with_weight(a, &[0, 1, 2], 3);
        gradient(a, "binary_cross_entropy_backward", &positions, 4, |x| {
            let (grad, p, t) = (x[0], x[1], x[2]);
            weighted(grad * (p - t) / ((1.0 - p) * p).max(1e-12), x.get(3))
        })
    });
    r.op("aten::binary_cross_entropy_with_logits", |a| {
        let (x, target) = (a.t(0)?, a.t(1)?);
        ensure!(
            x.sizes() == target.sizes(),
            "Target size ({:?}) must be the same as input size ({:?})",
            target.sizes().as_slice(),
            x.sizes().as_slice()
        );
        let mut positions = with_weight(a, &[0, 1], 2);
        let weights = positions.len() - 2;
        positions.extend((!a.is_none(3)).then_some(3));
        loss(a, "binary_cross_entropy_with_logits", &positions, 4, |x| {
            let (z, t) = (x[0], x[1]);
            let log = log_sigmoid(z);
            let log = match x.get(2 + weights) {
                Some(positive) => log * ((*positive - 1.0) * t + 1.0),
                None => log,
            };
            weighted((1.0 - t) * z - log, x.get(2).filter(|_| weights == 1))
        })
    });
}

/// `positions`, and that of the optional weight if it is given.
fn with_weight(a: &Args<'_>, positions: &[usize], weight: usize) -> Vec<usize> {
    let given = (!a.is_none(weight)).then_some(weight);
    positions.iter().copied().chain(given).collect()
}

fn weighted<'b>(loss: V<'b>, weight: Option<&V<'b>>) -> V<'b> {
    weight.map_or(loss, |w| loss * *w)
}

/// Negative log-likelihood, its operands as [batch, class, place] and [batch, place].
struct Nll<'b> {
    x: V<'b>,
    target: V<'b>,
    /// The target isn't the class to ignore.
    valid: V<'b>,
    /// The weight of each target's class, 0 where it is ignored.
    weight: V<'b>,
    dtype: DType,
    sizes: crate::ir::Shape,
    target_sizes: crate::ir::Shape,
}

impl<'b> Nll<'b> {
    fn of(a: &Args<'b>, x: usize, target: usize, weight: usize, ignore: usize) -> Result<Nll<'b>> {
        let (x, target, weight) = (a.t(x)?, a.t(target)?, a.opt(weight)?);
        let dtype = x.dtype();
        only("nll_loss_out_frame", dtype, FLOAT)?;
        let target_dtype = target.dtype();
        ensure!(
            matches!(target_dtype, DType::I64 | DType::U8),
            "expected target dtype to be Long or Byte, but got {}",
            target_dtype.scalar_type_name()
        );
        let (sizes, target_sizes) = (x.sizes(), target.sizes());
        ensure!(!sizes.is_empty(), "input tensor should be 1D, 2D or 4D, but got 0D");
        let class_dim = usize::from(sizes.len() > 1);
        let mut rest = sizes.clone();
        rest.remove(class_dim);
        ensure!(
            rest == target_sizes || sizes.len() == 1 && target.numel() == 1,
            "size mismatch (got input: {:?}, target: {:?})",
            sizes.as_slice(),
            target_sizes.as_slice()
        );
        let (classes, batch) = (sizes[class_dim], if class_dim == 1 { sizes[0] } else { 1 });
        let places: i64 = sizes.iter().skip(class_dim + 1).product();
        if let Some(w) = weight {
            ensure!(
                w.sizes().as_slice() == [classes],
                "weight tensor should be defined either for all {classes} classes or no classes \
                 but got weight tensor of shape: {:?}",
                w.sizes().as_slice()
            );
        }
        let compute = dtype.opmath();
        let x = x.convert(compute).reshape(&[batch, classes, places]);
        let target = target.convert(DType::I64).reshape(&[batch, places]);
        let valid = target.ne(a.int(ignore)?);
        let target = valid.select(target, 0i64);
        let one = a.b.full(1.0, compute, &[batch, places]);
        let weight = match weight {
            Some(w) if classes > 0 => w.convert(compute).take(0, target),
            _ => one,
        };
        let weight = valid.select(weight, 0.0);
        Ok(Nll { x, target, valid, weight, dtype, sizes, target_sizes })
    }

    /// (loss, sum of the weights)
    fn forward(self, a: &Args<'b>, reduction: usize) -> Out<'b> {
        let reduction = Reduction::of(a, reduction)?;
        let (sizes, index) = (self.x.sizes(), self.target.sizes());
        let (classes, places) = (sizes[1], sizes[2]);
        let picked = if self.x.numel() == 0 {
            self.weight.full_like(0.0)
        } else {
            let row = a.b.iota(DType::I64, &index, 0) * (classes * places);
            let place = a.b.iota(DType::I64, &index, 1);
            self.x.take_flat(row + self.target * places + place)
        };
        // An ignored element may be infinite: 0 · ∞ is no loss.
        let loss = self.valid.select(-(picked * self.weight), 0.0);
        let (compute, all) = (loss.dtype(), [0, 1]);
        let total = self.weight.sum(&all, false);
        let (loss, total) = match reduction {
            // Of a batch of elements, PyTorch leaves the total at 0 when it isn't needed.
            Reduction::None if self.sizes.len() > 1 => {
                (loss.reshape(&self.target_sizes), a.b.full(0.0, compute, &[]))
            }
            Reduction::None => (loss.reshape(&self.target_sizes), total),
            Reduction::Sum => (loss.sum(&all, false), total),
            Reduction::Mean => (loss.sum(&all, false) / total, total),
        };
        outs([loss.convert(self.dtype), total.convert(self.dtype)])
    }

    fn backward(self, a: &Args<'b>, reduction: usize, total: usize) -> Out<'b> {
        let compute = self.x.dtype();
        let grad = a.to(0, compute)?;
        let grad = match Reduction::of(a, reduction)? {
            Reduction::None => grad.reshape(&self.target.sizes()),
            Reduction::Sum => grad.reshape(&[]),
            Reduction::Mean => grad.reshape(&[]) / a.to(total, compute)?.reshape(&[]),
        };
        let class = a.b.iota(DType::I64, &self.x.sizes(), 1);
        let hit = class.eq(self.target.unsqueeze(1)).and(self.valid.unsqueeze(1));
        let slope = (-(self.weight * grad)).unsqueeze(1).broadcast_to(&self.x.sizes());
        hit.select(slope, 0.0).reshape(&self.sizes).convert(self.dtype).out()
    }
}

/// The mean over classes of max(0, margin − x[target] + x[class])ᵖ, or its gradient if the
/// position of the incoming one is given.
fn margin<'b>(a: &Args<'b>, grad: Option<usize>) -> Out<'b> {
    let at = grad.map_or(0, |g| g + 1);
    let (x, target) = (a.t(at)?, a.t(at + 1)?);
    let dtype = x.dtype();
    only("multi_margin_loss", dtype, FLOAT)?;
    ensure!(target.dtype() == DType::I64, "expected scalar type Long for the target");
    let p = a.pinned(at + 2)?.to_i64();
    ensure!(p == 1 || p == 2, "only p == 1 and p == 2 supported");
    let reduction = Reduction::of(a, at + 5)?;
    let (sizes, target_sizes) = (x.sizes(), target.sizes());
    let (rows, classes) = match sizes.len() {
        2 => (sizes[0], sizes[1]),
        1 => (1, sizes[0]),
        _ => (0, 0),
    };
    ensure!(
        classes > 0 && target.numel() == rows,
        "Expected non-empty vector or matrix with optional 0-dim batch size, but got: {:?} with \
         target {:?}",
        sizes.as_slice(),
        target_sizes.as_slice()
    );
    let compute = dtype.opmath();
    let x = x.convert(compute).reshape(&[rows, classes]);
    let target = target.reshape(&[rows, 1]);
    let own = a.b.iota(DType::I64, &[rows, classes], 1).eq(target);
    let score = own.select(x, 0.0).sum(&[1], true);
    let excess = own.not().select(a.to(at + 3, compute)? - score + x, 0.0).max(0.0);
    let weight = match a.opt(at + 4)? {
        Some(w) => w.convert(compute).take(0, target.squeeze(1)) / classes as f64,
        None => a.b.full(1.0 / classes as f64, compute, &[rows]),
    };
    let Some(grad) = grad else {
        let power = if p == 1 { excess } else { excess * excess };
        let loss = power.sum(&[1], false) * weight;
        let loss = if reduction == Reduction::None { loss.reshape(&target_sizes) } else { loss };
        return reduction.apply(loss).convert(dtype).out();
    };
    let grad = a.to(grad, compute)?;
    let grad = if grad.rank() == 0 { grad } else { grad.reshape(&[rows, 1]) };
    let slope = if p == 1 { excess.gt(0.0).convert(compute) } else { excess * 2.0 };
    let slope = own.select(-slope.sum(&[1], true).broadcast_to(&slope.sizes()), slope);
    let out = slope * weight.unsqueeze(1) * reduction.spread(grad, rows);
    out.reshape(&sizes).convert(dtype).out()
}
