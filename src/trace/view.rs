//! Strided windows on a storage, as pure graphs.
//!
//! A storage's value is a tensor of some shape whose row-major elements are the storage's bytes.
//! A torch view is a window on it: sizes, strides, offset. Reading one is reshape, slice,
//! transpose and broadcast; writing one is an update of the box it covers. The trick: sort the
//! window's dimensions by stride, s₀ > s₁ > …, and factor the flat storage into rows of s₀
//! elements, each of these into rows of s₁, and so on. Along each such axis the window is an
//! interval, whatever its steps were. A window that isn't a box there (overlapping elements, as
//! of `unfold`) is read by gather and written by scatter.
//!
//! Where a window starts is no part of its graph but a value of it, `at`: rows `i..i + 32` of a
//! dataset are one graph for every `i`. Only the [`Reach`] of the offset matters.

use smallvec::SmallVec;

use crate::ensure;
use crate::error::Result;
use crate::ir::{DType, ScatterKind, Shape, V};

/// Which elements of a storage a tensor has. In elements.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    pub sizes: &'a [i64],
    pub strides: &'a [i64],
    pub offset: i64,
}

/// One axis of the factored storage.
#[derive(Clone, Copy, Debug)]
struct Level {
    /// Elements a row.
    stride: i64,
    /// Rows of the block one level up.
    rows: i64,
    /// Rows of the window.
    count: i64,
}

/// What the graph of a window depends on, of its offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// The window is a box.
    Box,
    /// Its rows go over the end of a block into the next.
    Across,
    /// It begins before the storage or ends behind it.
    Outside,
}

/// A window that is a box in the factored storage.
struct Boxed {
    levels: SmallVec<[Level; 6]>,
    /// The window's dimensions in order of decreasing stride; those of size 1 or stride 0 are
    /// not among them.
    order: SmallVec<[usize; 6]>,
    /// No level's block length is a multiple of its row length short.
    exact: bool,
}

impl Window<'_> {
    /// Row-major over `0..numel`: sizes of 1 may have any stride.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        for (&n, &s) in self.sizes.iter().zip(self.strides).rev() {
            if n != 1 {
                if s != expected {
                    return false;
                }
                expected *= n;
            }
        }
        self.offset == 0
    }

    fn numel(&self) -> i64 {
        self.sizes.iter().product()
    }

    /// The last element's position.
    fn last(&self) -> i64 {
        self.offset + self.sizes.iter().zip(self.strides).map(|(&n, &s)| (n - 1) * s).sum::<i64>()
    }

    /// More than one index reaches the same element by a stride of 0.
    pub fn is_expanded(&self) -> bool {
        self.sizes.iter().zip(self.strides).any(|(&n, &s)| n > 1 && s == 0)
    }

    /// How the window lies in a storage of so many elements.
    pub fn reach(&self, storage: i64) -> Reach {
        let empty = self.numel() == 0;
        let inside = self.offset >= 0
            && self.strides.iter().all(|&s| s >= 0)
            && (empty || self.last() < storage);
        match self.boxed(storage) {
            _ if !inside => Reach::Outside,
            Some(_) => Reach::Box,
            None => Reach::Across,
        }
    }

    fn boxed(&self, storage: i64) -> Option<Boxed> {
        let mut order: SmallVec<[usize; 6]> =
            (0..self.sizes.len()).filter(|&i| self.sizes[i] > 1 && self.strides[i] != 0).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(self.strides[i]));
        let mut extent: i64 =
            order.iter().map(|&i| (self.sizes[i] - 1) * self.strides[i]).sum::<i64>();
        let (mut block, mut rest, mut exact) = (storage, self.offset, true);
        let mut levels = SmallVec::new();
        for &i in &order {
            let (count, stride) = (self.sizes[i], self.strides[i]);
            if rest + extent >= block {
                return None;
            }
            levels.push(Level { stride, rows: (block + stride - 1) / stride, count });
            exact &= block % stride == 0;
            rest %= stride;
            extent -= (count - 1) * stride;
            block = stride;
        }
        // The innermost row must hold the remaining position.
        (rest < block).then_some(Boxed { levels, order, exact })
    }

    /// The flat position of each element (i64, the window's shape).
    fn positions<'b>(&self, at: V<'b>) -> V<'b> {
        let mut index = at.broadcast_to(self.sizes);
        for (i, &stride) in self.strides.iter().enumerate() {
            if self.sizes[i] > 1 && stride != 0 {
                index = index + at.b.iota(DType::I64, self.sizes, i) * stride;
            }
        }
        index
    }
}

/// The window's elements, in the window's shape. `at`: the window's offset (i64, no dimensions);
/// the graph is right for every offset of the same [`Reach`] as the window's own.
///
/// Errors: the window reaches beyond the storage.
pub fn read<'b>(base: V<'b>, w: Window<'_>, at: V<'b>) -> Result<V<'b>> {
    let storage = base.numel();
    if w.numel() == 0 {
        return Ok(base.b.full(0i64, base.dtype(), w.sizes));
    }
    check_bounds(storage, w)?;
    if w.is_contiguous() && w.numel() == storage {
        return Ok(base.reshape(w.sizes));
    }
    let Some(boxed) = w.boxed(storage) else {
        return Ok(base.take_flat(w.positions(at)));
    };
    let starts = boxed.starts(at);
    let cut = if boxed.exact {
        boxed.factor(base).dynamic_slice(&starts, &boxed.counts())
    } else {
        let mut x = base.flatten();
        for (axis, level) in boxed.levels.iter().enumerate() {
            x = level.split(x, axis).dynamic_slice_dim(axis, starts[axis], level.count);
        }
        let axis = boxed.levels.len();
        x.dynamic_slice_dim(axis, starts[axis], 1)
    };
    // Dimensions of the box in the window's order, then stretched to the window.
    let counts: Shape = boxed.levels.iter().map(|l| l.count).collect();
    let mut dims = boxed.order.clone();
    dims.sort_unstable();
    let place = |d: &usize| boxed.order.iter().position(|o| o == d).unwrap_or(0) as i64;
    let perm: Shape = dims.iter().map(place).collect();
    let kept: Shape = dims.iter().map(|&d| d as i64).collect();
    Ok(cut.reshape(&counts).transpose(&perm).broadcast_in_dim(w.sizes, &kept))
}

/// The storage's new value after `value` (the window's shape and the storage's dtype) is written
/// through the window. Keeps the shape of `base`; `at` as for [`read`].
///
/// Errors: the window reaches beyond the storage, or has elements that share memory by expansion.
pub fn write<'b>(base: V<'b>, w: Window<'_>, at: V<'b>, value: V<'b>) -> Result<V<'b>> {
    ensure!(
        !w.is_expanded(),
        "unsupported operation: more than one element of the written-to tensor refers to a \
         single memory location. Please clone() the tensor before performing the operation."
    );
    if w.numel() == 0 {
        return Ok(base);
    }
    let storage = base.numel();
    check_bounds(storage, w)?;
    let shape = base.sizes();
    let Some(boxed) = w.boxed(storage) else {
        let flat = base.flatten();
        return Ok(flat.put_flat(ScatterKind::Set, w.positions(at), value, false).reshape(&shape));
    };
    // The value with the box's dimensions in order of stride.
    let mut dims = boxed.order.clone();
    dims.sort_unstable();
    let kept: Shape = dims.iter().map(|&d| w.sizes[d]).collect();
    let place = |d: &usize| dims.iter().position(|x| x == d).unwrap_or(0) as i64;
    let perm: Shape = boxed.order.iter().map(place).collect();
    let update = value.reshape(&kept).transpose(&perm).reshape(&boxed.counts());
    if boxed.covers(storage) {
        return Ok(update.reshape(&shape));
    }
    let starts = boxed.starts(at);
    let new = if boxed.exact {
        boxed.factor(base).dynamic_update_slice(update, &starts)
    } else {
        boxed.update(base.flatten(), 0, &starts, update)
    };
    Ok(new.reshape(&shape))
}

impl Boxed {
    /// The storage in its factored shape; only if every level is exact.
    fn factor<'b>(&self, base: V<'b>) -> V<'b> {
        let mut sizes: Shape = self.levels.iter().map(|l| l.rows).collect();
        sizes.push(self.levels.last().map_or(base.numel(), |l| l.stride));
        base.reshape(&sizes)
    }

    /// The box's sizes in the factored storage.
    fn counts(&self) -> Shape {
        self.levels.iter().map(|l| l.count).chain([1]).collect()
    }

    /// Where the box of a window at the offset `at` starts on each axis of the factored storage.
    fn starts<'b>(&self, at: V<'b>) -> SmallVec<[V<'b>; 8]> {
        let mut rest = at;
        let mut starts: SmallVec<[V<'b>; 8]> = SmallVec::new();
        for level in &self.levels {
            if level.count == level.rows {
                // All rows, so from the first; the rest is within a row already.
                starts.push(at.full_like(0i64));
            } else {
                starts.push(rest / level.stride);
                rest = rest.rem(level.stride);
            }
        }
        starts.push(rest);
        starts
    }

    /// The window is the whole storage, permuted.
    fn covers(&self, storage: i64) -> bool {
        self.exact
            && self.levels.iter().all(|l| l.count == l.rows)
            && self.levels.last().map_or(storage, |l| l.stride) == 1
    }

    /// Writes level by level: `x` has the outer levels' intervals, then a block of this level.
    fn update<'b>(&self, x: V<'b>, axis: usize, starts: &[V<'b>], update: V<'b>) -> V<'b> {
        let Some(level) = self.levels.get(axis) else {
            return x.dynamic_update_dim(axis, starts[axis], update);
        };
        let block = x.size(axis);
        let rows = level.split(x, axis);
        let inner = rows.dynamic_slice_dim(axis, starts[axis], level.count);
        let inner = self.update(inner, axis + 1, starts, update);
        let rows = rows.dynamic_update_dim(axis, starts[axis], inner);
        let mut sizes = x.sizes();
        sizes[axis] = level.rows * level.stride;
        rows.reshape(&sizes).slice(axis, 0, block, 1)
    }
}

impl Level {
    /// Splits the last axis, a block, into rows, padding the last one.
    fn split<'b>(&self, x: V<'b>, axis: usize) -> V<'b> {
        let mut sizes = x.sizes();
        let missing = self.rows * self.stride - sizes[axis];
        sizes[axis] = self.rows;
        sizes.push(self.stride);
        x.pad_dim(0i64, axis, 0, missing).reshape(&sizes)
    }
}

fn check_bounds(storage: i64, w: Window<'_>) -> Result<()> {
    ensure!(
        w.reach(storage) != Reach::Outside,
        "a view of sizes {:?}, strides {:?} and offset {} is out of bounds for a storage of {storage} \
         elements",
        w.sizes,
        w.strides,
        w.offset
    );
    Ok(())
}

/// The same bytes as elements of another type. One-dimensional unless nothing changes.
///
/// Errors: the bytes aren't a whole number of elements.
pub fn reinterpret<'b>(base: V<'b>, dtype: DType) -> Result<V<'b>> {
    let from = base.dtype();
    if from == dtype {
        return Ok(base);
    }
    let flat = base.flatten();
    if from.is_complex() {
        let parts = [flat.real().unsqueeze(1), flat.imag().unsqueeze(1)];
        return reinterpret(base.b.concat(&parts, 1).flatten(), dtype);
    }
    if from.is_bool() {
        return reinterpret(flat.convert(DType::U8), dtype);
    }
    if dtype.is_complex() {
        let pairs = reinterpret(flat, dtype.real())?;
        ensure!(pairs.numel() % 2 == 0, "{} elements are no whole number of pairs", pairs.numel());
        let pairs = pairs.reshape(&[pairs.numel() / 2, 2]);
        return Ok(pairs.at(1, 0).complex(pairs.at(1, 1)));
    }
    if dtype.is_bool() {
        return Ok(reinterpret(flat, DType::U8)?.convert(DType::Bool));
    }
    let (a, b) = (from.size() as i64, dtype.size() as i64);
    if a >= b {
        return Ok(flat.bitcast(dtype).flatten());
    }
    let ratio = b / a;
    ensure!(
        flat.numel() % ratio == 0,
        "{} bytes are no whole number of {dtype} elements",
        flat.numel() * a
    );
    Ok(flat.reshape(&[flat.numel() / ratio, ratio]).bitcast(dtype))
}
