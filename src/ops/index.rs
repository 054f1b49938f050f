//! Reading by index: gather, indexing, masks, embedding.
//!
//! An index out of range is an error in torch; here it is clamped (reads) or dropped (writes).

use super::{Args, Out, Registry};
use crate::ensure;
use crate::error::{Error, ErrorKind, Result};
use crate::ir::types::broadcast_shapes;
use crate::ir::{DType, GatherAttrs, Number, ReduceKind, ScatterKind, Shape, V};

pub(super) fn register(r: &mut Registry) {
    r.op("aten::gather", gather);
    for name in ["aten::index.Tensor", "aten::_unsafe_index.Tensor"] {
        r.sized(name, |a| masks_count(a.t(0)?, &a.opt_list(1)?), index);
    }
    r.op("aten::index_select", index_select);
    r.op("aten::take", |a| {
        let (x, index) = (a.t(0)?, a.t(1)?);
        ensure!(
            index.dtype() == DType::I64,
            "take(): Expected a long tensor for index, but got {}",
            index.dtype().scalar_type_name()
        );
        if index.numel() == 0 {
            return a.b.full(0i64, x.dtype(), &index.sizes()).out();
        }
        ensure!(x.numel() > 0, Index, "take(): tried to take from an empty tensor");
        x.take_flat(wrap(index, x.numel())).out()
    });
    r.sized(
        "aten::masked_select",
        |a| {
            let (mask, x) = a.t(1)?.broadcast_with(a.t(0)?);
            ensure!(
                mask.dtype().is_bool(),
                "masked_select: expected BoolTensor for mask, but got {}",
                mask.dtype()
            );
            // Both sides broadcast, so the mask has the values' shape.
            debug_assert_eq!(mask.sizes(), x.sizes());
            Ok(Some(count_true(mask)))
        },
        |a| {
            let (mask, x) = a.t(1)?.broadcast_with(a.t(0)?);
            let n = counted(a)?;
            if n == 0 {
                return a.b.full(0i64, x.dtype(), &[0]).out();
            }
            x.take_flat(positions(mask, n)).out()
        },
    );
    r.sized(
        "aten::nonzero",
        |a| Ok(Some(count_true(a.t(0)?))),
        |a| {
            let (x, n) = (a.t(0)?, counted(a)?);
            coordinates(x, positions(x, n)).out()
        },
    );
    r.op("aten::nonzero_static", nonzero_static);
    r.op("aten::embedding", embedding);
    r.op("aten::embedding_dense_backward", embedding_dense_backward);
}

/// Indices counted from the end where negative.
pub(super) fn wrap(index: V<'_>, n: i64) -> V<'_> {
    if index.dtype().is_unsigned() {
        return index.convert(DType::I64);
    }
    let index = index.convert(DType::I64);
    index.lt(0i64).select(index + n, index)
}

pub(super) fn check_integer_index(op: &str, index: V<'_>) -> Result<()> {
    ensure!(
        matches!(index.dtype(), DType::I32 | DType::I64),
        "{op}(): Expected dtype int32/int64 for index, but got {}",
        index.dtype()
    );
    Ok(())
}

/// A 0-dimensional value as one of a single element.
pub(super) fn at_least_1d(v: V<'_>) -> V<'_> {
    if v.rank() == 0 { v.reshape(&[1]) } else { v }
}

/// The size that the host read from the count graph.
pub(super) fn counted(a: &Args<'_>) -> Result<i64> {
    a.count().ok_or_else(|| Error::runtime("the size of the result isn't known"))
}

/// How many elements aren't zero: an i64 scalar.
pub(super) fn count_true(mask: V<'_>) -> V<'_> {
    mask.convert(DType::Bool).convert(DType::I64).sum(&mask.all_dims(), false)
}

/// The flat positions of the `n` elements that aren't zero, in order.
pub(super) fn positions(mask: V<'_>, n: i64) -> V<'_> {
    let total = mask.numel();
    if n == 0 || total == 0 {
        return mask.b.full(0i64, DType::I64, &[0]);
    }
    // The others sort behind them.
    let dtype = if total < i64::from(i32::MAX) { DType::I32 } else { DType::I64 };
    let key = mask.convert(DType::Bool).flatten();
    let key = key.select(mask.b.iota(dtype, &[total], 0), total);
    mask.b.sort(&[key], 0, false)[0].slice(0, 0, n, 1).convert(DType::I64)
}

/// Flat positions as one index a dimension.
fn unravel<'b>(flat: V<'b>, sizes: &[i64]) -> Vec<V<'b>> {
    let mut stride = 1;
    let mut out = Vec::with_capacity(sizes.len());
    for (i, &n) in sizes.iter().enumerate().rev() {
        let n = n.max(1);
        let part = if stride == 1 { flat } else { flat / flat.full_like(stride) };
        out.push(if i == 0 { part } else { part.rem(n) });
        stride *= n;
    }
    out.reverse();
    out
}

/// Flat positions in `x` as rows of coordinates.
fn coordinates<'b>(x: V<'b>, flat: V<'b>) -> V<'b> {
    let sizes = x.sizes();
    if sizes.is_empty() || flat.numel() == 0 {
        return x.b.full(0i64, DType::I64, &[flat.size(0), sizes.len() as i64]);
    }
    let columns: Vec<V<'b>> = unravel(flat, &sizes).into_iter().map(|c| c.unsqueeze(1)).collect();
    x.b.concat(&columns, 1)
}

/// (self, size, fill_value): the first `size` positions, missing ones filled up.
fn nonzero_static<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, size, fill) = (a.t(0)?, a.int(1)?, a.int(2)?);
    ensure!(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
    let n = size.min(x.numel());
    let rank = x.rank() as i64;
    let found = coordinates(x, positions(x, n));
    let known = a.b.iota(DType::I64, &[n, rank], 0).lt(count_true(x));
    known.select(found, fill).pad_dim(fill, 0, 0, size - n).out()
}

/// The elements of `x` at `index` along `dim`: `index` has `x`'s rank and at most its size
/// elsewhere; the result has its shape.
pub(super) fn gather_along<'b>(x: V<'b>, dim: usize, index: V<'b>) -> V<'b> {
    let mut box_ = index.sizes();
    box_[dim] = x.size(dim);
    let rank = x.rank();
    let x = x.slices(&Shape::from_elem(0, rank), &box_, &Shape::from_elem(1, rank));
    let others: Shape = (0..rank as i64).filter(|&d| d != dim as i64).collect();
    x.gather(
        index,
        GatherAttrs {
            offset_dims: Shape::new(),
            collapsed_slice_dims: [dim as i64].as_slice().into(),
            operand_batching_dims: others.clone(),
            start_indices_batching_dims: others,
            start_index_map: [dim as i64].as_slice().into(),
            index_vector_dim: rank as i64,
            slice_sizes: Shape::from_elem(1, rank),
        },
    )
}

/// Checks that `index` fits into `x` except along `dim`.
pub(super) fn check_along(op: &str, x: V<'_>, dim: usize, index: V<'_>) -> Result<()> {
    ensure!(
        x.rank() == index.rank(),
        "Index tensor must have the same number of dimensions as input tensor"
    );
    for d in (0..x.rank()).filter(|&d| d != dim) {
        ensure!(
            index.size(d) <= x.size(d),
            "{op}(): Size does not match at dimension {d} expected index {:?} to be no larger \
             than self {:?} apart from dimension {dim}",
            index.sizes().as_slice(),
            x.sizes().as_slice()
        );
    }
    Ok(())
}

/// (self, dim, index, sparse_grad)
fn gather<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, index) = (a.t(0)?, a.t(2)?);
    ensure!(
        matches!(index.dtype(), DType::I32 | DType::I64),
        "gather(): Expected dtype int32/int64 for index, but got {}",
        index.dtype()
    );
    let sizes = index.sizes();
    let dim = a.dim(1, x.rank())?;
    if index.numel() == 0 {
        return a.b.full(0i64, x.dtype(), &sizes).out();
    }
    let (x, index) = (at_least_1d(x), at_least_1d(index));
    check_along("gather", x, dim, index)?;
    ensure!(x.size(dim) > 0, Index, "gather(): dimension {dim} of self is empty");
    gather_along(x, dim, index).reshape(&sizes).out()
}

/// (self, dim, index)
fn index_select<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, index) = (a.t(0)?, a.t(2)?);
    check_integer_index("index_select", index)?;
    ensure!(
        index.rank() <= 1,
        Index,
        "index_select(): Index is supposed to be a vector, but got dim: {} with type: {} and \
         size: {:?}",
        index.rank(),
        index.dtype().scalar_type_name(),
        index.sizes().as_slice()
    );
    let dim = a.dim(1, x.rank())?;
    let index = at_least_1d(index);
    if x.rank() == 0 {
        ensure!(
            index.numel() == 1,
            "index_select(): Index to scalar can have only 1 value, got {} value(s)",
            index.numel()
        );
        return x.out();
    }
    let mut sizes = x.sizes();
    sizes[dim] = index.numel();
    if sizes.contains(&0) {
        return a.b.full(0i64, x.dtype(), &sizes).out();
    }
    ensure!(x.size(dim) > 0, Index, "index out of range in self");
    x.take(dim, index).out()
}

fn is_mask(v: V<'_>) -> bool {
    matches!(v.dtype(), DType::Bool | DType::U8)
}

/// The number of true elements of the masks among `indices`; −1 if they have different numbers.
pub(super) fn masks_count<'b>(x: V<'b>, indices: &[Option<V<'b>>]) -> Result<Option<V<'b>>> {
    check_masks(x, indices)?;
    let counts: Vec<V<'b>> =
        indices.iter().flatten().filter(|v| is_mask(**v)).map(|v| count_true(*v)).collect();
    let Some((&first, rest)) = counts.split_first() else { return Ok(None) };
    Ok(Some(rest.iter().fold(first, |all, &n| all.eq(n).select(all, -1i64))))
}

fn check_masks(x: V<'_>, indices: &[Option<V<'_>>]) -> Result<()> {
    let sizes = x.sizes();
    let mut dim = 0;
    for (i, index) in indices.iter().enumerate() {
        let Some(v) = index.filter(|v| is_mask(*v)) else {
            dim += 1;
            continue;
        };
        ensure!(v.rank() > 0, NotImplemented, "indexing with a 0-dimensional mask");
        let own = v.sizes();
        for (j, &n) in own.iter().enumerate() {
            ensure!(
                sizes.get(dim + j) == Some(&n),
                Index,
                "The shape of the mask {:?} at index {i} does not match the shape of the indexed \
                 tensor {:?} at index {}",
                own.as_slice(),
                sizes.as_slice(),
                dim + j
            );
        }
        dim += own.len();
    }
    Ok(())
}

/// Where a list of indices reads or writes.
pub(super) struct Places<'b> {
    /// The indexed dimensions.
    pub dims: Shape,
    /// Index vectors, their components in the last dimension (none for a single index).
    pub starts: V<'b>,
    /// The common shape of the indices.
    pub batch: Shape,
    /// Where `batch` stands in the result.
    pub at: usize,
    /// The shape of the result.
    pub sizes: Shape,
}

impl Places<'_> {
    /// The result's dimensions that hold what isn't indexed.
    pub fn window_dims(&self) -> Shape {
        let batch = self.at..self.at + self.batch.len();
        (0..self.sizes.len()).filter(|d| !batch.contains(d)).map(|d| d as i64).collect()
    }
}

/// Masks become the indices of their true elements, all broadcast together, negative ones wrap.
/// The result has the indices' shape in place of the indexed dimensions if these are side by
/// side, else in front.
pub(super) fn places<'b>(
    a: &Args<'b>,
    x: V<'b>,
    indices: &[Option<V<'b>>],
) -> Result<Option<Places<'b>>> {
    check_masks(x, indices)?;
    let own = x.sizes();
    let mut found: Vec<(usize, V<'b>)> = Vec::new();
    let mut dim = 0;
    for index in indices {
        match index {
            None => dim += 1,
            Some(v) if is_mask(*v) => {
                let n = counted(a)?;
                ensure!(n >= 0, NotImplemented, "indexing with masks of different counts");
                for coordinate in unravel(positions(*v, n), &v.sizes()) {
                    found.push((dim, coordinate));
                    dim += 1;
                }
            }
            Some(v) => {
                ensure!(
                    v.dtype().is_int(),
                    Index,
                    "tensors used as indices must be long, int, byte or bool tensors"
                );
                ensure!(
                    dim < own.len(),
                    Index,
                    "too many indices for tensor of dimension {}",
                    own.len()
                );
                found.push((dim, wrap(*v, own[dim])));
                dim += 1;
            }
        }
    }
    ensure!(
        dim <= own.len(),
        Index,
        "too many indices for tensor of dimension {} (got {dim})",
        own.len()
    );
    let Some(&(first, _)) = found.first() else { return Ok(None) };
    let mut batch = Shape::new();
    for (_, v) in &found {
        batch = broadcast_shapes(&batch, &v.sizes()).map_err(|_| {
            let shapes: Vec<_> = found.iter().map(|(_, v)| v.sizes().to_vec()).collect();
            Error::new(
                ErrorKind::Index,
                format!(
                    "shape mismatch: indexing tensors could not be broadcast together with \
                     shapes {shapes:?}"
                ),
            )
        })?;
    }
    let dims: Shape = found.iter().map(|(d, _)| *d as i64).collect();
    let adjacent = dims.windows(2).all(|w| w[1] == w[0] + 1);
    let at = if adjacent { first } else { 0 };
    let mut sizes: Shape =
        (0..own.len()).filter(|&d| !dims.contains(&(d as i64))).map(|d| own[d]).collect();
    sizes.insert_from_slice(at, &batch);
    let parts: Vec<V<'b>> = found.iter().map(|(_, v)| v.broadcast_to(&batch)).collect();
    let starts = match parts.as_slice() {
        [one] => *one,
        _ => {
            let columns: Vec<V<'b>> = parts.iter().map(|v| v.unsqueeze(batch.len())).collect();
            a.b.concat(&columns, batch.len())
        }
    };
    Ok(Some(Places { dims, starts, batch, at, sizes }))
}

/// (self, indices)
fn index<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, indices) = (a.t(0)?, a.opt_list(1)?);
    let Some(p) = places(a, x, &indices)? else { return x.out() };
    if p.sizes.contains(&0) {
        return a.b.full(0i64, x.dtype(), &p.sizes).out();
    }
    ensure!(
        p.dims.iter().all(|&d| x.size(d as usize) > 0),
        Index,
        "index is out of bounds for dimension with size 0"
    );
    let mut slice_sizes = x.sizes();
    p.dims.iter().for_each(|&d| slice_sizes[d as usize] = 1);
    x.gather(
        p.starts,
        GatherAttrs {
            offset_dims: p.window_dims(),
            collapsed_slice_dims: p.dims.clone(),
            operand_batching_dims: Shape::new(),
            start_indices_batching_dims: Shape::new(),
            start_index_map: p.dims.clone(),
            index_vector_dim: p.batch.len() as i64,
            slice_sizes,
        },
    )
    .out()
}

/// (weight, indices, padding_idx, scale_grad_by_freq, sparse)
fn embedding<'b>(a: &Args<'b>) -> Out<'b> {
    let (weight, indices) = (a.t(0)?, a.t(1)?);
    ensure!(weight.rank() == 2, "'weight' must be 2-D");
    ensure!(
        matches!(indices.dtype(), DType::I32 | DType::I64),
        "Expected tensor for argument #1 'indices' to have one of the following scalar types: \
         Long, Int; but got {} instead (while checking arguments for embedding)",
        indices.dtype().scalar_type_name()
    );
    let mut sizes = indices.sizes();
    sizes.push(weight.size(1));
    if sizes.contains(&0) {
        return a.b.full(0i64, weight.dtype(), &sizes).out();
    }
    ensure!(weight.size(0) > 0, Index, "index out of range in self");
    weight.take(0, indices).out()
}

/// (grad_output, indices, num_weights, padding_idx, scale_grad_by_freq)
fn embedding_dense_backward<'b>(a: &Args<'b>) -> Out<'b> {
    let (grad, indices) = (a.t(0)?, a.t(1)?);
    let (rows, padding) = (a.int(2)?, a.int(3)?);
    let dtype = grad.dtype();
    let compute = dtype.opmath();
    let width = grad.size(grad.rank() - 1);
    let n = indices.numel();
    let zeros = a.b.full(0i64, compute, &[rows, width]);
    if n == 0 || rows == 0 || width == 0 {
        return zeros.convert(dtype).out();
    }
    let sum = ScatterKind::Reduce(ReduceKind::Sum);
    let mut index = indices.convert(DType::I64).flatten();
    let mut grad = grad.convert(compute).reshape(&[n, width]);
    if a.bool(4)? {
        let ones = a.b.full(1i64, compute, &[n]);
        let counts = a.b.full(0i64, compute, &[rows]).put_flat(sum, index, ones, false);
        grad = grad / counts.take(0, index).unsqueeze(1);
    }
    if padding >= 0 {
        // Out of range: dropped.
        index = index.eq(padding).select(index.full_like(Number::Int(rows)), index);
    }
    super::scatter::rows(zeros, sum, 0, index, grad).convert(dtype).out()
}
