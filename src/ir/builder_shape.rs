//! The builder's shape, reduction and contraction primitives.

use smallvec::SmallVec;

use super::builder::{Operand, V, fail};
use super::{
    DType, DotAttrs, GatherAttrs, Number, Prim, ReduceKind, ScatterAttrs, ScatterKind, Shape,
    WindowAttrs,
};

impl<'b> V<'b> {
    pub fn reshape(self, sizes: &[i64]) -> V<'b> {
        self.b.add(Prim::Reshape(sizes.into()), &[self])
    }

    /// As one dimension.
    pub fn flatten(self) -> V<'b> {
        self.reshape(&[self.numel()])
    }

    /// Dimension `i` of the result is dimension `perm[i]` of this.
    pub fn transpose(self, perm: &[i64]) -> V<'b> {
        self.b.add(Prim::Transpose(perm.into()), &[self])
    }

    pub fn swap(self, i: usize, j: usize) -> V<'b> {
        let mut perm: Shape = (0..self.rank() as i64).collect();
        perm.swap(i, j);
        self.transpose(&perm)
    }

    /// The last two dimensions exchanged.
    pub fn t(self) -> V<'b> {
        let r = self.rank();
        if r < 2 { self } else { self.swap(r - 2, r - 1) }
    }

    pub fn unsqueeze(self, dim: usize) -> V<'b> {
        let mut sizes = self.sizes();
        sizes.insert(dim, 1);
        self.reshape(&sizes)
    }

    pub fn squeeze(self, dim: usize) -> V<'b> {
        let mut sizes = self.sizes();
        sizes.remove(dim);
        self.reshape(&sizes)
    }

    /// By NumPy's rules: dimensions aligned at the end, ones stretched.
    pub fn broadcast_to(self, sizes: &[i64]) -> V<'b> {
        let (rank, own) = (sizes.len(), self.sizes());
        if own.len() > rank {
            fail(format!("{} doesn't broadcast to {sizes:?}", self.ty()));
        }
        let offset = (rank - own.len()) as i64;
        let dims: Shape = (0..own.len() as i64).map(|i| i + offset).collect();
        self.broadcast_in_dim(sizes, &dims)
    }

    /// Dimension `i` becomes dimension `dims[i]` of the result.
    pub fn broadcast_in_dim(self, sizes: &[i64], dims: &[i64]) -> V<'b> {
        self.b.add(Prim::Broadcast { sizes: sizes.into(), dims: dims.into() }, &[self])
    }

    /// `start..end` of one dimension, every `step`-th.
    pub fn slice(self, dim: usize, start: i64, end: i64, step: i64) -> V<'b> {
        let limits = self.sizes();
        let (mut starts, mut ends) = (Shape::from_elem(0, limits.len()), limits);
        let mut strides = Shape::from_elem(1, ends.len());
        (starts[dim], ends[dim], strides[dim]) = (start, end, step);
        self.slices(&starts, &ends, &strides)
    }

    pub fn slices(self, starts: &[i64], limits: &[i64], strides: &[i64]) -> V<'b> {
        let prim =
            Prim::Slice { starts: starts.into(), limits: limits.into(), strides: strides.into() };
        self.b.add(prim, &[self])
    }

    /// Position `index` of one dimension, which disappears.
    pub fn at(self, dim: usize, index: i64) -> V<'b> {
        self.slice(dim, index, index + 1, 1).squeeze(dim)
    }

    /// Pads (or, by negative amounts, crops) with `value`.
    pub fn pad(
        self,
        value: impl Operand<'b>,
        low: &[i64],
        high: &[i64],
        interior: &[i64],
    ) -> V<'b> {
        let prim = Prim::Pad { low: low.into(), high: high.into(), interior: interior.into() };
        let value = value.of(self);
        self.b.add(prim, &[self, value])
    }

    /// Pads one dimension at its ends.
    pub fn pad_dim(self, value: impl Operand<'b>, dim: usize, low: i64, high: i64) -> V<'b> {
        let zeros = Shape::from_elem(0, self.rank());
        let (mut l, mut h) = (zeros.clone(), zeros.clone());
        (l[dim], h[dim]) = (low, high);
        self.pad(value, &l, &h, &zeros)
    }

    pub fn reverse(self, dims: &[i64]) -> V<'b> {
        self.b.add(Prim::Reverse(dims.into()), &[self])
    }

    pub fn dynamic_slice(self, starts: &[V<'b>], sizes: &[i64]) -> V<'b> {
        let mut operands: SmallVec<[V<'b>; 6]> = SmallVec::from_elem(self, 1);
        operands.extend_from_slice(starts);
        self.b.add(Prim::DynamicSlice(sizes.into()), &operands)
    }

    /// `count` positions of one dimension from `start` on.
    pub fn dynamic_slice_dim(self, dim: usize, start: V<'b>, count: i64) -> V<'b> {
        let mut sizes = self.sizes();
        sizes[dim] = count;
        self.dynamic_slice(&self.starts_at(dim, start), &sizes)
    }

    /// This value with the box at `starts` (i64, no dimensions) replaced by `update`.
    pub fn dynamic_update_slice(self, update: V<'b>, starts: &[V<'b>]) -> V<'b> {
        if self.sizes() == update.sizes() {
            return update;
        }
        let mut operands: SmallVec<[V<'b>; 8]> = SmallVec::from_slice(&[self, update]);
        operands.extend_from_slice(starts);
        self.b.add(Prim::DynamicUpdateSlice, &operands)
    }

    /// This value with the positions of one dimension from `start` on replaced by `update`.
    pub fn dynamic_update_dim(self, dim: usize, start: V<'b>, update: V<'b>) -> V<'b> {
        self.dynamic_update_slice(update, &self.starts_at(dim, start))
    }

    /// Zeros, but `start` for one dimension.
    fn starts_at(self, dim: usize, start: V<'b>) -> SmallVec<[V<'b>; 8]> {
        let mut starts = SmallVec::from_elem(start.full_like(0i64), self.rank());
        starts[dim] = start;
        starts
    }

    /// This value with the box at the constant position `starts` replaced by `update`.
    pub fn update_slice(self, update: V<'b>, starts: &[i64]) -> V<'b> {
        let starts: SmallVec<[V<'b>; 8]> =
            starts.iter().map(|&s| self.b.full(s, DType::I64, &[])).collect();
        self.dynamic_update_slice(update, &starts)
    }

    pub fn gather(self, starts: V<'b>, attrs: GatherAttrs) -> V<'b> {
        self.b.add(Prim::Gather(attrs), &[self, starts])
    }

    pub fn scatter(
        self,
        kind: ScatterKind,
        indices: V<'b>,
        updates: V<'b>,
        attrs: ScatterAttrs,
    ) -> V<'b> {
        self.b.add(Prim::Scatter(kind, attrs), &[self, indices, updates])
    }

    /// Rows of one dimension: the result has `index`'s shape in place of dimension `dim`.
    /// `index`: integers in `0..size(dim)`; others are clamped.
    pub fn take(self, dim: usize, index: V<'b>) -> V<'b> {
        let (rank, ir) = (self.rank() as i64, index.rank() as i64);
        let d = dim as i64;
        let mut slice_sizes = self.sizes();
        slice_sizes[dim] = 1;
        let offset_dims = (0..d).chain(d + ir..rank - 1 + ir).collect();
        self.gather(
            index,
            GatherAttrs {
                offset_dims,
                collapsed_slice_dims: [d].as_slice().into(),
                operand_batching_dims: Shape::new(),
                start_indices_batching_dims: Shape::new(),
                start_index_map: [d].as_slice().into(),
                index_vector_dim: ir,
                slice_sizes,
            },
        )
    }

    /// Elements of the flattened value: the result has `index`'s shape.
    pub fn take_flat(self, index: V<'b>) -> V<'b> {
        self.flatten().take(0, index)
    }

    /// Writes or accumulates `updates` (the shape of `index`) into this one-dimensional value at
    /// the positions `index`; positions out of range are dropped.
    pub fn put_flat(self, kind: ScatterKind, index: V<'b>, updates: V<'b>, unique: bool) -> V<'b> {
        let rank = index.rank() as i64;
        self.scatter(
            kind,
            index,
            updates,
            ScatterAttrs {
                update_window_dims: Shape::new(),
                inserted_window_dims: [0].as_slice().into(),
                input_batching_dims: Shape::new(),
                scatter_indices_batching_dims: Shape::new(),
                scatter_dims_to_operand_dims: [0].as_slice().into(),
                index_vector_dim: rank,
                unique_indices: unique,
            },
        )
    }

    pub fn reduce(self, kind: ReduceKind, dims: &[i64], keepdim: bool) -> V<'b> {
        let mut dims: Shape = dims.into();
        dims.sort_unstable();
        let kept: Shape = (0..self.rank())
            .map(|i| if dims.contains(&(i as i64)) { 1 } else { self.size(i) })
            .collect();
        let out = self.b.add(Prim::Reduce(kind, dims), &[self]);
        if keepdim { out.reshape(&kept) } else { out }
    }

    /// Sums of many floats are made in two stages, see `staged_sum`.
    pub fn sum(self, dims: &[i64], keepdim: bool) -> V<'b> {
        if self.dtype().is_inexact()
            && let Some(out) = self.staged_sum(dims)
        {
            let kept = |i: usize| if dims.contains(&(i as i64)) { 1 } else { self.size(i) };
            let kept: Shape = (0..self.rank()).map(kept).collect();
            return if keepdim { out.reshape(&kept) } else { out };
        }
        self.reduce(ReduceKind::Sum, dims, keepdim)
    }

    /// A sum in two stages of about √n terms each: XLA:CPU adds one after the other, whose error
    /// grows as n; in stages it grows as √n (Higham, *The accuracy of floating point summation*,
    /// 1993). `None`: not worth it, or the sizes don't split.
    fn staged_sum(self, dims: &[i64]) -> Option<V<'b>> {
        const WORTH: i64 = 2048;
        let mut dims: Shape = dims.into();
        dims.sort_unstable();
        let n: i64 = dims.iter().map(|&d| self.size(d as usize)).product();
        if n < WORTH {
            return None;
        }
        let stage = (n as f64).sqrt() as i64;
        // Innermost dimensions first, while the first stage stays short.
        let (mut inner, mut terms) = (Shape::new(), 1);
        while let Some(&d) = dims.last()
            && terms * self.size(d as usize) <= 2 * stage
        {
            terms *= self.size(d as usize);
            inner.push(d);
            dims.pop();
        }
        let mut x = self;
        if terms < stage / 4 {
            // The next one is long: split it.
            let d = *dims.last()?;
            let size = self.size(d as usize);
            let factor = (2..=stage / terms).rev().find(|k| size % k == 0)?;
            let mut sizes = self.sizes();
            sizes[d as usize] = size / factor;
            sizes.insert(d as usize + 1, factor);
            x = self.reshape(&sizes);
            inner.iter_mut().for_each(|i| *i += 1);
            inner.push(d + 1);
        }
        if inner.is_empty() || dims.is_empty() {
            return None;
        }
        // What is left of `dims` lies before all of `inner`, so keeps its numbers.
        let partial = x.reduce(ReduceKind::Sum, &inner, false);
        // XLA would merge the stages again.
        let partial = self.b.add(Prim::Barrier, &[partial]);
        Some(partial.reduce(ReduceKind::Sum, &dims, false))
    }

    /// Arithmetic mean over `dims`.
    pub fn mean(self, dims: &[i64], keepdim: bool) -> V<'b> {
        let n: i64 = dims.iter().map(|&d| self.size(d as usize)).product();
        self.sum(dims, keepdim) / (n as f64)
    }

    /// Every dimension.
    pub fn all_dims(self) -> Shape {
        (0..self.rank() as i64).collect()
    }

    /// The extreme value along `dim` and its position (i64).
    pub fn arg_reduce(self, max: bool, dim: usize, keepdim: bool) -> (V<'b>, V<'b>) {
        let out = self.b.add_multi(Prim::ArgReduce { max, dim: dim as u32 }, &[self], 2);
        let (value, index) = (out[0], out[1]);
        if !keepdim {
            return (value, index);
        }
        (value.unsqueeze(dim), index.unsqueeze(dim))
    }

    pub fn reduce_window(self, kind: ReduceKind, window: WindowAttrs) -> V<'b> {
        self.b.add(Prim::ReduceWindow(kind, window), &[self])
    }

    /// Inclusive scan of a monoid along `dim`.
    pub fn cumulative(self, kind: ReduceKind, dim: usize) -> V<'b> {
        let rank = self.rank();
        let ones = Shape::from_elem(1, rank);
        let n = self.size(dim);
        let (mut sizes, mut pad_low) = (ones.clone(), Shape::from_elem(0, rank));
        (sizes[dim], pad_low[dim]) = (n.max(1), (n - 1).max(0));
        self.reduce_window(
            kind,
            WindowAttrs {
                sizes,
                strides: ones.clone(),
                base_dilation: ones.clone(),
                window_dilation: ones,
                pad_low,
                pad_high: Shape::from_elem(0, rank),
            },
        )
    }

    /// Matrix product of the last two dimensions, leading ones equal on both sides.
    pub fn bmm(self, other: V<'b>) -> V<'b> {
        let (l, r) = (self.rank() as i64, other.rank() as i64);
        let batch: Shape = (0..l - 2).collect();
        self.dot(
            other,
            DotAttrs {
                lhs_batch: batch.clone(),
                rhs_batch: batch,
                lhs_contract: [l - 1].as_slice().into(),
                rhs_contract: [r - 2].as_slice().into(),
                out: self.dtype(),
            },
        )
    }

    pub fn dot(self, other: V<'b>, attrs: DotAttrs) -> V<'b> {
        self.b.add(Prim::Dot(attrs), &[self, other])
    }

    /// Where the index along `dim` is below `bound`: a mask of this value's shape.
    pub fn index_below(self, dim: usize, bound: V<'b>) -> V<'b> {
        self.b.iota(bound.dtype(), &self.sizes(), dim).lt(bound)
    }

    /// `low ≤ this ≤ high` as numbers of this dtype, NaN passing through.
    pub fn clamp_numbers(self, low: f64, high: f64) -> V<'b> {
        self.clamp(Number::float(low), Number::float(high))
    }
}
