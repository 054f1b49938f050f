//! Copies, concatenation and rearrangement of dimensions.

use super::args::wrap_dim;
use super::{Args, Out, Registry};
use crate::ensure;
use crate::error::Result;
use crate::ir::types::broadcast_shapes;
use crate::ir::{DType, Number, ReduceKind, ScatterKind, Shape, V};

pub(super) fn register(r: &mut Registry) {
    r.op("aten::copy", copy);
    r.op("aten::clone", |a| a.t(0)?.out());
    r.op("aten::cat", cat);
    r.op("aten::stack", stack);
    r.op("aten::flip", |a| {
        let x = a.t(0)?;
        let mut dims = Shape::new();
        for d in a.ints(1)? {
            let d = wrap_dim(d, x.rank())? as i64;
            ensure!(!dims.contains(&d), "dim {d} appears multiple times in the list of dims");
            dims.push(d);
        }
        if x.rank() == 0 || dims.is_empty() { x.out() } else { x.reverse(&dims).out() }
    });
    r.op("aten::roll", roll);
    r.op("aten::repeat", repeat);
    r.op("aten::tril", |a| triangle(a, true));
    r.op("aten::triu", |a| triangle(a, false));
    r.op("aten::diag_embed", diag_embed);
    r.op("aten::diagonal_backward", diagonal_backward);
    r.op("aten::diagonal_scatter", diagonal_scatter);
    r.op("aten::slice_backward", slice_backward);
    r.op("aten::select_backward", select_backward);
    r.op("aten::slice_scatter", slice_scatter);
    r.op("aten::select_scatter", select_scatter);
    r.op("aten::unfold_backward", unfold_backward);
    r.op("aten::masked_fill.Scalar", masked_fill);
    r.op("aten::masked_fill.Tensor", masked_fill);
    r.op("aten::pixel_shuffle", pixel_shuffle);
    r.op("aten::pixel_unshuffle", pixel_unshuffle);
    r.op("aten::channel_shuffle", channel_shuffle);
    r.sized("aten::repeat_interleave.Tensor", repeat_count, repeat_interleave);
}

/// (self, src, non_blocking): src in self's shape and dtype.
fn copy<'b>(a: &Args<'b>) -> Out<'b> {
    let (to, from) = (a.t(0)?, a.t(1)?);
    expand_to(from, &to.sizes())?.convert(to.dtype()).out()
}

/// `v` broadcast to exactly `sizes`, or PyTorch's message of why it doesn't fit.
pub(super) fn expand_to<'b>(v: V<'b>, sizes: &[i64]) -> Result<V<'b>> {
    let own = v.sizes();
    let common = broadcast_shapes(sizes, &own).map_err(crate::error::Error::runtime)?;
    ensure!(
        common.as_slice() == sizes,
        "output with shape {sizes:?} doesn't match the broadcast shape {:?}",
        common.as_slice()
    );
    Ok(v.broadcast_to(sizes))
}

fn cat<'b>(a: &Args<'b>) -> Out<'b> {
    let list = a.list(0)?;
    ensure!(!list.is_empty(), Value, "torch.cat(): expected a non-empty list of Tensors");
    let dtype = a.result_type(&[0])?;
    // One-dimensional empty tensors join anything.
    let real: Vec<V<'b>> = list.iter().copied().filter(|v| v.sizes().as_slice() != [0]).collect();
    let Some(first) = real.first() else { return list[0].convert(dtype).out() };
    let rank = first.rank();
    ensure!(rank > 0, "zero-dimensional tensor (at position 0) cannot be concatenated");
    let dim = wrap_dim(a.int(1)?, rank)?;
    for (i, v) in real.iter().enumerate() {
        ensure!(
            v.rank() == rank,
            "Tensors must have same number of dimensions: got {rank} and {}",
            v.rank()
        );
        for d in (0..rank).filter(|&d| d != dim) {
            ensure!(
                v.size(d) == first.size(d),
                "Sizes of tensors must match except in dimension {dim}. Expected size {} but got \
                 size {} for tensor number {i} in the list.",
                first.size(d),
                v.size(d)
            );
        }
    }
    let parts: Vec<V<'b>> = real.iter().map(|v| v.convert(dtype)).collect();
    a.b.concat(&parts, dim).out()
}

fn stack<'b>(a: &Args<'b>) -> Out<'b> {
    let list = a.list(0)?;
    ensure!(!list.is_empty(), "stack expects a non-empty TensorList");
    let (dtype, first) = (a.result_type(&[0])?, list[0]);
    let dim = wrap_dim(a.int(1)?, first.rank() + 1)?;
    let mut parts = Vec::with_capacity(list.len());
    for (i, v) in list.iter().enumerate() {
        ensure!(
            v.sizes() == first.sizes(),
            "stack expects each tensor to be equal size, but got {:?} at entry 0 and {:?} at \
             entry {i}",
            first.sizes().as_slice(),
            v.sizes().as_slice()
        );
        parts.push(v.convert(dtype).unsqueeze(dim));
    }
    a.b.concat(&parts, dim).out()
}

fn roll<'b>(a: &Args<'b>) -> Out<'b> {
    let x = a.t(0)?;
    let (shifts, dims) = (a.ints(1)?, a.ints(2)?);
    ensure!(!shifts.is_empty(), "`shifts` required");
    if dims.is_empty() && shifts.len() == 1 {
        return roll_dim(x.flatten(), 0, shifts[0]).reshape(&x.sizes()).out();
    }
    ensure!(
        shifts.len() == dims.len(),
        "shifts and dimensions must align. shifts: {}, dims:{}",
        shifts.len(),
        dims.len()
    );
    ensure!(x.rank() > 0, Index, "Dimension specified as {} but tensor has no dimensions", dims[0]);
    let mut y = x;
    for (&shift, &dim) in shifts.iter().zip(&dims) {
        y = roll_dim(y, wrap_dim(dim, x.rank())?, shift);
    }
    y.out()
}

fn roll_dim(x: V<'_>, dim: usize, shift: i64) -> V<'_> {
    let n = x.size(dim);
    if n == 0 || shift.rem_euclid(n) == 0 {
        return x;
    }
    let at = n - shift.rem_euclid(n);
    x.b.concat(&[x.slice(dim, at, n, 1), x.slice(dim, 0, at, 1)], dim)
}

fn repeat<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, repeats) = (a.t(0)?, a.ints(1)?);
    ensure!(
        repeats.len() >= x.rank(),
        "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor"
    );
    ensure!(
        repeats.iter().all(|&n| n >= 0),
        "Trying to create tensor with negative dimension in repeats {:?}",
        repeats.as_slice()
    );
    let new = repeats.len() - x.rank();
    let own = x.sizes();
    // Each dimension n repeated r times is [r, n] flattened.
    let (mut split, mut wide, mut flat) = (Shape::new(), Shape::new(), Shape::new());
    for (i, &r) in repeats.iter().enumerate() {
        let n = if i < new { 1 } else { own[i - new] };
        split.extend([1, n]);
        wide.extend([r, n]);
        flat.push(r * n);
    }
    x.reshape(&split).broadcast_to(&wide).reshape(&flat).out()
}

fn triangle<'b>(a: &Args<'b>, lower: bool) -> Out<'b> {
    let (x, diagonal) = (a.t(0)?, a.int(1)?);
    let rank = x.rank();
    ensure!(
        rank >= 2,
        "{}: input tensor must have at least 2 dimensions",
        if lower { "tril" } else { "triu" }
    );
    let sizes = [x.size(rank - 2), x.size(rank - 1)];
    let above = diagonal_number(x, &sizes);
    let keep = if lower { above.le(diagonal) } else { above.ge(diagonal) };
    keep.select(x, Number::Int(0).cast(x.dtype())).out()
}

/// Column minus row of a matrix's elements: the number of the diagonal each is on.
fn diagonal_number<'b>(like: V<'b>, sizes: &[i64]) -> V<'b> {
    like.b.iota(DType::I64, sizes, 1) - like.b.iota(DType::I64, sizes, 0)
}

/// The permutation that moves `d1` and `d2` to the end, and its inverse.
fn to_end(rank: usize, d1: usize, d2: usize) -> (Shape, Shape) {
    let mut perm: Shape = (0..rank as i64).filter(|&d| d != d1 as i64 && d != d2 as i64).collect();
    perm.extend([d1 as i64, d2 as i64]);
    let mut inverse = Shape::from_elem(0, rank);
    for (i, &p) in perm.iter().enumerate() {
        inverse[p as usize] = i as i64;
    }
    (perm, inverse)
}

fn diagonal_dims(a: &Args<'_>, i: usize, rank: usize) -> Result<(usize, usize)> {
    let (d1, d2) = (wrap_dim(a.int(i)?, rank)?, wrap_dim(a.int(i + 1)?, rank)?);
    ensure!(d1 != d2, "diagonal dimensions cannot be identical {d1}, {d2}");
    Ok((d1, d2))
}

fn diagonal_len(rows: i64, cols: i64, offset: i64) -> i64 {
    (if offset >= 0 { rows.min(cols - offset) } else { (rows + offset).min(cols) }).max(0)
}

/// `base` (or zeros) of shape `sizes` with `values` on the diagonal; its length is the last
/// dimension of `values`.
fn with_diagonal<'b>(
    values: V<'b>,
    sizes: &[i64],
    offset: i64,
    (d1, d2): (usize, usize),
    base: Option<V<'b>>,
) -> Result<V<'b>> {
    let (perm, inverse) = to_end(sizes.len(), d1, d2);
    let moved: Shape = perm.iter().map(|&p| sizes[p as usize]).collect();
    let rank = sizes.len();
    let (rows, cols) = (moved[rank - 2], moved[rank - 1]);
    let mut expected: Shape = moved[..rank - 2].into();
    expected.push(diagonal_len(rows, cols, offset));
    ensure!(
        values.sizes() == expected,
        "expected the diagonal to have a size equal to the slice of the input: {:?}, got {:?}",
        expected.as_slice(),
        values.sizes().as_slice()
    );
    let zero = Number::Int(0).cast(values.dtype());
    // The diagonal's k-th element is in row k (at or above the main one) or in column k.
    let across = if offset >= 0 { rows } else { cols };
    let line = values.pad_dim(zero, rank - 2, 0, across - values.size(rank - 2));
    let line = line.unsqueeze(if offset >= 0 { rank - 1 } else { rank - 2 }).broadcast_to(&moved);
    let on = diagonal_number(values, &[rows, cols]).eq(offset);
    Ok(match base {
        Some(base) => on.select(line, base.transpose(&perm)),
        None => on.select(line, zero),
    }
    .transpose(&inverse))
}

fn diag_embed<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, offset) = (a.t(0)?, a.int(1)?);
    ensure!(x.rank() > 0, "diag_embed: input must have at least one dimension");
    let rank = x.rank() + 1;
    let dims = diagonal_dims(a, 2, rank)?;
    let n = x.size(rank - 2) + offset.abs();
    let mut rest = x.sizes();
    rest.pop();
    let mut rest = rest.into_iter();
    let sizes: Shape = (0..rank)
        .map(|d| if d == dims.0 || d == dims.1 { n } else { rest.next().unwrap_or(1) })
        .collect();
    with_diagonal(x, &sizes, offset, dims, None)?.out()
}

fn diagonal_backward<'b>(a: &Args<'b>) -> Out<'b> {
    let sizes = a.ints(1)?;
    let dims = diagonal_dims(a, 3, sizes.len())?;
    with_diagonal(a.t(0)?, &sizes, a.int(2)?, dims, None)?.out()
}

fn diagonal_scatter<'b>(a: &Args<'b>) -> Out<'b> {
    let x = a.t(0)?;
    let dims = diagonal_dims(a, 3, x.rank())?;
    with_diagonal(a.t(1)?.convert(x.dtype()), &x.sizes(), a.int(2)?, dims, Some(x))?.out()
}

/// Where `start..end` of a dimension of `n` elements is, as slicing wraps and clamps it.
fn slice_range(n: i64, start: Option<i64>, end: Option<i64>) -> (i64, i64) {
    let wrap = |i: i64| if i < 0 { i.saturating_add(n) } else { i };
    let start = wrap(start.unwrap_or(0)).clamp(0, n);
    let end = wrap(end.unwrap_or(i64::MAX)).clamp(start, n);
    (start, end)
}

/// `part` placed at `start`, `start + step`, … of a dimension of `n` elements, zeros elsewhere.
fn place<'b>(part: V<'b>, dim: usize, n: i64, start: i64, step: i64, fill: Number) -> V<'b> {
    let m = part.size(dim);
    if m == 0 {
        let mut sizes = part.sizes();
        sizes[dim] = n;
        return part.b.full(fill, part.dtype(), &sizes);
    }
    let zeros = Shape::from_elem(0, part.rank());
    let (mut low, mut high, mut interior) = (zeros.clone(), zeros.clone(), zeros);
    (low[dim], interior[dim]) = (start, step - 1);
    high[dim] = n - start - ((m - 1) * step + 1);
    part.pad(fill, &low, &high, &interior)
}

fn slice_backward<'b>(a: &Args<'b>) -> Out<'b> {
    let (grad, sizes) = (a.t(0)?, a.ints(1)?);
    let dim = a.dim(2, sizes.len())?;
    let (start, _) = slice_range(sizes[dim], Some(a.int(3)?), Some(a.int(4)?));
    place(grad, dim, sizes[dim], start, a.int(5)?, Number::Int(0).cast(grad.dtype())).out()
}

fn select_backward<'b>(a: &Args<'b>) -> Out<'b> {
    let (grad, sizes) = (a.t(0)?, a.ints(1)?);
    let dim = a.dim(2, sizes.len())?;
    let index = a.int(3)?;
    let index = if index < 0 { index + sizes[dim] } else { index };
    let zero = Number::Int(0).cast(grad.dtype());
    place(grad.unsqueeze(dim), dim, sizes[dim], index, 1, zero).out()
}

fn slice_scatter<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, src) = (a.t(0)?, a.t(1)?);
    let dim = a.dim(2, x.rank())?;
    let (start, end) = slice_range(x.size(dim), a.opt_int(3)?, a.opt_int(4)?);
    let step = a.int(5)?;
    ensure!(step > 0, "slice step must be positive");
    let mut sizes = x.sizes();
    sizes[dim] = (end - start + step - 1) / step;
    let src = expand_to(src.convert(x.dtype()), &sizes)?;
    write_range(x, src, dim, start, step).out()
}

/// `x` with the positions `start`, `start + step`, … of a dimension replaced by `part`.
fn write_range<'b>(x: V<'b>, part: V<'b>, dim: usize, start: i64, step: i64) -> V<'b> {
    if part.numel() == 0 {
        return x;
    }
    if step == 1 {
        let mut starts = Shape::from_elem(0, x.rank());
        starts[dim] = start;
        return x.update_slice(part, &starts);
    }
    let (n, m) = (x.size(dim), part.size(dim));
    let placed = place(part, dim, n, start, step, Number::Int(0).cast(x.dtype()));
    let ones = x.b.full(true, DType::Bool, &[m]);
    let on = place(ones, 0, n, start, step, Number::Bool(false));
    on.broadcast_in_dim(&x.sizes(), &[dim as i64]).select(placed, x)
}

fn select_scatter<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, src) = (a.t(0)?, a.t(1)?);
    let dim = a.dim(2, x.rank())?;
    let (n, index) = (x.size(dim), a.int(3)?);
    ensure!(
        (-n..n).contains(&index),
        Index,
        "select(): index {index} out of range for tensor of size {:?} at dimension {dim}",
        x.sizes().as_slice()
    );
    let mut sizes = x.sizes();
    sizes.remove(dim);
    let src = expand_to(src.convert(x.dtype()), &sizes)?.unsqueeze(dim);
    write_range(x, src, dim, index.rem_euclid(n), 1).out()
}

/// (grad, input_sizes, dim, size, step): grad holds the windows along `dim`, their elements last.
fn unfold_backward<'b>(a: &Args<'b>) -> Out<'b> {
    const MAX_TERMS: i64 = 64;
    let (grad, sizes) = (a.t(0)?, a.ints(1)?);
    if sizes.is_empty() {
        return grad.reshape(&[]).out();
    }
    let dim = a.dim(2, sizes.len())?;
    let (size, step) = (a.int(3)?, a.int(4)?);
    let (n, windows, last) = (sizes[dim], grad.size(dim), sizes.len());
    let dtype = grad.dtype();
    let g = grad.convert(dtype.opmath());
    let zero = Number::Int(0).cast(g.dtype());
    let zeros = a.b.full(zero, g.dtype(), &sizes);
    if grad.numel() == 0 {
        return zeros.convert(dtype).out();
    }
    let sum = if size.min(windows) > MAX_TERMS {
        let index = a.b.iota(DType::I64, &[windows, size], 0) * step
            + a.b.iota(DType::I64, &[windows, size], 1);
        // Windows and their elements side by side, as rows of the dimension.
        let mut perm: Shape = (0..last as i64).collect();
        perm.insert(dim + 1, last as i64);
        let mut rows = sizes.clone();
        rows[dim] = windows * size;
        let updates = g.transpose(&perm).reshape(&rows);
        let kind = ScatterKind::Reduce(ReduceKind::Sum);
        super::scatter::rows(zeros, kind, dim, index.flatten(), updates)
    } else if size <= windows {
        let term = |j| place(g.at(last, j), dim, n, j, step, zero);
        (1..size).fold(term(0), |sum, j| sum + term(j))
    } else {
        // A window's elements take its place along `dim`.
        let mut perm: Shape = (0..last as i64 - 1).collect();
        perm.insert(dim, last as i64 - 1);
        let term = |w| place(g.at(dim, w).transpose(&perm), dim, n, w * step, 1, zero);
        (1..windows).fold(term(0), |sum, w| sum + term(w))
    };
    sum.convert(dtype).out()
}

/// (self, mask, value)
fn masked_fill<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, mask) = (a.t(0)?, a.t(1)?);
    ensure!(
        mask.dtype().is_bool(),
        "masked_fill_ only supports boolean masks, but got mask with dtype {}",
        mask.dtype()
    );
    let value = a.to(2, x.dtype())?;
    ensure!(
        value.rank() == 0,
        "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {} \
         dimension(s).",
        value.rank()
    );
    let (mask, x) = mask.broadcast_with(x);
    mask.select(value.broadcast_to(&x.sizes()), x).out()
}

fn pixel_shuffle<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, f) = (a.t(0)?, a.int(1)?);
    let rank = x.rank();
    ensure!(
        rank >= 3,
        "pixel_shuffle expects input to have at least 3 dimensions, but got input with {rank} \
         dimension(s)"
    );
    ensure!(f > 0, "pixel_shuffle expects a positive upscale_factor, but got {f}");
    let sizes = x.sizes();
    let (c, h, w) = (sizes[rank - 3], sizes[rank - 2], sizes[rank - 1]);
    ensure!(
        c % (f * f) == 0,
        "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of \
         upscale_factor, but input.size(-3)={c} is not divisible by {}",
        f * f
    );
    let batch: i64 = sizes[..rank - 3].iter().product();
    let y = x.reshape(&[batch, c / (f * f), f, f, h, w]).transpose(&[0, 1, 4, 2, 5, 3]);
    let mut out: Shape = sizes[..rank - 3].into();
    out.extend([c / (f * f), h * f, w * f]);
    y.reshape(&out).out()
}

fn pixel_unshuffle<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, f) = (a.t(0)?, a.int(1)?);
    let rank = x.rank();
    ensure!(
        rank >= 3,
        "pixel_unshuffle expects input to have at least 3 dimensions, but got input with {rank} \
         dimension(s)"
    );
    ensure!(f > 0, "pixel_unshuffle expects a positive downscale_factor, but got {f}");
    let sizes = x.sizes();
    let (c, h, w) = (sizes[rank - 3], sizes[rank - 2], sizes[rank - 1]);
    ensure!(
        h % f == 0 && w % f == 0,
        "pixel_unshuffle expects height and width to be divisible by downscale_factor, but \
         {h}x{w} is not divisible by {f}"
    );
    let batch: i64 = sizes[..rank - 3].iter().product();
    let y = x.reshape(&[batch, c, h / f, f, w / f, f]).transpose(&[0, 1, 3, 5, 2, 4]);
    let mut out: Shape = sizes[..rank - 3].into();
    out.extend([c * f * f, h / f, w / f]);
    y.reshape(&out).out()
}

fn channel_shuffle<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, groups) = (a.t(0)?, a.int(1)?);
    ensure!(
        x.rank() > 2,
        "channel_shuffle expects input with > 2 dims, but got input with sizes {:?}",
        x.sizes().as_slice()
    );
    let (b, c) = (x.size(0), x.size(1));
    ensure!(groups > 0, "Number of groups to divide channels in must be positive.");
    ensure!(
        c % groups == 0,
        "Number of channels must be divisible by groups. Got {c} channels and {groups} groups."
    );
    let rest: i64 = x.sizes()[2..].iter().product();
    let y = x.reshape(&[b, groups, c / groups, rest]).transpose(&[0, 2, 1, 3]);
    y.reshape(&x.sizes()).out()
}

/// (repeats, output_size): the size is known if the caller gives it.
fn repeat_count<'b>(a: &Args<'b>) -> Result<Option<V<'b>>> {
    if !a.is_none(1) {
        return Ok(None);
    }
    Ok(Some(a.t(0)?.convert(DType::I64).sum(&[0], false)))
}

/// Each position i of `repeats` in order, repeats[i] times.
fn repeat_interleave<'b>(a: &Args<'b>) -> Out<'b> {
    let repeats = a.t(0)?;
    ensure!(repeats.rank() == 1, "repeat_interleave only accept 1D vector as repeat");
    ensure!(
        matches!(repeats.dtype(), DType::I32 | DType::I64),
        "repeats has to be Long or Int tensor"
    );
    let dtype = repeats.dtype();
    let n = match a.opt_int(1)? {
        Some(n) => n,
        None => a.count().unwrap_or(0),
    };
    let zeros = a.b.full(0i64, dtype, &[n]);
    if n == 0 || repeats.numel() == 0 {
        return zeros.out();
    }
    // Element i ends where the running sum says; the ends passed so far are the number wanted.
    let ends = repeats.convert(DType::I64).cumulative(ReduceKind::Sum, 0);
    let ones = repeats.full_like(1i64);
    let passed = zeros.put_flat(ScatterKind::Reduce(ReduceKind::Sum), ends, ones, false);
    passed.cumulative(ReduceKind::Sum, 0).out()
}
