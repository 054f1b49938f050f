//! Padding at the ends of dimensions.

use super::{Args, Out, Registry};
use crate::ensure;
use crate::error::Result;
use crate::ir::{Number, Shape, V};

pub(super) fn register(r: &mut Registry) {
    r.op("aten::constant_pad_nd", constant_pad);
    r.op("aten::reflection_pad1d", |a| pad(a, 1, Kind::Reflect));
    r.op("aten::reflection_pad2d", |a| pad(a, 2, Kind::Reflect));
    r.op("aten::reflection_pad3d", |a| pad(a, 3, Kind::Reflect));
    r.op("aten::replication_pad1d", |a| pad(a, 1, Kind::Replicate));
    r.op("aten::replication_pad2d", |a| pad(a, 2, Kind::Replicate));
    r.op("aten::replication_pad3d", |a| pad(a, 3, Kind::Replicate));
    r.op("aten::reflection_pad1d_backward", |a| pad_backward(a, 1, Kind::Reflect));
    r.op("aten::reflection_pad2d_backward", |a| pad_backward(a, 2, Kind::Reflect));
    r.op("aten::reflection_pad3d_backward", |a| pad_backward(a, 3, Kind::Reflect));
    r.op("aten::replication_pad1d_backward", |a| pad_backward(a, 1, Kind::Replicate));
    r.op("aten::replication_pad2d_backward", |a| pad_backward(a, 2, Kind::Replicate));
    r.op("aten::replication_pad3d_backward", |a| pad_backward(a, 3, Kind::Replicate));
}

/// (self, pad, value): pairs from the last dimension on; negative amounts crop.
fn constant_pad<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, pads) = (a.t(0)?, a.ints(1)?);
    let rank = x.rank();
    ensure!(pads.len() % 2 == 0, "Length of pad must be even but instead it equals {}", pads.len());
    ensure!(
        pads.len() / 2 <= rank,
        "Length of pad should be no more than twice the number of dimensions of the input. Pad \
         length is {} while the input has {rank} dimensions.",
        pads.len()
    );
    let zeros = Shape::from_elem(0, rank);
    let (mut low, mut high) = (zeros.clone(), zeros.clone());
    for (i, pair) in pads.chunks_exact(2).enumerate() {
        let d = rank - 1 - i;
        (low[d], high[d]) = (pair[0], pair[1]);
        let n = x.size(d) + pair[0] + pair[1];
        ensure!(
            n >= 0,
            "The input size {}, plus negative padding {} and {} resulted in a negative output \
             size, which is invalid. Check dimension {d} of your input.",
            x.size(d),
            pair[0],
            pair[1]
        );
    }
    x.pad(a.num(2)?.to(x.dtype()), &low, &high, &zeros).out()
}

/// What stands beyond the ends.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// The elements mirrored at the first and last one, which aren't repeated.
    Reflect,
    /// The first and last element.
    Replicate,
}

/// The padding (low, high) of the last dimensions, in order of dimensions, checked against `x`.
fn amounts(a: &Args<'_>, i: usize, x: V<'_>, spatial: usize, kind: Kind) -> Result<Vec<[i64; 2]>> {
    let pads = a.ints(i)?;
    ensure!(
        pads.len() == 2 * spatial,
        "padding size is expected to be {}, but got: {}",
        2 * spatial,
        pads.len()
    );
    let rank = x.rank();
    ensure!(
        rank == spatial + 1 || rank == spatial + 2,
        "Expected {}D or {}D (batch mode) tensor with possibly 0 batch size and other non-zero \
         dimensions for input, but got: {:?}",
        spatial + 1,
        spatial + 2,
        x.sizes().as_slice()
    );
    let pads: Vec<[i64; 2]> = pads.chunks_exact(2).rev().map(|p| [p[0], p[1]]).collect();
    for (j, p) in pads.iter().enumerate() {
        let n = x.size(rank - spatial + j);
        ensure!(
            n > 0,
            "Expected input with non-zero dimensions to pad, but got: {:?}",
            x.sizes().as_slice()
        );
        ensure!(
            kind != Kind::Reflect || (p[0] < n && p[1] < n),
            "Argument #4: Padding size should be less than the corresponding input dimension, but \
             got: padding ({}, {}) at dimension {} of input {:?}",
            p[0],
            p[1],
            rank - spatial + j,
            x.sizes().as_slice()
        );
        ensure!(
            n + p[0] + p[1] >= 1,
            "input (size {n} at dimension {}) is too small for padding ({}, {}). Calculated output \
             size: {}",
            rank - spatial + j,
            p[0],
            p[1],
            n + p[0] + p[1]
        );
    }
    Ok(pads)
}

/// `count` copies of one element of a dimension.
fn spread(x: V<'_>, dim: usize, at: i64, count: i64) -> V<'_> {
    let mut sizes = x.sizes();
    sizes[dim] = count;
    x.slice(dim, at, at + 1, 1).broadcast_to(&sizes)
}

/// (self, padding)
fn pad<'b>(a: &Args<'b>, spatial: usize, kind: Kind) -> Out<'b> {
    let x = a.t(0)?;
    let pads = amounts(a, 1, x, spatial, kind)?;
    let lead = x.rank() - spatial;
    let mut y = x;
    for (i, &[low, high]) in pads.iter().enumerate() {
        let (dim, n) = (lead + i, x.size(lead + i));
        let d = [dim as i64];
        let mut parts = Vec::with_capacity(3);
        if low > 0 {
            parts.push(match kind {
                Kind::Reflect => y.slice(dim, 1, low + 1, 1).reverse(&d),
                Kind::Replicate => spread(y, dim, 0, low),
            });
        }
        parts.push(y);
        if high > 0 {
            parts.push(match kind {
                Kind::Reflect => y.slice(dim, n - 1 - high, n - 1, 1).reverse(&d),
                Kind::Replicate => spread(y, dim, n - 1, high),
            });
        }
        let wide = a.b.concat(&parts, dim);
        let (cut_low, cut_high) = ((-low).max(0), (-high).max(0));
        y = wide.slice(dim, cut_low, wide.size(dim) - cut_high, 1);
    }
    y.out()
}

/// (grad_output, self, padding): what was copied outwards is added back.
fn pad_backward<'b>(a: &Args<'b>, spatial: usize, kind: Kind) -> Out<'b> {
    let (grad, x) = (a.t(0)?, a.t(1)?);
    let pads = amounts(a, 2, x, spatial, kind)?;
    let dtype = x.dtype();
    let lead = x.rank() - spatial;
    let mut g = grad.convert(dtype.opmath());
    let zero = Number::Int(0).cast(g.dtype());
    for (i, &[low, high]) in pads.iter().enumerate() {
        let (dim, n) = (lead + i, x.size(lead + i));
        ensure!(
            g.size(dim) == n + low + high,
            "gradOutput has size {} at dimension {dim}, expected {}",
            g.size(dim),
            n + low + high
        );
        let d = [dim as i64];
        // What was cropped gets no gradient.
        let (cut_low, cut_high) = ((-low).max(0), (-high).max(0));
        g = g.pad_dim(zero, dim, cut_low, cut_high);
        let (low, high) = (low.max(0), high.max(0));
        let mut sum = g.slice(dim, low, low + n, 1);
        if low > 0 {
            let part = g.slice(dim, 0, low, 1);
            sum = sum
                + match kind {
                    Kind::Reflect => part.reverse(&d).pad_dim(zero, dim, 1, n - 1 - low),
                    Kind::Replicate => part.sum(&d, true).pad_dim(zero, dim, 0, n - 1),
                };
        }
        if high > 0 {
            let part = g.slice(dim, low + n, low + n + high, 1);
            sum = sum
                + match kind {
                    Kind::Reflect => part.reverse(&d).pad_dim(zero, dim, n - 1 - high, 1),
                    Kind::Replicate => part.sum(&d, true).pad_dim(zero, dim, n - 1, 0),
                };
        }
        g = sum;
    }
    g.convert(dtype).out()
}
