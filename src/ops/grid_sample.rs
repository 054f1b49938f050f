//! Sampling an image at given points, and its gradients.

use super::args::opt_outs;
use super::{Args, Out, Registry};
use crate::ensure;
use crate::error::Result;
use crate::ir::{DType, GatherAttrs, ReduceKind, ScatterAttrs, ScatterKind, Shape, V};

pub(super) fn register(r: &mut Registry) {
    r.op("aten::grid_sampler_2d", |a| {
        let s = Sampler::new(a, 0)?;
        let y = s.corners.iter().fold(None, |sum: Option<V<'_>>, c| {
            let part = s.read(c) * c.weight.unsqueeze(1);
            Some(sum.map_or(part, |s| s + part))
        });
        let y = y.unwrap_or(s.image);
        y.reshape(&s.result).convert(s.dtype).out()
    });
    r.op("aten::grid_sampler_2d_backward", backward);
}

/// One of the pixels that a point reads.
struct Corner<'b> {
    /// Its flat position in the image, [N, P], inside it.
    index: V<'b>,
    /// Its share of the point's value, [N, P]; 0 where the pixel is outside.
    weight: V<'b>,
    inside: V<'b>,
}

/// A coordinate of all points in pixels, [N, P], and how fast it changes with the grid's.
struct Coordinate<'b> {
    at: V<'b>,
    slope: V<'b>,
}

struct Sampler<'b> {
    dtype: DType,
    /// [N, C, H·W]
    image: V<'b>,
    x: Coordinate<'b>,
    y: Coordinate<'b>,
    /// Bilinear: north-west, north-east, south-west, south-east. Nearest: one.
    corners: Vec<Corner<'b>>,
    result: Shape,
}

impl<'b> Sampler<'b> {
    /// (input, grid, interpolation_mode, padding_mode, align_corners) from position `i` on.
    fn new(a: &Args<'b>, i: usize) -> Result<Sampler<'b>> {
        let (image, grid) = (a.t(i)?, a.t(i + 1)?);
        let (mode, padding, align) = (a.int(i + 2)?, a.int(i + 3)?, a.bool(i + 4)?);
        let (s, p) = (image.sizes(), grid.sizes());
        ensure!(
            s.len() == 4 && p.len() == 4 && s[0] == p[0] && p[3] == 2,
            "grid_sampler(): expected grid to have size 2 in last dimension and the batch size of \
             input, but got input with sizes {:?} and grid with sizes {:?}",
            s.as_slice(),
            p.as_slice()
        );
        ensure!(s[2] > 0 && s[3] > 0, "grid_sampler(): expected input to have non-empty pixels");
        ensure!(mode < 2, NotImplemented, "bicubic grid_sample");
        let (dtype, points) = (image.dtype(), p[1] * p[2]);
        ensure!(
            dtype.is_float() && grid.dtype() == dtype,
            "grid_sampler(): expected input and grid to have same dtype, but input has {} and \
             grid has {}",
            dtype,
            grid.dtype()
        );
        let compute = dtype.opmath();
        let (h, w) = (s[2], s[3]);
        let image = image.convert(compute).reshape(&[s[0], s[1], h * w]);
        let grid = grid.convert(compute).reshape(&[s[0], points, 2]);
        let x = coordinate(grid.at(2, 0), w, padding, align);
        let y = coordinate(grid.at(2, 1), h, padding, align);
        let pixel = |column: V<'b>, row: V<'b>, weight: V<'b>| {
            let within = |v: V<'b>, n: i64| v.ge(0.0).and(v.le((n - 1) as f64));
            let inside = within(column, w).and(within(row, h));
            // Outside (or NaN) any pixel will do: its weight is 0.
            let whole =
                |v: V<'b>, n: i64| inside.select(v, 0.0).convert(DType::I64).clamp(0i64, n - 1);
            let index = whole(row, h) * w + whole(column, w);
            Corner { index, weight: inside.select(weight, 0.0), inside }
        };
        let corners = if mode == 1 {
            let (column, row) = (x.at.round_even(), y.at.round_even());
            vec![pixel(column, row, x.at.full_like(1i64))]
        } else {
            let (west, north) = (x.at.floor(), y.at.floor());
            let (dx, dy) = (x.at - west, y.at - north);
            let (east, south) = (west + 1.0, north + 1.0);
            vec![
                pixel(west, north, (1.0 - dx) * (1.0 - dy)),
                pixel(east, north, dx * (1.0 - dy)),
                pixel(west, south, (1.0 - dx) * dy),
                pixel(east, south, dx * dy),
            ]
        };
        let result = [s[0], s[1], p[1], p[2]].as_slice().into();
        Ok(Sampler { dtype, image, x, y, corners, result })
    }

    /// The corner's pixels, [N, C, P]; 0 outside the image.
    fn read(&self, c: &Corner<'b>) -> V<'b> {
        let pixels = self.image.gather(
            c.index,
            GatherAttrs {
                offset_dims: [1].as_slice().into(),
                collapsed_slice_dims: [2].as_slice().into(),
                operand_batching_dims: [0].as_slice().into(),
                start_indices_batching_dims: [0].as_slice().into(),
                start_index_map: [2].as_slice().into(),
                index_vector_dim: 2,
                slice_sizes: [1, self.image.size(1), 1].as_slice().into(),
            },
        );
        let inside = c.inside.unsqueeze(1).broadcast_to(&pixels.sizes());
        inside.select(pixels, 0.0)
    }
}

/// A grid coordinate (−1 to 1 over `n` pixels) in pixels, brought into the image by the padding
/// mode: 0 zeros, 1 border, 2 reflection.
fn coordinate<'b>(v: V<'b>, n: i64, padding: i64, align: bool) -> Coordinate<'b> {
    let size = n as f64;
    let (mut at, rate) = if align {
        ((v + 1.0) / 2.0 * (size - 1.0), (size - 1.0) / 2.0)
    } else {
        (((v + 1.0) * size - 1.0) / 2.0, size / 2.0)
    };
    let mut slope = at.full_like(rate);
    if padding == 2 {
        let (low, span) = if align { (0.0, size - 1.0) } else { (-0.5, size) };
        if span == 0.0 {
            (at, slope) = (at.full_like(0i64), at.full_like(0i64));
        } else {
            let shifted = at - low;
            slope = shifted.lt(0.0).select(-slope, slope);
            let distance = shifted.abs();
            let extra = distance.rem(span);
            let odd = (distance / span).floor().rem(2.0).ne(0.0);
            at = odd.select(at.full_like(span) - extra, extra) + low;
            slope = odd.select(-slope, slope);
        }
    }
    if padding != 0 {
        let last = size - 1.0;
        // At the edge itself the coordinate no longer moves.
        slope = at.gt(0.0).and(at.lt(last)).select(slope, 0.0);
        at = at.clamp(0.0, last);
    }
    Coordinate { at, slope }
}

/// (grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask)
fn backward<'b>(a: &Args<'b>) -> Out<'b> {
    let s = Sampler::new(a, 1)?;
    let mask = a.bools(6)?;
    let (image, grid) = (a.t(1)?, a.t(2)?);
    let (n, c, points) = (s.image.size(0), s.image.size(1), s.x.at.size(1));
    let grad = a.t(0)?.convert(s.image.dtype()).reshape(&[n, c, points]);
    let grad_image = || {
        let mut sum = s.image.full_like(0i64);
        for corner in &s.corners {
            if grad.numel() == 0 {
                break;
            }
            let inside = corner.inside.unsqueeze(1).broadcast_to(&grad.sizes());
            let part = inside.select(grad * corner.weight.unsqueeze(1), 0.0);
            sum = sum.scatter(
                ScatterKind::Reduce(ReduceKind::Sum),
                corner.index,
                part,
                ScatterAttrs {
                    update_window_dims: [1].as_slice().into(),
                    inserted_window_dims: [2].as_slice().into(),
                    input_batching_dims: [0].as_slice().into(),
                    scatter_indices_batching_dims: [0].as_slice().into(),
                    scatter_dims_to_operand_dims: [2].as_slice().into(),
                    index_vector_dim: 2,
                    unique_indices: false,
                },
            );
        }
        sum.reshape(&image.sizes()).convert(s.dtype)
    };
    let grad_grid = || {
        let [nw, ne, sw, se] = s.corners.as_slice() else {
            // Nearest: moving a point a little changes nothing.
            return grid.full_like(0i64);
        };
        let (nw, ne, sw, se) = (s.read(nw), s.read(ne), s.read(sw), s.read(se));
        let dx = (s.x.at - s.x.at.floor()).unsqueeze(1);
        let dy = (s.y.at - s.y.at.floor()).unsqueeze(1);
        let along_x = (ne - nw) * (1.0 - dy) + (se - sw) * dy;
        let along_y = (sw - nw) * (1.0 - dx) + (se - ne) * dx;
        let total =
            |part: V<'b>, slope: V<'b>| ((grad * part).sum(&[1], false) * slope).unsqueeze(2);
        let parts = [total(along_x, s.x.slope), total(along_y, s.y.slope)];
        grad.b.concat(&parts, 2).reshape(&grid.sizes()).convert(s.dtype)
    };
    opt_outs([
        mask.first().is_some_and(|&m| m).then(grad_image),
        mask.get(1).is_some_and(|&m| m).then(grad_grid),
    ])
}
