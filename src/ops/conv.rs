//! Convolutions, their gradients, and windows unrolled as columns.
//!
//! A convolution, its transpose and its gradients are three contractions of the same kind, each
//! with one size to be met exactly: [`forward`], [`transposed`], [`kernel_gradient`].

use super::args::opt_outs;
use super::{Args, Out, Registry};
use crate::ensure;
use crate::error::Result;
use crate::ir::{ConvAttrs, Number, Shape, V};

pub(super) fn register(r: &mut Registry) {
    for name in ["aten::convolution", "aten::convolution_overrideable"] {
        r.op(name, convolution);
    }
    // (grad_output, input, weight, bias_sizes, …) and the same without bias_sizes.
    r.op("aten::convolution_backward", |a| convolution_backward(a, 4));
    r.op("aten::convolution_backward_overrideable", |a| convolution_backward(a, 3));
    r.op("aten::im2col", im2col);
    r.op("aten::col2im", col2im);
}

/// Stride, padding, dilation of each spatial dimension, and the number of groups.
struct Geometry {
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    transposed: bool,
    output_padding: Shape,
    groups: i64,
}

impl Geometry {
    /// From the arguments at `i` (stride) and on.
    fn new(a: &Args<'_>, i: usize, spatial: usize) -> Result<Geometry> {
        let g = Geometry {
            stride: a.ints_n(i, spatial, 1)?,
            padding: a.ints_n(i + 1, spatial, 0)?,
            dilation: a.ints_n(i + 2, spatial, 1)?,
            transposed: a.bool(i + 3)?,
            output_padding: a.ints_n(i + 4, spatial, 0)?,
            groups: a.int(i + 5)?,
        };
        ensure!(g.stride.iter().all(|&n| n > 0), "non-positive stride is not supported");
        ensure!(g.padding.iter().all(|&n| n >= 0), "negative padding is not supported");
        ensure!(g.dilation.iter().all(|&n| n > 0), "dilation should be greater than zero");
        ensure!(g.groups > 0, "non-positive groups is not supported");
        Ok(g)
    }

    /// Elements a kernel of `k` spans in dimension `i`, less one.
    fn reach(&self, k: i64, i: usize) -> i64 {
        self.dilation[i] * (k - 1)
    }
}

fn spatial(v: V<'_>) -> Shape {
    v.sizes()[2..].into()
}

/// `[0, 1, 2, …]`: batch (or output feature), feature, spatial dimensions in that order.
fn plain(rank: usize) -> Shape {
    (0..rank as i64).collect()
}

fn swapped(rank: usize) -> Shape {
    let mut dims = plain(rank);
    dims.swap(0, 1);
    dims
}

fn zeros<'b>(like: V<'b>, sizes: &[i64]) -> V<'b> {
    like.b.full(0i64, like.dtype(), sizes)
}

/// y[n, o, s] = Σ x[n, c, s·stride + k·dilation − padding] · w[o, c, k]; x: [N, C, …],
/// w: [O, C/groups, …]. The result has exactly the spatial `sizes`.
fn forward<'b>(x: V<'b>, w: V<'b>, g: &Geometry, sizes: &[i64]) -> V<'b> {
    let rank = x.rank();
    let mut out: Shape = [x.size(0), w.size(0)].as_slice().into();
    out.extend_from_slice(sizes);
    if out.contains(&0) || x.numel() == 0 || w.numel() == 0 {
        return zeros(x, &out);
    }
    let pad_high = (0..rank - 2)
        .map(|i| {
            let needed = (sizes[i] - 1) * g.stride[i] + g.reach(w.size(i + 2), i) + 1;
            needed - x.size(i + 2) - g.padding[i]
        })
        .collect();
    let ones = Shape::from_elem(1, rank - 2);
    convolve(
        x,
        w,
        ConvAttrs {
            strides: g.stride.clone(),
            pad_low: g.padding.clone(),
            pad_high,
            lhs_dilation: ones,
            rhs_dilation: g.dilation.clone(),
            lhs_dims: plain(rank),
            rhs_dims: plain(rank),
            out_dims: plain(rank),
            feature_groups: g.groups,
            batch_groups: 1,
            reverse: false,
        },
    )
}

/// The transpose of [`forward`] with the same kernel: y: [N, O, …], w: [O, C/groups, …] gives
/// x: [N, C, …] with exactly the spatial `sizes`.
fn transposed<'b>(y: V<'b>, w: V<'b>, g: &Geometry, sizes: &[i64]) -> V<'b> {
    let (rank, groups) = (y.rank(), g.groups);
    let (o, c) = (w.size(0), w.size(1));
    let mut out: Shape = [y.size(0), c * groups].as_slice().into();
    out.extend_from_slice(sizes);
    if out.contains(&0) || y.numel() == 0 || w.numel() == 0 {
        return zeros(y, &out);
    }
    let kernel = spatial(w);
    // Inputs and outputs of the kernel trade places within each group, and it is mirrored.
    let (w, rhs_dims) = if groups == 1 {
        (w, swapped(rank))
    } else {
        let mut split: Shape = [groups, o / groups, c].as_slice().into();
        split.extend_from_slice(&kernel);
        let mut perm: Shape = (0..split.len() as i64).collect();
        perm.swap(1, 2);
        let mut joined: Shape = [groups * c, o / groups].as_slice().into();
        joined.extend_from_slice(&kernel);
        (w.reshape(&split).transpose(&perm).reshape(&joined), plain(rank))
    };
    let mirrored: Shape = (2..rank).filter(|&i| kernel[i - 2] > 1).map(|i| i as i64).collect();
    let w = if mirrored.is_empty() { w } else { w.reverse(&mirrored) };
    let (mut pad_low, mut pad_high) = (Shape::new(), Shape::new());
    for i in 0..rank - 2 {
        let reach = g.reach(kernel[i], i);
        let low = reach - g.padding[i];
        pad_low.push(low);
        pad_high.push(sizes[i] + reach - ((y.size(i + 2) - 1) * g.stride[i] + 1) - low);
    }
    let ones = Shape::from_elem(1, rank - 2);
    convolve(
        y,
        w,
        ConvAttrs {
            strides: ones,
            pad_low,
            pad_high,
            lhs_dilation: g.stride.clone(),
            rhs_dilation: g.dilation.clone(),
            lhs_dims: plain(rank),
            rhs_dims,
            out_dims: plain(rank),
            feature_groups: groups,
            batch_groups: 1,
            reverse: false,
        },
    )
}

/// The gradient of [`forward`]'s kernel, [O, C/groups, …] with exactly the spatial `sizes`,
/// from its operand x: [N, C, …] and its result's gradient y: [N, O, …].
fn kernel_gradient<'b>(x: V<'b>, y: V<'b>, g: &Geometry, sizes: &[i64]) -> V<'b> {
    let (rank, groups) = (x.rank(), g.groups);
    let (n, c, o) = (x.size(0), x.size(1), y.size(1));
    let mut out: Shape = [o, c / groups].as_slice().into();
    out.extend_from_slice(sizes);
    if out.contains(&0) || x.numel() == 0 || y.numel() == 0 {
        return zeros(x, &out);
    }
    let at = spatial(x);
    // The sum runs over the batch, which is therefore the feature; channels are the batch.
    let (x, lhs_dims) = if groups == 1 {
        (x, swapped(rank))
    } else {
        let mut split: Shape = [n, groups, c / groups].as_slice().into();
        split.extend_from_slice(&at);
        let mut perm: Shape = (0..split.len() as i64).collect();
        (perm[0], perm[1], perm[2]) = (2, 1, 0);
        let mut joined: Shape = [c / groups, groups * n].as_slice().into();
        joined.extend_from_slice(&at);
        (x.reshape(&split).transpose(&perm).reshape(&joined), plain(rank))
    };
    let pad_high = (0..rank - 2)
        .map(|i| {
            let span = (y.size(i + 2) - 1) * g.stride[i] + 1;
            g.reach(sizes[i], i) + span - at[i] - g.padding[i]
        })
        .collect();
    convolve(
        x,
        y,
        ConvAttrs {
            strides: g.dilation.clone(),
            pad_low: g.padding.clone(),
            pad_high,
            lhs_dilation: Shape::from_elem(1, rank - 2),
            rhs_dilation: g.stride.clone(),
            lhs_dims,
            rhs_dims: swapped(rank),
            out_dims: swapped(rank),
            feature_groups: groups,
            batch_groups: 1,
            reverse: false,
        },
    )
}

/// Adds the primitive, its negative padding turned into a smaller operand where that can be done:
/// backends have fast convolutions for padding only.
fn convolve<'b>(mut x: V<'b>, w: V<'b>, mut attrs: ConvAttrs) -> V<'b> {
    for i in 0..attrs.strides.len() {
        let dim = attrs.lhs_dims[i + 2] as usize;
        let n = x.size(dim);
        let reach = (w.size(attrs.rhs_dims[i + 2] as usize) - 1) * attrs.rhs_dilation[i];
        if attrs.lhs_dilation[i] != 1 {
            continue;
        }
        let windows = |high: i64| (n + attrs.pad_low[i] + high - reach - 1) / attrs.strides[i];
        if attrs.pad_high[i] < 0 && windows(0) == windows(attrs.pad_high[i]) {
            attrs.pad_high[i] = 0;
        }
        let crop = |pad: i64| (-pad).max(0);
        let (low, high) = (crop(attrs.pad_low[i]), crop(attrs.pad_high[i]));
        if low + high > 0 && low + high < n {
            x = x.slice(dim, low, n - high, 1);
            attrs.pad_low[i] += low;
            attrs.pad_high[i] += high;
        }
    }
    x.b.add(crate::ir::Prim::Conv(attrs), &[x, w])
}

/// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
fn convolution<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, w) = (a.t(0)?, a.t(1)?);
    let rank = w.rank();
    ensure!(rank >= 3, "weight should have at least three dimensions");
    let g = Geometry::new(a, 3, rank - 2)?;
    check_operands(x, w, &g)?;
    let bias = a.opt(2)?;
    let channels = if g.transposed { w.size(1) * g.groups } else { w.size(0) };
    if let Some(bias) = bias {
        ensure!(
            bias.sizes().as_slice() == [channels],
            "Given transposed={}, weight of size {:?}, expected bias to be 1-dimensional with \
             {channels} elements, but got bias of size {:?} instead",
            i32::from(g.transposed),
            w.sizes().as_slice(),
            bias.sizes().as_slice()
        );
    }
    let mut sizes = Shape::new();
    for i in 0..rank - 2 {
        let (n, reach) = (x.size(i + 2), g.reach(w.size(i + 2), i));
        sizes.push(if g.transposed {
            (n - 1) * g.stride[i] - 2 * g.padding[i] + reach + g.output_padding[i] + 1
        } else {
            let padded = n + 2 * g.padding[i];
            ensure!(
                padded > reach,
                "Calculated padded input size per channel: ({padded}). Kernel size: ({}). Kernel \
                 size can't be greater than actual input size",
                reach + 1
            );
            (padded - reach - 1) / g.stride[i] + 1
        });
    }
    ensure!(
        sizes.iter().all(|&n| n >= 0),
        "Given input size per channel {:?}, the calculated output size per channel {:?} is too \
         small",
        spatial(x).as_slice(),
        sizes.as_slice()
    );
    let dtype = x.dtype();
    let compute = dtype.opmath();
    let (x, w) = (x.convert(compute), w.convert(compute));
    let mut y = if g.transposed { transposed(x, w, &g, &sizes) } else { forward(x, w, &g, &sizes) };
    if let Some(bias) = bias {
        y = y + bias.convert(compute).broadcast_in_dim(&y.sizes(), &[1]);
    }
    y.convert(dtype).out()
}

fn check_operands(x: V<'_>, w: V<'_>, g: &Geometry) -> Result<()> {
    let (rank, groups) = (w.rank(), g.groups);
    let (xs, ws) = (x.sizes(), w.sizes());
    let (xs, ws) = (xs.as_slice(), ws.as_slice());
    ensure!(
        x.rank() == rank,
        "Expected {rank}-dimensional input for {rank}-dimensional weight {ws:?}, but got \
         {}-dimensional input of size {xs:?} instead",
        x.rank()
    );
    ensure!(
        x.dtype() == w.dtype(),
        "Input type ({}) and weight type ({}) should be the same",
        x.dtype(),
        w.dtype()
    );
    ensure!(
        !x.dtype().is_complex() && !x.dtype().is_bool(),
        NotImplemented,
        "convolution of {}",
        x.dtype()
    );
    ensure!(
        ws[0] % groups == 0,
        "Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but \
         got weight of size {ws:?} instead"
    );
    let channels = if g.transposed { ws[0] } else { ws[1] * groups };
    ensure!(
        xs[1] == channels,
        "Given groups={groups}, weight of size {ws:?}, expected input{xs:?} to have {channels} \
         channels, but got {} channels instead",
        xs[1]
    );
    Ok(())
}

/// (grad_output, input, weight, [bias_sizes,] stride, …, groups, output_mask), stride at `i`.
fn convolution_backward<'b>(a: &Args<'b>, i: usize) -> Out<'b> {
    let (grad, x, w) = (a.t(0)?, a.t(1)?, a.t(2)?);
    let mask = a.bools(i + 6)?;
    ensure!(mask.len() == 3, "output_mask must have three entries, not {}", mask.len());
    let rank = w.rank();
    let g = Geometry::new(a, i, rank - 2)?;
    check_operands(x, w, &g)?;
    let dtype = x.dtype();
    let compute = dtype.opmath();
    let (grad, x, w) = (grad.convert(compute), x.convert(compute), w.convert(compute));
    let grad_input = || {
        if g.transposed {
            forward(grad, w, &g, &spatial(x))
        } else {
            transposed(grad, w, &g, &spatial(x))
        }
    };
    let grad_weight = || {
        // A transposed convolution's operand and result trade places.
        let (from, to) = if g.transposed { (grad, x) } else { (x, grad) };
        kernel_gradient(from, to, &g, &spatial(w))
    };
    let grad_bias = || {
        let dims: Shape = (0..rank as i64).filter(|&d| d != 1).collect();
        grad.sum(&dims, false)
    };
    opt_outs([
        mask[0].then(|| grad_input().convert(dtype)),
        mask[1].then(|| grad_weight().convert(dtype)),
        mask[2].then(|| grad_bias().convert(dtype)),
    ])
}

/// How im2col and col2im walk: kernel, dilation, padding, stride, at `i` and on.
struct Columns {
    kernel: Shape,
    dilation: Shape,
    padding: Shape,
    stride: Shape,
    /// Windows along height and width.
    out: [i64; 2],
}

impl Columns {
    fn new(a: &Args<'_>, i: usize, image: [i64; 2]) -> Result<Columns> {
        let mut c = Columns {
            kernel: a.ints_n(i, 2, 1)?,
            dilation: a.ints_n(i + 1, 2, 1)?,
            padding: a.ints_n(i + 2, 2, 0)?,
            stride: a.ints_n(i + 3, 2, 1)?,
            out: [0; 2],
        };
        let positive = |s: &Shape| s.iter().all(|&n| n > 0);
        ensure!(positive(&c.kernel), "kernel size should be greater than zero");
        ensure!(positive(&c.dilation), "dilation should be greater than zero");
        ensure!(positive(&c.stride), "stride should be greater than zero");
        ensure!(c.padding.iter().all(|&n| n >= 0), "padding should be non-negative");
        for d in 0..2 {
            let span = image[d] + 2 * c.padding[d] - c.dilation[d] * (c.kernel[d] - 1) - 1;
            c.out[d] = if span < 0 { 0 } else { span / c.stride[d] + 1 };
            ensure!(
                c.out[d] > 0,
                "Given input with spatial size {image:?}, kernel_size={:?}, dilation={:?}, \
                 padding={:?}, calculated shape of the array of sliding blocks is too small \
                 (non-positive)",
                c.kernel.as_slice(),
                c.dilation.as_slice(),
                c.padding.as_slice()
            );
        }
        Ok(c)
    }

    /// First position of a kernel element's windows in the padded image, and one past its last.
    fn span(&self, d: usize, k: i64) -> (i64, i64) {
        let start = k * self.dilation[d];
        (start, start + (self.out[d] - 1) * self.stride[d] + 1)
    }
}

/// (self, kernel_size, dilation, padding, stride): [N, C, H, W] → [N, C·kh·kw, windows]
fn im2col<'b>(a: &Args<'b>) -> Out<'b> {
    let given = a.t(0)?;
    let rank = given.rank();
    ensure!(
        rank == 3 || rank == 4,
        "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero \
         dimensions for input, but got: {:?}",
        given.sizes().as_slice()
    );
    let x = if rank == 3 { given.unsqueeze(0) } else { given };
    let s = x.sizes();
    let c = Columns::new(a, 1, [s[2], s[3]])?;
    let pads = [0, 0, c.padding[0], c.padding[1]];
    let padded = x.pad(Number::Int(0).cast(x.dtype()), &pads, &pads, &[0; 4]);
    let mut parts = Vec::new();
    for i in 0..c.kernel[0] {
        for j in 0..c.kernel[1] {
            let ((h0, h1), (w0, w1)) = (c.span(0, i), c.span(1, j));
            let part = padded.slices(
                &[0, 0, h0, w0],
                &[s[0], s[1], h1, w1],
                &[1, 1, c.stride[0], c.stride[1]],
            );
            parts.push(part.unsqueeze(2));
        }
    }
    let columns = [s[0], s[1] * c.kernel[0] * c.kernel[1], c.out[0] * c.out[1]];
    let y = a.b.concat(&parts, 2).reshape(&columns);
    (if rank == 3 { y.squeeze(0) } else { y }).out()
}

/// (self, output_size, kernel_size, dilation, padding, stride): the transpose of im2col.
fn col2im<'b>(a: &Args<'b>) -> Out<'b> {
    let given = a.t(0)?;
    let rank = given.rank();
    ensure!(
        rank == 2 || rank == 3,
        "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero \
         dimensions for input, but got: {:?}",
        given.sizes().as_slice()
    );
    let x = if rank == 2 { given.unsqueeze(0) } else { given };
    let size = a.ints_n(1, 2, 1)?;
    let c = Columns::new(a, 2, [size[0], size[1]])?;
    let (n, columns) = (x.size(0), x.size(1));
    let window = c.kernel[0] * c.kernel[1];
    ensure!(
        columns % window == 0,
        "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but \
         got input.size(1)={columns} and kernel_size={:?}.",
        c.kernel.as_slice()
    );
    ensure!(
        x.size(2) == c.out[0] * c.out[1],
        "Given output_size={:?} and kernel_size={:?}, expected size of input's dimension 2 to \
         match the calculated number of sliding blocks {} * {} = {}, but got input.size(2)={}.",
        size.as_slice(),
        c.kernel.as_slice(),
        c.out[0],
        c.out[1],
        c.out[0] * c.out[1],
        x.size(2)
    );
    let channels = columns / window;
    let dtype = x.dtype();
    let x = x.convert(dtype.opmath()).reshape(&[n, channels, window, c.out[0], c.out[1]]);
    let zero = Number::Int(0).cast(x.dtype());
    let mut sum: Option<V<'b>> = None;
    for i in 0..c.kernel[0] {
        for j in 0..c.kernel[1] {
            let ((h0, h1), (w0, w1)) = (c.span(0, i), c.span(1, j));
            // Laid out in the unpadded image: what fell on the padding is cropped.
            let (ph, pw) = (c.padding[0], c.padding[1]);
            let part = x.at(2, i * c.kernel[1] + j).pad(
                zero,
                &[0, 0, h0 - ph, w0 - pw],
                &[0, 0, size[0] + ph - h1, size[1] + pw - w1],
                &[0, 0, c.stride[0] - 1, c.stride[1] - 1],
            );
            sum = Some(sum.map_or(part, |s| s + part));
        }
    }
    let y = sum.unwrap_or_else(|| zeros(x, &[n, channels, size[0], size[1]])).convert(dtype);
    (if rank == 2 { y.squeeze(0) } else { y }).out()
}
