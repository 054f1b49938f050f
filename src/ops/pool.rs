//! Pooling and its gradients.
//!
//! The dimensions pooled are the last ones; the leading ones (batch, channels) only ride along.
//! A window's maximum is found one dimension after the other, its position kept beside it.

use super::{Args, Out, Registry, outs};
use crate::ensure;
use crate::error::Result;
use crate::ir::{DType, Number, ReduceKind, ScatterKind, Shape, V, WindowAttrs};

pub(super) fn register(r: &mut Registry) {
    r.op("aten::max_pool2d_with_indices", |a| max_pool(a, 2));
    r.op("aten::max_pool3d_with_indices", |a| max_pool(a, 3));
    r.op("aten::max_pool2d_with_indices_backward", |a| max_pool_backward(a, 2));
    r.op("aten::max_pool3d_with_indices_backward", |a| max_pool_backward(a, 3));
    r.op("aten::avg_pool2d", |a| avg_pool(a, 2));
    r.op("aten::avg_pool3d", |a| avg_pool(a, 3));
    r.op("aten::avg_pool2d_backward", |a| avg_pool_backward(a, 2));
    r.op("aten::avg_pool3d_backward", |a| avg_pool_backward(a, 3));
    r.op("aten::_adaptive_avg_pool2d", |a| adaptive_avg(a, 2));
    r.op("aten::_adaptive_avg_pool3d", |a| adaptive_avg(a, 3));
    r.op("aten::_adaptive_avg_pool2d_backward", |a| adaptive_avg_backward(a, 2));
    r.op("aten::_adaptive_avg_pool3d_backward", |a| adaptive_avg_backward(a, 3));
    r.op("aten::adaptive_max_pool2d", |a| adaptive_max(a, 2));
    r.op("aten::adaptive_max_pool3d", |a| adaptive_max(a, 3));
    r.op("aten::adaptive_max_pool2d_backward", |a| scatter_backward(a, 2, 2));
    r.op("aten::adaptive_max_pool3d_backward", |a| scatter_backward(a, 3, 2));
    r.op("aten::max_unpool2d", |a| max_unpool(a, 2));
    r.op("aten::max_unpool3d", |a| max_unpool(a, 3));
}

/// The windows along one dimension.
struct Axis {
    /// Elements of the dimension.
    n: i64,
    kernel: i64,
    stride: i64,
    padding: i64,
    dilation: i64,
    /// Windows.
    out: i64,
}

impl Axis {
    fn reach(&self) -> i64 {
        self.dilation * (self.kernel - 1)
    }

    /// Padding (or, if negative, cropping) behind the last element, so that the windows fit.
    fn high(&self) -> i64 {
        (self.out - 1) * self.stride + self.reach() + 1 - self.n - self.padding
    }
}

/// Which of a pool's arguments stand where, `None` for those it doesn't have.
struct Positions {
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: Option<usize>,
    ceil: usize,
}

fn axes(a: &Args<'_>, x: V<'_>, spatial: usize, p: Positions) -> Result<Vec<Axis>> {
    let rank = x.rank();
    ensure!(
        rank == spatial + 1 || rank == spatial + 2,
        "pooling: Expected {}D or {}D tensor, but got {:?}",
        spatial + 1,
        spatial + 2,
        x.sizes().as_slice()
    );
    let kernel = a.ints_n(p.kernel, spatial, 1)?;
    let stride = match a.ints(p.stride)? {
        s if s.is_empty() => kernel.clone(),
        _ => a.ints_n(p.stride, spatial, 1)?,
    };
    let padding = a.ints_n(p.padding, spatial, 0)?;
    let dilation = match p.dilation {
        Some(i) => a.ints_n(i, spatial, 1)?,
        None => Shape::from_elem(1, spatial),
    };
    let ceil = a.bool(p.ceil)?;
    let positive = |s: &Shape| s.iter().all(|&n| n > 0);
    ensure!(positive(&kernel), "kernel size should be greater than zero, but got {kernel:?}");
    ensure!(positive(&stride), "stride should not be zero, but got {stride:?}");
    ensure!(positive(&dilation), "dilation should be greater than zero, but got {dilation:?}");
    let mut axes = Vec::with_capacity(spatial);
    for i in 0..spatial {
        let mut axis = Axis {
            n: x.size(rank - spatial + i),
            kernel: kernel[i],
            stride: stride[i],
            padding: padding[i],
            dilation: dilation[i],
            out: 0,
        };
        ensure!(
            axis.padding >= 0 && axis.padding <= (axis.reach() + 1) / 2,
            "pad should be at most half of effective kernel size, but got pad={}, kernel_size={} \
             and dilation={}",
            axis.padding,
            axis.kernel,
            axis.dilation
        );
        let span = axis.n + 2 * axis.padding - axis.reach() - 1;
        let round = if ceil { axis.stride - 1 } else { 0 };
        axis.out = (span + round).div_euclid(axis.stride) + 1;
        // With ceil_mode the last window still has to start inside the input or its left padding.
        if ceil && (axis.out - 1) * axis.stride >= axis.n + axis.padding {
            axis.out -= 1;
        }
        ensure!(
            axis.out >= 1,
            "Given input size: {:?}. Calculated output size along dimension {i}: {}. Output size \
             is too small",
            x.sizes().as_slice(),
            axis.out
        );
        axes.push(axis);
    }
    Ok(axes)
}

/// The sizes of `x` with the last dimensions replaced.
fn with_last(x: V<'_>, last: impl ExactSizeIterator<Item = i64>) -> Shape {
    let mut sizes = x.sizes();
    sizes.truncate(x.rank() - last.len());
    sizes.extend(last);
    sizes
}

/// A maximum under way: values, and positions (i32) that grow into flat ones.
struct Best<'b> {
    value: V<'b>,
    at: V<'b>,
}

impl<'b> Best<'b> {
    /// As torch: a later element wins if it is larger, or NaN.
    fn meet(self, value: V<'b>, at: V<'b>) -> Best<'b> {
        let mut wins = value.gt(self.value);
        if value.dtype().is_float() {
            wins = wins.or(value.is_nan());
        }
        Best { value: wins.select(value, self.value), at: wins.select(at, self.at) }
    }
}

const POSITION: DType = DType::I32;

/// The elements at `axis.out` windows' `k`-th position along `dim` of the padded `x`.
fn tap<'b>(padded: V<'b>, dim: usize, axis: &Axis, k: i64) -> V<'b> {
    let start = k * axis.dilation;
    padded.slice(dim, start, start + (axis.out - 1) * axis.stride + 1, axis.stride)
}

fn max_pool<'b>(a: &Args<'b>, spatial: usize) -> Out<'b> {
    let x = a.t(0)?;
    let p = Positions { kernel: 1, stride: 2, padding: 3, dilation: Some(4), ceil: 5 };
    let axes = axes(a, x, spatial, p)?;
    let result = with_last(x, axes.iter().map(|axis| axis.out));
    if result.contains(&0) {
        return outs([a.b.full(0i64, x.dtype(), &result), a.b.full(0i64, DType::I64, &result)]);
    }
    let lead = x.rank() - spatial;
    let lowest = x.dtype().min_value();
    let (mut value, mut at): (V<'b>, Option<V<'b>>) = (x, None);
    // The first element of each window, where nothing is larger than the lowest value.
    let mut first: Option<V<'b>> = None;
    let mut pitch = 1;
    for (i, axis) in axes.iter().enumerate().rev() {
        let dim = lead + i;
        let mut sizes = value.sizes();
        let padded = value.pad_dim(lowest, dim, axis.padding, axis.high());
        // Positions along `dim`, in the line and among the windows.
        sizes[dim] = padded.size(dim);
        let mut along = (a.b.iota(POSITION, &sizes, dim) - axis.padding) * pitch;
        if let Some(at) = at {
            along = along + at.pad_dim(0i64, dim, axis.padding, axis.high());
        }
        sizes[dim] = axis.out;
        let start = a.b.iota(POSITION, &sizes, dim) * axis.stride - axis.padding;
        // Steps of the dilation that it takes to leave the padding.
        let outside = (-start).max(0i64) + (axis.dilation - 1);
        let inside = start + outside / outside.full_like(axis.dilation) * axis.dilation;
        let mut origin = inside * pitch;
        if let Some(f) = first {
            // The dimensions after this one are windows already.
            let mut line = f.sizes();
            line[dim] = 1;
            let zeros = Shape::from_elem(0, line.len());
            let ones = Shape::from_elem(1, line.len());
            let f = f.slices(&zeros, &line, &ones);
            origin = origin + f.broadcast_to(&sizes);
        }
        let mut best = Best { value: a.b.full(lowest, x.dtype(), &sizes), at: origin };
        for k in 0..axis.kernel {
            best = best.meet(tap(padded, dim, axis, k), tap(along, dim, axis, k));
        }
        (value, at, first) = (best.value, Some(best.at), Some(origin));
        pitch *= axis.n;
    }
    let at = at.unwrap_or_else(|| a.b.full(0i64, POSITION, &result));
    outs([value, at.convert(DType::I64)])
}

/// (grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices)
fn max_pool_backward<'b>(a: &Args<'b>, spatial: usize) -> Out<'b> {
    // From here on the terms of the sum cost more than a loop over the indices.
    const MAX_TERMS: i64 = 50;
    let (grad, x, indices) = (a.t(0)?, a.t(1)?, a.t(7)?);
    let p = Positions { kernel: 2, stride: 3, padding: 4, dilation: Some(5), ceil: 6 };
    let axes = axes(a, x, spatial, p)?;
    let result = with_last(x, axes.iter().map(|axis| axis.out));
    ensure!(
        grad.sizes() == result && indices.sizes() == result,
        "max_pool backward: expected grad_output and indices of shape {:?}, but got {:?} and {:?}",
        result.as_slice(),
        grad.sizes().as_slice(),
        indices.sizes().as_slice()
    );
    let terms: i64 = axes.iter().map(|axis| axis.kernel).product();
    if terms > MAX_TERMS || x.numel() == 0 {
        return scatter_backward(a, spatial, 7);
    }
    let dtype = x.dtype();
    let (grad, chosen) = (grad.convert(dtype.opmath()), indices.convert(POSITION));
    let zero = Number::Int(0).cast(grad.dtype());
    let lead = x.rank() - spatial;
    // The flat position of each window's origin.
    let mut origin = a.b.full(0i64, POSITION, &result);
    let mut pitches = Shape::from_elem(1, spatial);
    for i in (0..spatial).rev() {
        if i + 1 < spatial {
            pitches[i] = pitches[i + 1] * axes[i + 1].n;
        }
        let start = a.b.iota(POSITION, &result, lead + i) * axes[i].stride - axes[i].padding;
        origin = origin + start * pitches[i];
    }
    let zeros = Shape::from_elem(0, x.rank());
    let mut sum: Option<V<'b>> = None;
    for term in 0..terms {
        let (mut rest, mut offset) = (term, 0);
        let (mut low, mut high, mut interior) = (zeros.clone(), zeros.clone(), zeros.clone());
        for i in (0..spatial).rev() {
            let (axis, d) = (&axes[i], lead + i);
            let k = rest % axis.kernel * axis.dilation;
            rest /= axis.kernel;
            offset += k * pitches[i];
            (low[d], interior[d]) = (k - axis.padding, axis.stride - 1);
            high[d] = axis.n - low[d] - ((axis.out - 1) * axis.stride + 1);
        }
        // A position that matches but lies in the padding is another row's: cropped away.
        let hit = chosen.eq(origin + offset);
        let part = hit.select(grad, zero).pad(zero, &low, &high, &interior);
        sum = Some(sum.map_or(part, |s| s + part));
    }
    sum.unwrap_or_else(|| x.full_like(0i64)).convert(dtype).out()
}

/// `x` with the last `spatial` dimensions as one and the leading ones as another.
fn planes(x: V<'_>, spatial: usize) -> V<'_> {
    let sizes = x.sizes();
    let (lead, last) = sizes.split_at(x.rank() - spatial);
    x.reshape(&[lead.iter().product(), last.iter().product()])
}

/// (grad_output, self, …, indices at `i`): each gradient added at its position in the plane.
fn scatter_backward<'b>(a: &Args<'b>, spatial: usize, i: usize) -> Out<'b> {
    let (grad, x, indices) = (a.t(0)?, a.t(1)?, a.t(i)?);
    if x.numel() == 0 || grad.numel() == 0 {
        return x.full_like(0i64).out();
    }
    let dtype = x.dtype();
    let base = planes(x, spatial).convert(dtype.opmath()).full_like(0i64);
    let grad = planes(grad.convert(dtype.opmath()), spatial);
    let sum = ScatterKind::Reduce(ReduceKind::Sum);
    put_planes(base, sum, planes(indices, spatial), grad).reshape(&x.sizes()).convert(dtype).out()
}

/// Writes or adds `updates` [planes, m] into `base` [planes, n] at `indices` [planes, m].
fn put_planes<'b>(base: V<'b>, kind: ScatterKind, indices: V<'b>, updates: V<'b>) -> V<'b> {
    let n = base.size(1);
    let row = base.b.iota(DType::I64, &indices.sizes(), 0);
    let index = indices.convert(DType::I64) + row * n;
    base.flatten().put_flat(kind, index, updates, false).reshape(&base.sizes())
}

fn window<'b>(x: V<'b>, spatial: usize, entry: impl Fn(usize) -> [i64; 6]) -> V<'b> {
    let (rank, lead) = (x.rank(), x.rank() - spatial);
    let ones = Shape::from_elem(1, rank);
    let zeros = Shape::from_elem(0, rank);
    let mut w = WindowAttrs {
        sizes: ones.clone(),
        strides: ones.clone(),
        base_dilation: ones.clone(),
        window_dilation: ones,
        pad_low: zeros.clone(),
        pad_high: zeros,
    };
    for i in 0..spatial {
        let d = lead + i;
        [
            w.sizes[d],
            w.strides[d],
            w.base_dilation[d],
            w.window_dilation[d],
            w.pad_low[d],
            w.pad_high[d],
        ] = entry(i);
    }
    x.reduce_window(ReduceKind::Sum, w)
}

/// What each window's sum is divided by, broadcasting against the result.
fn divisor<'b>(
    like: V<'b>,
    axes: &[Axis],
    include_padding: bool,
    given: Option<i64>,
) -> Result<V<'b>> {
    let b = like.b;
    if let Some(n) = given {
        ensure!(n != 0, "divisor must be not zero");
        return Ok(b.full(n, like.dtype(), &[]));
    }
    let lead = like.rank() - axes.len();
    let mut product = b.full(1i64, like.dtype(), &[]);
    for (i, axis) in axes.iter().enumerate() {
        // Beyond its padding a window isn't counted even where padding is.
        let (low, high) =
            if include_padding { (-axis.padding, axis.n + axis.padding) } else { (0, axis.n) };
        let last = (axis.out - 1) * axis.stride - axis.padding;
        let count = if -axis.padding >= low && last + axis.kernel <= high {
            b.full(axis.kernel, like.dtype(), &[])
        } else {
            let start = b.iota(DType::I64, &[axis.out], 0) * axis.stride - axis.padding;
            let count = (start + axis.kernel).min(high) - start.max(low);
            let mut sizes = Shape::from_elem(1, like.rank());
            sizes[lead + i] = axis.out;
            count.convert(like.dtype()).reshape(&sizes)
        };
        product = match (product.as_constant(), count.as_constant()) {
            (Some(x), Some(y)) => b.full(x.to_f64() * y.to_f64(), like.dtype(), &[]),
            _ => product * count,
        };
    }
    Ok(product)
}

/// (self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
fn avg_pool<'b>(a: &Args<'b>, spatial: usize) -> Out<'b> {
    let x = a.t(0)?;
    let p = Positions { kernel: 1, stride: 2, padding: 3, dilation: None, ceil: 4 };
    let axes = axes(a, x, spatial, p)?;
    let dtype = x.dtype();
    ensure!(
        dtype.is_float(),
        NotImplemented,
        "\"avg_pool{spatial}d\" not implemented for '{}'",
        dtype.scalar_type_name()
    );
    let x = x.convert(dtype.opmath());
    let result = with_last(x, axes.iter().map(|axis| axis.out));
    if result.contains(&0) {
        return a.b.full(0i64, dtype, &result).out();
    }
    let sum = window(x, spatial, |i| {
        let axis = &axes[i];
        // Elements behind the last window need no cropping.
        [axis.kernel, axis.stride, 1, 1, axis.padding, axis.high().max(0)]
    });
    let by = divisor(sum, &axes, a.bool(5)?, a.opt_int(6)?)?;
    (sum / by).convert(dtype).out()
}

/// (grad_output, self, kernel_size, stride, padding, ceil_mode, count_include_pad,
/// divisor_override)
fn avg_pool_backward<'b>(a: &Args<'b>, spatial: usize) -> Out<'b> {
    let (grad, x) = (a.t(0)?, a.t(1)?);
    let p = Positions { kernel: 2, stride: 3, padding: 4, dilation: None, ceil: 5 };
    let axes = axes(a, x, spatial, p)?;
    let dtype = x.dtype();
    if x.numel() == 0 {
        return x.full_like(0i64).out();
    }
    let grad = grad.convert(dtype.opmath());
    let share = grad / divisor(grad, &axes, a.bool(6)?, a.opt_int(7)?)?;
    // Each element sums the windows that it is in: again a window, over the gradient spread out.
    let sum = window(share, spatial, |i| {
        let axis = &axes[i];
        let low = axis.kernel - 1 - axis.padding;
        let spread = (axis.out - 1) * axis.stride + 1;
        [axis.kernel, 1, axis.stride, 1, low, axis.n + axis.kernel - 1 - spread - low]
    });
    sum.convert(dtype).out()
}

/// Where an adaptive pool's windows start and end along a dimension of `n` elements.
fn adaptive_bounds<'b>(like: V<'b>, n: i64, out: i64) -> (V<'b>, V<'b>) {
    let o = like.b.iota(DType::I64, &[out], 0);
    let start = o * n / o.full_like(out);
    let end = ((o + 1i64) * n + (out - 1)) / o.full_like(out);
    (start, end)
}

fn adaptive_sizes(a: &Args<'_>, x: V<'_>, spatial: usize) -> Result<Shape> {
    let rank = x.rank();
    ensure!(
        rank == spatial + 1 || rank == spatial + 2,
        "adaptive pooling: Expected {}D or {}D tensor, but got {:?}",
        spatial + 1,
        spatial + 2,
        x.sizes().as_slice()
    );
    let out = a.ints_n(1, spatial, 1)?;
    ensure!(out.iter().all(|&n| n >= 0), "adaptive pooling: output_size must be non-negative");
    ensure!(
        x.sizes()[rank - spatial..].iter().all(|&n| n > 0),
        "adaptive pooling: Expected input to have non-zero size for non-batch dimensions, but \
         input has sizes {:?}",
        x.sizes().as_slice()
    );
    Ok(out)
}

/// Which elements (second dimension) each window (first) has, and each window's share.
fn adaptive_mask<'b>(like: V<'b>, n: i64, out: i64) -> (V<'b>, V<'b>) {
    let (start, end) = adaptive_bounds(like, n, out);
    let i = like.b.iota(DType::I64, &[out, n], 1);
    let (first, past) = (start.unsqueeze(1), end.unsqueeze(1));
    (i.ge(first).and(i.lt(past)), (end - start).convert(like.dtype()))
}

/// (self, output_size)
fn adaptive_avg<'b>(a: &Args<'b>, spatial: usize) -> Out<'b> {
    let x = a.t(0)?;
    let out = adaptive_sizes(a, x, spatial)?;
    let dtype = x.dtype();
    let lead = x.rank() - spatial;
    let mut y = x.convert(dtype.opmath());
    if with_last(x, out.iter().copied()).contains(&0) {
        return a.b.full(0i64, dtype, &with_last(x, out.iter().copied())).out();
    }
    let even = (0..spatial).all(|i| x.size(lead + i) % out[i] == 0);
    if even {
        // Equal windows: a mean over split dimensions.
        let (mut split, mut dims): (Shape, Shape) = (x.sizes()[..lead].into(), Shape::new());
        for i in 0..spatial {
            dims.push(split.len() as i64 + 1);
            split.extend([out[i], x.size(lead + i) / out[i]]);
        }
        return y.reshape(&split).mean(&dims, false).convert(dtype).out();
    }
    for i in (0..spatial).rev() {
        let dim = lead + i;
        let n = y.size(dim);
        if out[i] == n {
            continue;
        }
        let (mask, count) = adaptive_mask(y, n, out[i]);
        let mut wide = y.sizes();
        wide.insert(dim, out[i]);
        let rows = y.unsqueeze(dim).broadcast_to(&wide);
        let mask = mask.broadcast_in_dim(&wide, &[dim as i64, dim as i64 + 1]);
        let sum = mask.select(rows, 0.0).sum(&[dim as i64 + 1], false);
        y = sum / count.broadcast_in_dim(&sum.sizes(), &[dim as i64]);
    }
    y.convert(dtype).out()
}

/// (grad_output, self)
fn adaptive_avg_backward<'b>(a: &Args<'b>, spatial: usize) -> Out<'b> {
    let (grad, x) = (a.t(0)?, a.t(1)?);
    let dtype = x.dtype();
    let lead = x.rank() - spatial;
    if grad.numel() == 0 || x.numel() == 0 {
        return x.full_like(0i64).out();
    }
    let mut g = grad.convert(dtype.opmath());
    let even = (0..spatial).all(|i| x.size(lead + i) % grad.size(lead + i) == 0);
    if even {
        let (mut split, mut wide): (Shape, Shape) =
            (x.sizes()[..lead].into(), x.sizes()[..lead].into());
        let mut window = 1;
        for d in lead..x.rank() {
            let k = x.size(d) / grad.size(d);
            window *= k;
            split.extend([grad.size(d), 1]);
            wide.extend([grad.size(d), k]);
        }
        let share = g / (window as f64);
        return share.reshape(&split).broadcast_to(&wide).reshape(&x.sizes()).convert(dtype).out();
    }
    for d in lead..x.rank() {
        let (n, out) = (x.size(d), g.size(d));
        if n == out {
            continue;
        }
        let (mask, count) = adaptive_mask(g, n, out);
        let share = g / count.broadcast_in_dim(&g.sizes(), &[d as i64]);
        let mut wide = g.sizes();
        wide.insert(d + 1, n);
        let rows = share.unsqueeze(d + 1).broadcast_to(&wide);
        let mask = mask.broadcast_in_dim(&wide, &[d as i64, d as i64 + 1]);
        g = mask.select(rows, 0.0).sum(&[d as i64], false);
    }
    g.convert(dtype).out()
}

/// (self, output_size)
fn adaptive_max<'b>(a: &Args<'b>, spatial: usize) -> Out<'b> {
    let x = a.t(0)?;
    let out = adaptive_sizes(a, x, spatial)?;
    let result = with_last(x, out.iter().copied());
    if result.contains(&0) {
        return outs([a.b.full(0i64, x.dtype(), &result), a.b.full(0i64, DType::I64, &result)]);
    }
    let lead = x.rank() - spatial;
    let (mut value, mut at): (V<'b>, Option<V<'b>>) = (x, None);
    let mut pitch = 1;
    for i in (0..spatial).rev() {
        let (dim, n) = (lead + i, x.size(lead + i));
        let (start, end) = adaptive_bounds(x, n, out[i]);
        let longest = (0..out[i])
            .map(|o| ((o + 1) * n + out[i] - 1) / out[i] - o * n / out[i])
            .max()
            .unwrap_or(1);
        let mut best: Option<Best<'b>> = None;
        for k in 0..longest {
            // Shorter windows see their last element again, which changes nothing.
            let index = (start + k).min(end - 1i64);
            let v = value.take(dim, index);
            let mut p =
                (index.convert(POSITION) * pitch).broadcast_in_dim(&v.sizes(), &[dim as i64]);
            if let Some(at) = at {
                p = p + at.take(dim, index);
            }
            best = Some(match best {
                None => Best { value: v, at: p },
                Some(b) => b.meet(v, p),
            });
        }
        if let Some(best) = best {
            (value, at) = (best.value, Some(best.at));
        }
        pitch *= n;
    }
    let at = at.unwrap_or_else(|| a.b.full(0i64, POSITION, &result));
    outs([value, at.convert(DType::I64)])
}

/// (self, indices, output_size, …)
fn max_unpool<'b>(a: &Args<'b>, spatial: usize) -> Out<'b> {
    let (x, indices) = (a.t(0)?, a.t(1)?);
    ensure!(
        indices.dtype() == DType::I64,
        "elements in indices should be type int64 but got: {}",
        indices.dtype().scalar_type_name()
    );
    ensure!(
        x.sizes() == indices.sizes(),
        "Expected shape of indices to be same as that of the input tensor ({:?}) but got indices \
         tensor with shape: {:?}",
        x.sizes().as_slice(),
        indices.sizes().as_slice()
    );
    let out = a.ints_n(2, spatial, 1)?;
    let result = with_last(x, out.iter().copied());
    let zeros = a.b.full(0i64, x.dtype(), &result);
    if x.numel() == 0 || zeros.numel() == 0 {
        return zeros.out();
    }
    let (base, updates) = (planes(zeros, spatial), planes(x, spatial));
    put_planes(base, ScatterKind::Set, planes(indices, spatial), updates).reshape(&result).out()
}
