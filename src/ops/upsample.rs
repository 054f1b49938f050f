//! Resampling of the last dimensions, and its gradients.
//!
//! Every method is a set of taps along one dimension after the other: for each element of the
//! result the positions that it reads and their weights. The gradient is the transpose.

use super::{Args, Out, Registry};
use crate::ensure;
use crate::error::Result;
use crate::ir::{DType, Shape, V};

#[derive(Clone, Copy, PartialEq)]
enum Method {
    Nearest,
    /// Pixel centres where [`Method::Nearest`] compares pixel corners.
    NearestExact,
    Linear,
    Cubic,
}

use Method::{Cubic, Linear, Nearest, NearestExact};

pub(super) fn register(r: &mut Registry) {
    r.op("aten::upsample_nearest1d", |a| forward(a, 1, Nearest));
    r.op("aten::upsample_nearest2d", |a| forward(a, 2, Nearest));
    r.op("aten::upsample_nearest3d", |a| forward(a, 3, Nearest));
    r.op("aten::_upsample_nearest_exact1d", |a| forward(a, 1, NearestExact));
    r.op("aten::_upsample_nearest_exact2d", |a| forward(a, 2, NearestExact));
    r.op("aten::_upsample_nearest_exact3d", |a| forward(a, 3, NearestExact));
    r.op("aten::upsample_linear1d", |a| forward(a, 1, Linear));
    r.op("aten::upsample_bilinear2d", |a| forward(a, 2, Linear));
    r.op("aten::upsample_trilinear3d", |a| forward(a, 3, Linear));
    r.op("aten::upsample_bicubic2d", |a| forward(a, 2, Cubic));
    r.op("aten::upsample_nearest1d_backward", |a| backward(a, 1, Nearest));
    r.op("aten::upsample_nearest2d_backward", |a| backward(a, 2, Nearest));
    r.op("aten::upsample_nearest3d_backward", |a| backward(a, 3, Nearest));
    r.op("aten::_upsample_nearest_exact1d_backward", |a| backward(a, 1, NearestExact));
    r.op("aten::_upsample_nearest_exact2d_backward", |a| backward(a, 2, NearestExact));
    r.op("aten::_upsample_nearest_exact3d_backward", |a| backward(a, 3, NearestExact));
    r.op("aten::upsample_linear1d_backward", |a| backward(a, 1, Linear));
    r.op("aten::upsample_bilinear2d_backward", |a| backward(a, 2, Linear));
    r.op("aten::upsample_trilinear3d_backward", |a| backward(a, 3, Linear));
    r.op("aten::upsample_bicubic2d_backward", |a| backward(a, 2, Cubic));
}

/// How one dimension is resampled.
struct Axis {
    from: i64,
    to: i64,
    align_corners: bool,
    /// Factor given by the caller, if any.
    scale: Option<f64>,
    method: Method,
}

/// One read of each element along the dimension: positions (i64) and weights, `None` for 1.
struct Tap<'b> {
    index: V<'b>,
    weight: Option<V<'b>>,
}

impl Axis {
    /// Elements of the operand a step in the result spans.
    fn step(&self) -> f64 {
        if self.align_corners {
            return if self.to > 1 { (self.from - 1) as f64 / (self.to - 1) as f64 } else { 0.0 };
        }
        match self.scale {
            Some(s) if s > 0.0 => 1.0 / s,
            _ => self.from as f64 / self.to as f64,
        }
    }

    /// Without a scale of its own, a dimension that keeps its size keeps its elements.
    fn is_identity(&self) -> bool {
        self.scale.is_none() && self.from == self.to
    }

    /// The taps, in the float type `dtype` (positions are computed in it too, as torch does).
    fn taps<'b>(&self, like: V<'b>, dtype: DType) -> Vec<Tap<'b>> {
        let b = like.b;
        // torch computes nearest positions in float whatever the tensor's type.
        let nearest = matches!(self.method, Nearest | NearestExact);
        let position = if nearest { DType::F32 } else { dtype };
        let i = b.iota(position, &[self.to], 0);
        let last = self.from - 1;
        let step = self.step();
        let bounded = |v: V<'b>| v.clamp(0i64, last);
        match self.method {
            Nearest | NearestExact => {
                let i = if self.method == NearestExact { i + 0.5 } else { i };
                let index = bounded((i * step).floor().convert(DType::I64));
                vec![Tap { index, weight: None }]
            }
            Linear => {
                let real =
                    if self.align_corners { i * step } else { ((i + 0.5) * step - 0.5).max(0.0) };
                let low = bounded(real.floor().convert(DType::I64));
                let high = (low + 1i64).min(last);
                let w = (real - low.convert(position)).clamp(0.0, 1.0);
                vec![
                    Tap { index: low, weight: Some(1.0 - w) },
                    Tap { index: high, weight: Some(w) },
                ]
            }
            Cubic => {
                let real = if self.align_corners { i * step } else { (i + 0.5) * step - 0.5 };
                let floor = real.floor();
                let t = real - floor;
                let first = floor.convert(DType::I64) - 1i64;
                cubic_weights(t)
                    .into_iter()
                    .enumerate()
                    .map(|(k, w)| Tap { index: bounded(first + k as i64), weight: Some(w) })
                    .collect()
            }
        }
    }
}

/// Weights of the four neighbours at distance `t` past the second, by Keys' cubic convolution
/// with a = −0.75.
pub(super) fn cubic_weights(t: V<'_>) -> [V<'_>; 4] {
    const A: f64 = -0.75;
    fn inner(x: V<'_>) -> V<'_> {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    }
    fn outer(x: V<'_>) -> V<'_> {
        ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A
    }
    let rest = 1.0 - t;
    [outer(t + 1.0), inner(t), inner(rest), outer(rest + 1.0)]
}

/// The axes from `from` to `to` elements. The methods that have align_corners have it (at `next`)
/// before their scales.
fn axes(
    a: &Args<'_>,
    from: &[i64],
    to: &[i64],
    next: usize,
    method: Method,
    backward: bool,
) -> Result<Vec<Axis>> {
    let interpolates = matches!(method, Linear | Cubic);
    let align_corners = interpolates && a.bool(next)?;
    let scales = next + usize::from(interpolates);
    let mut axes = Vec::with_capacity(from.len());
    for i in 0..from.len() {
        ensure!(
            from[i] > 0 && to[i] > 0,
            "Input and output sizes should be greater than 0, but got input {from:?} and output \
             {to:?}"
        );
        // As torch's CPU kernels: where these sizes meet, a scale that says otherwise is ignored.
        let same = from[i] == to[i];
        let by_sizes = match method {
            Nearest => (backward || from.len() == 2) && (same || to[i] == 2 * from[i]),
            NearestExact => false,
            Linear => same,
            Cubic => backward && from == to,
        };
        let at = scales + i;
        let scale = if by_sizes || a.is_none(at) { None } else { Some(a.pinned(at)?.to_f64()) };
        let axis = Axis { from: from[i], to: to[i], align_corners, scale, method };
        axes.push(axis);
    }
    Ok(axes)
}

/// (self, output_size, [align_corners,] scales…)
fn forward<'b>(a: &Args<'b>, spatial: usize, method: Method) -> Out<'b> {
    let x = a.t(0)?;
    ensure!(
        x.rank() == spatial + 2,
        "Expected a {}D input to resample {spatial} dimensions, but got a tensor with sizes {:?}",
        spatial + 2,
        x.sizes().as_slice()
    );
    let to = a.ints_n(1, spatial, 1)?;
    let axes = axes(a, &x.sizes()[2..], &to, 2, method, false)?;
    let dtype = x.dtype();
    let compute = computing_type(dtype, method)?;
    let mut y = x.convert(compute);
    // The last dimension first, as torch nests its sums.
    for (i, axis) in axes.iter().enumerate().rev() {
        y = resample(y, i + 2, axis);
    }
    y.convert(dtype).out()
}

/// Nearest methods only move values; the others compute.
fn computing_type(dtype: DType, method: Method) -> Result<DType> {
    if matches!(method, Nearest | NearestExact) {
        return Ok(dtype);
    }
    ensure!(
        dtype.is_float(),
        NotImplemented,
        "interpolation is not implemented for '{}'",
        dtype.scalar_type_name()
    );
    Ok(dtype.opmath())
}

fn resample<'b>(x: V<'b>, dim: usize, axis: &Axis) -> V<'b> {
    if axis.is_identity() {
        return x;
    }
    if let Some(k) = copies(axis) {
        // Each element repeated k times.
        let mut sizes = x.sizes();
        let split = x.unsqueeze(dim + 1);
        sizes.insert(dim + 1, k);
        let mut flat = x.sizes();
        flat[dim] *= k;
        return split.broadcast_to(&sizes).reshape(&flat);
    }
    let mut sum: Option<V<'b>> = None;
    for tap in axis.taps(x, x.dtype()) {
        let mut part = x.take(dim, tap.index);
        if let Some(w) = tap.weight {
            part = part * w.broadcast_in_dim(&part.sizes(), &[dim as i64]);
        }
        sum = Some(sum.map_or(part, |s| s + part));
    }
    sum.unwrap_or(x)
}

/// How often a nearest method repeats each element, if it does so evenly.
fn copies(axis: &Axis) -> Option<i64> {
    if axis.to % axis.from != 0 || !matches!(axis.method, Nearest | NearestExact) {
        return None;
    }
    let k = axis.to / axis.from;
    let shift = if axis.method == NearestExact { 0.5 } else { 0.0 };
    // In f32, as the taps are computed.
    let step = axis.step() as f32;
    let even = (0..axis.to)
        .all(|i| (((i as f32 + shift) * step).floor() as i64).min(axis.from - 1) == i / k);
    even.then_some(k)
}

/// (grad_output, output_size, input_size, [align_corners,] scales…)
fn backward<'b>(a: &Args<'b>, spatial: usize, method: Method) -> Out<'b> {
    let grad = a.t(0)?;
    let (to, input) = (a.ints_n(1, spatial, 1)?, a.ints(2)?);
    ensure!(
        input.len() == spatial + 2 && grad.rank() == spatial + 2 && grad.sizes()[2..] == to[..],
        "Expected grad_output to have the sizes of the forward pass's result, but got {:?} for \
         input {:?} and output {:?}",
        grad.sizes().as_slice(),
        input.as_slice(),
        to.as_slice()
    );
    let axes = axes(a, &input[2..], &to, 3, method, true)?;
    let dtype = grad.dtype();
    let mut g = grad.convert(dtype.opmath());
    for (i, axis) in axes.iter().enumerate() {
        g = transpose(g, i + 2, axis);
    }
    g.convert(dtype).out()
}

/// The transpose of [`resample`].
fn transpose<'b>(g: V<'b>, dim: usize, axis: &Axis) -> V<'b> {
    if axis.is_identity() {
        return g;
    }
    if let Some(k) = copies(axis) {
        let mut split = g.sizes();
        split[dim] = axis.from;
        split.insert(dim + 1, k);
        return g.reshape(&split).sum(&[dim as i64 + 1], false);
    }
    // For each element of the operand, the sum over those of the result that read it.
    let mut wide: Shape = g.sizes();
    wide.insert(dim, axis.from);
    let (own, other) = (dim as i64, dim as i64 + 1);
    let target = g.b.iota(DType::I64, &wide, dim);
    let mut sum: Option<V<'b>> = None;
    for tap in axis.taps(g, g.dtype()) {
        let part = match tap.weight {
            Some(w) => g * w.broadcast_in_dim(&g.sizes(), &[own]),
            None => g,
        };
        let part = part.unsqueeze(dim).broadcast_to(&wide);
        let hit = target.eq(tap.index.broadcast_in_dim(&wide, &[other]));
        let part = hit.select(part, 0.0);
        sum = Some(sum.map_or(part, |s| s + part));
    }
    sum.unwrap_or(g.unsqueeze(dim)).sum(&[other], false)
}
