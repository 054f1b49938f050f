//! Normalisation over trailing dimensions and over groups of channels. Batch norms are next
//! door.
//!
//! With x̂ = (x − μ)·r and g the gradient times the weight, every one of them has the gradient
//! r·(g − mean(g) − x̂·mean(g·x̂)), the means taken over what was normalised together.

use super::args::opt_outs;
use super::reduce::{count, unsupported};
use super::statistics::moments;
use super::{Args, Out, Registry, outs};
use crate::ensure;
use crate::error::Result;
use crate::ir::{DType, Shape, V};

pub(super) fn register(r: &mut Registry) {
    r.op("aten::native_layer_norm", layer_norm);
    r.op("aten::native_layer_norm_backward", layer_norm_backward);
    // Composite where no device kernel exists; with one, autograd calls the pair.
    r.op("aten::_fused_rms_norm", rms_norm);
    r.op("aten::_fused_rms_norm_backward", rms_norm_backward);
    r.op("aten::native_group_norm", group_norm);
    r.op("aten::native_group_norm_backward", group_norm_backward);
}

pub(super) fn check_float(op: &str, x: V<'_>) -> Result<()> {
    if x.dtype().is_float() { Ok(()) } else { Err(unsupported(op, x.dtype())) }
}

/// (mean, 1/√(biased variance + ε)), dimensions kept.
pub(super) fn mean_rstd<'b>(x: V<'b>, dims: &[i64], eps: V<'b>) -> (V<'b>, V<'b>) {
    let (mean, squares) = moments(x, dims, true);
    (mean, (squares / count(x, dims) as f64 + eps).rsqrt())
}

/// The gradient by the formula above; without `centred`, that of a norm that subtracts no mean.
pub(super) fn input_gradient<'b>(
    g: V<'b>,
    normed: V<'b>,
    rstd: V<'b>,
    dims: &[i64],
    centred: bool,
) -> V<'b> {
    let along = normed * (g * normed).mean(dims, true);
    let rest = if centred { g - g.mean(dims, true) } else { g };
    (rest - along) * rstd
}

/// The leading and the normalised dimensions of `x`, after checking them and the affine
/// parameters at `parameters` against `normalized_shape` (position `shape`).
fn trailing(a: &Args<'_>, x: V<'_>, shape: usize, parameters: &[usize]) -> Result<(Shape, Shape)> {
    let (sizes, normalized) = (x.sizes(), a.ints(shape)?);
    ensure!(
        !normalized.is_empty(),
        "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one \
         element, but got normalized_shape = {:?}",
        &normalized[..]
    );
    let wanted: String = normalized.iter().map(|n| format!(", {n}")).collect();
    ensure!(
        sizes.ends_with(&normalized),
        "Given normalized_shape={:?}, expected input with shape [*{wanted}], but got input of \
         size{:?}",
        &normalized[..],
        &sizes[..]
    );
    for (&i, name) in parameters.iter().zip(["weight", "bias"]) {
        if let Some(v) = a.opt(i)? {
            ensure!(
                v.sizes() == normalized,
                "Expected {name} to be of same shape as normalized_shape, but got {name} of \
                 shape {:?} and normalized_shape = {:?}",
                &v.sizes()[..],
                &normalized[..]
            );
        }
    }
    let rank = sizes.len() as i64;
    let split = rank - normalized.len() as i64;
    Ok(((0..split).collect(), (split..rank).collect()))
}

/// x · weight + bias in x's dtype, where they are given and broadcast as they are.
fn affine<'b>(x: V<'b>, weight: Option<V<'b>>, bias: Option<V<'b>>) -> V<'b> {
    let x = weight.map_or(x, |w| x * w.convert(x.dtype()));
    bias.map_or(x, |b| x + b.convert(x.dtype()))
}

fn layer_norm<'b>(a: &Args<'b>) -> Out<'b> {
    let x = a.t(0)?;
    check_float("layer_norm", x)?;
    let (_, dims) = trailing(a, x, 1, &[2, 3])?;
    let compute = x.dtype().opmath();
    let wide = x.convert(compute);
    let (mean, rstd) = mean_rstd(wide, &dims, a.num(4)?.to(compute));
    let y = affine((wide - mean) * rstd, a.opt(2)?, a.opt(3)?);
    // The statistics stay in the type they were computed in, as on an accelerator.
    outs([y.convert(x.dtype()), mean, rstd])
}

fn layer_norm_backward<'b>(a: &Args<'b>) -> Out<'b> {
    let (grad, x) = (a.t(0)?, a.t(1)?);
    let (leading, dims) = trailing(a, x, 2, &[5, 6])?;
    let (weight, bias, mask) = (a.opt(5)?, a.opt(6)?, a.bools(7)?);
    let compute = x.dtype().opmath();
    let g = grad.convert(compute);
    let (mean, rstd) = (a.t(3)?.convert(compute), a.t(4)?.convert(compute));
    let normed = (x.convert(compute) - mean) * rstd;
    let weighted = affine(g, weight, None);
    opt_outs([
        mask[0].then(|| input_gradient(weighted, normed, rstd, &dims, true).convert(x.dtype())),
        weight.filter(|_| mask[1]).map(|w| (g * normed).sum(&leading, false).convert(w.dtype())),
        bias.filter(|_| mask[2]).map(|b| g.sum(&leading, false).convert(b.dtype())),
    ])
}

fn rms_norm<'b>(a: &Args<'b>) -> Out<'b> {
    let x = a.t(0)?;
    check_float("rms_norm", x)?;
    let (_, dims) = trailing(a, x, 1, &[2])?;
    let compute = x.dtype().opmath();
    let wide = x.convert(compute);
    let eps = match a.opt_num(3)? {
        Some(eps) => eps.to(compute),
        None => a.b.full(compute.epsilon(), compute, &[]),
    };
    let rstd = ((wide * wide).mean(&dims, true) + eps).rsqrt();
    outs([affine(wide * rstd, a.opt(2)?, None).convert(x.dtype()), rstd])
}

fn rms_norm_backward<'b>(a: &Args<'b>) -> Out<'b> {
    let (grad, x) = (a.t(0)?, a.t(1)?);
    let (leading, dims) = trailing(a, x, 2, &[4])?;
    let (weight, mask) = (a.opt(4)?, a.bools(5)?);
    let compute = x.dtype().opmath();
    let (g, rstd) = (grad.convert(compute), a.t(3)?.convert(compute));
    let normed = x.convert(compute) * rstd;
    let weighted = affine(g, weight, None);
    opt_outs([
        mask[0].then(|| input_gradient(weighted, normed, rstd, &dims, false).convert(x.dtype())),
        weight.filter(|_| mask[1]).map(|w| (g * normed).sum(&leading, false).convert(w.dtype())),
    ])
}

/// `[N, C, …]` seen as `[N, groups, C / groups, H·W]`.
struct Groups {
    sizes: [i64; 4],
    /// Per group and per channel.
    within: [i64; 2],
}

impl Groups {
    /// N, C, H·W and the number of groups are the arguments from `first` on.
    fn of(a: &Args<'_>, x: V<'_>, first: usize) -> Result<Groups> {
        let (n, c, hw, groups) =
            (a.int(first)?, a.int(first + 1)?, a.int(first + 2)?, a.int(first + 3)?);
        ensure!(groups > 0, "Expected num groups to be greater than 0, got {groups}");
        ensure!(
            c % groups == 0,
            "Expected number of channels in input to be divisible by num_groups, but got input \
             of shape {:?} and num_groups={groups}",
            &x.sizes()[..]
        );
        Ok(Groups { sizes: [n, groups, c / groups, hw], within: [2, 3] })
    }

    /// A value of each channel, broadcast to the grouped shape.
    fn channel<'b>(&self, v: V<'b>, dtype: DType) -> V<'b> {
        let [_, groups, each, _] = self.sizes;
        v.convert(dtype).reshape(&[groups, each]).broadcast_in_dim(&self.sizes, &[1, 2])
    }

    /// A value of each sample's group, its missing dimensions 1.
    fn statistic<'b>(&self, v: V<'b>, dtype: DType) -> V<'b> {
        v.convert(dtype).reshape(&[self.sizes[0], self.sizes[1], 1, 1])
    }
}

fn group_norm<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, weight, bias) = (a.t(0)?, a.opt(1)?, a.opt(2)?);
    check_float("group_norm", x)?;
    let groups = Groups::of(a, x, 3)?;
    let channels = groups.sizes[1] * groups.sizes[2];
    for (v, name) in [(weight, "weight"), (bias, "bias")] {
        ensure!(
            v.is_none_or(|v| v.numel() == channels),
            "Expected {name} to be a vector of size equal to the number of channels in input, \
             but got {name} of shape {:?} and input of shape {:?}",
            v.map(V::sizes),
            &x.sizes()[..]
        );
    }
    let compute = x.dtype().opmath();
    let wide = x.convert(compute).reshape(&groups.sizes);
    let (mean, rstd) = mean_rstd(wide, &groups.within, a.num(7)?.to(compute));
    let channel = |v: V<'b>| groups.channel(v, compute);
    let y = affine((wide - mean) * rstd, weight.map(channel), bias.map(channel));
    // Statistics have the parameters' type, that of the input without any.
    let kept = weight.or(bias).map_or(x.dtype(), V::dtype);
    let statistic = |v: V<'b>| v.reshape(&groups.sizes[..2]).convert(kept);
    outs([y.reshape(&x.sizes()).convert(x.dtype()), statistic(mean), statistic(rstd)])
}

fn group_norm_backward<'b>(a: &Args<'b>) -> Out<'b> {
    let (grad, x, weight) = (a.t(0)?, a.t(1)?, a.opt(4)?);
    let groups = Groups::of(a, x, 5)?;
    let mask = a.bools(9)?;
    let compute = x.dtype().opmath();
    let g = grad.convert(compute).reshape(&groups.sizes);
    let mean = groups.statistic(a.t(2)?, compute);
    let rstd = groups.statistic(a.t(3)?, compute);
    let normed = (x.convert(compute).reshape(&groups.sizes) - mean) * rstd;
    let weighted = weight.map_or(g, |w| g * groups.channel(w, compute));
    let channels = [groups.sizes[1] * groups.sizes[2]];
    let parameter = weight.map_or(x.dtype(), V::dtype);
    let per_channel = |v: V<'b>| v.sum(&[0, 3], false).reshape(&channels).convert(parameter);
    opt_outs([
        mask[0].then(|| {
            let dx = input_gradient(weighted, normed, rstd, &groups.within, true);
            dx.reshape(&x.sizes()).convert(x.dtype())
        }),
        mask[1].then(|| per_channel(g * normed)),
        mask[2].then(|| per_channel(g)),
    ])
}
