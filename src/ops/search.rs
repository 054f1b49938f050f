//! Search in sorted sequences and histograms.

use super::reduce::unsupported;
use super::{Args, Out, Registry};
use crate::ensure;
use crate::error::Result;
use crate::ir::prim::ScatterKind;
use crate::ir::{DType, Number, ReduceKind, V};

pub(super) fn register(r: &mut Registry) {
    r.op("aten::searchsorted.Tensor", searchsorted);
    r.op("aten::searchsorted.Scalar", searchsorted);
    r.op("aten::bucketize.Tensor", bucketize);
    r.op("aten::bucketize.Scalar", bucketize);
    r.op("aten::histc", histc);
    r.sized("aten::bincount", bincount_size, bincount);
}

/// Where each value would be inserted in its row of `sorted` `[rows, n]`; `values`: `[rows, m]`.
/// `right`: after elements equal to it. NaN is larger than all numbers.
fn insertion_points<'b>(sorted: V<'b>, values: V<'b>, right: bool) -> V<'b> {
    let (rows, n, m) = (sorted.size(0), sorted.size(1), values.size(1));
    let b = sorted.b;
    let zero = || b.full(0i64, DType::I64, &[rows, m]);
    if n == 0 || rows * m == 0 {
        return zero();
    }
    let before = |element: V<'b>, value: V<'b>| {
        if right { element.gt(value).not() } else { element.ge(value).not() }
    };
    // Few elements are counted; among many a binary search, unrolled, reads only log n.
    if n <= 64 {
        let passed = before(sorted.unsqueeze(1), values.unsqueeze(2));
        return passed.convert(DType::I64).sum(&[2], false);
    }
    let row = b.iota(DType::I64, &[rows, m], 0) * n;
    let (mut low, mut high) = (zero(), b.full(n, DType::I64, &[rows, m]));
    for _ in 0..=n.ilog2() {
        let middle = (low + high).shift_right(1i64);
        let element = sorted.take_flat(row + middle.min(n - 1));
        let open = low.lt(high);
        let passed = before(element, values);
        low = open.and(passed).select(middle + 1i64, low);
        high = open.and(passed.not()).select(middle, high);
    }
    low
}

/// `sorted` `[…, n]` and `values` `[…, m]`, or a one-dimensional `sorted` and any `values`.
fn search<'b>(
    sorted: V<'b>,
    values: V<'b>,
    sorter: Option<V<'b>>,
    right: bool,
    int32: bool,
) -> Out<'b> {
    if sorted.dtype().is_complex() || sorted.dtype().is_bool() {
        return Err(unsupported("searchsorted", sorted.dtype()));
    }
    let (ss, vs) = (sorted.sizes(), values.sizes());
    let one = ss.len() == 1;
    ensure!(
        !ss.is_empty(),
        "torch.searchsorted(): boundaries tensor should have positive dimension, but got 0 \
         dimension"
    );
    ensure!(
        one || (ss.len() == vs.len() && ss[..ss.len() - 1] == vs[..vs.len() - 1]),
        "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 \
         dimensions of boundaries tensor and input value tensor must match, but we got \
         boundaries tensor {:?} and input value tensor {:?}",
        &ss[..],
        &vs[..]
    );
    let n = ss[ss.len() - 1];
    let rows: i64 = ss[..ss.len() - 1].iter().product();
    let m = if one { values.numel() } else { vs[vs.len() - 1] };
    let mut sorted = sorted.reshape(&[rows, n]);
    if let Some(sorter) = sorter {
        ensure!(
            sorter.sizes() == ss,
            "torch.searchsorted(): boundary and sorter must have the same size, but got boundary \
             tensor {:?} and got sorter tensor {:?}",
            &ss[..],
            &sorter.sizes()[..]
        );
        ensure!(
            sorter.dtype() == DType::I64,
            "torch.searchsorted(): sorter must be a tensor of long dtype but got dtype {}",
            sorter.dtype().scalar_type_name()
        );
        let row = sorted.b.iota(DType::I64, &[rows, n], 0) * n;
        sorted = sorted.take_flat(row + sorter.reshape(&[rows, n]));
    }
    let points = insertion_points(sorted, values.reshape(&[rows, m]), right).reshape(&vs);
    points.convert(if int32 { DType::I32 } else { DType::I64 }).out()
}

fn searchsorted<'b>(a: &Args<'b>) -> Out<'b> {
    let dtype = a.result_type(&[0, 1])?;
    let mut right = a.bool(3)?;
    if let Some(side) = a.opt_str(4)? {
        ensure!(
            side == "left" || side == "right",
            "torch.searchsorted(): side can only be 'left' or 'right' but got {side}"
        );
        ensure!(
            !(right && side == "left"),
            "torch.searchsorted(): side and right can't be set to opposites, got side of left \
             while right was True"
        );
        right = side == "right";
    }
    search(a.to(0, dtype)?, a.to(1, dtype)?, a.opt(5)?, right, a.bool(2)?)
}

fn bucketize<'b>(a: &Args<'b>) -> Out<'b> {
    let dtype = a.result_type(&[0, 1])?;
    let boundaries = a.to(1, dtype)?;
    ensure!(
        boundaries.rank() == 1,
        "bucketize(): boundaries tensor must be 1 dimension, but got dim({})",
        boundaries.rank()
    );
    search(boundaries, a.to(0, dtype)?, None, a.bool(3)?, a.bool(2)?)
}

fn histc<'b>(a: &Args<'b>) -> Out<'b> {
    let x = a.t(0)?.flatten();
    let dtype = x.dtype();
    // Half-width edges would have to be rounded as PyTorch's kernel happens to.
    if !matches!(dtype, DType::F32 | DType::F64) {
        return Err(unsupported("histc", dtype));
    }
    let bins = a.int(1)?;
    ensure!(bins > 0, "torch.histc(): bins must be > 0, but got {bins}");
    let (low, high) = (a.pinned(2)?, a.pinned(3)?);
    let ordered = low.to_f64() <= high.to_f64();
    ensure!(ordered, "torch.histc: max must be larger than min");
    if x.numel() == 0 {
        return a.b.full(0.0, dtype, &[bins]).out();
    }
    let scalar = |v: Number| a.b.full(v, x.dtype(), &[]);
    let (low, high) = if low.to_f64() < high.to_f64() {
        (scalar(low), scalar(high))
    } else {
        // No range given: that of the data; of one value, one to either side.
        let (low, high) =
            (x.reduce(ReduceKind::Min, &[0], false), x.reduce(ReduceKind::Max, &[0], false));
        let flat = low.eq(high);
        (flat.select(low - 1.0, low), flat.select(high + 1.0, high))
    };
    // Edges from both ends, as linspace has them.
    let step = (high - low) / bins as f64;
    let i = a.b.iota(x.dtype(), &[bins + 1], 0);
    let upward = low + step * i;
    let downward = high - step * (a.b.full(bins, x.dtype(), &[bins + 1]) - i);
    let edges = i.lt((bins + 1) as f64 / 2.0 - 0.25).select(upward, downward);
    let right = insertion_points(edges.unsqueeze(0), x.unsqueeze(0), true).squeeze(0);
    // The last bin includes its upper edge; outside the range nothing is counted.
    let bin = (right - 1i64).min(bins - 1);
    let inside = x.ge(low).and(x.le(high));
    let bin = inside.select(bin, bins);
    let counts = a.b.full(0.0, DType::I64, &[bins]);
    let one = a.b.full(1i64, DType::I64, &x.sizes());
    let kind = ScatterKind::Reduce(ReduceKind::Sum);
    counts.put_flat(kind, bin, one, false).convert(dtype).out()
}

fn bincount_size<'b>(a: &Args<'b>) -> Result<Option<V<'b>>> {
    let (x, least) = (a.t(0)?, a.int(2)?);
    ensure!(
        x.rank() == 1 && x.dtype().is_int(),
        "bincount only supports 1-d non-negative integral inputs."
    );
    ensure!(least >= 0, "minlength should be >= 0");
    if x.numel() == 0 {
        return Ok(None);
    }
    let x = x.convert(DType::I64);
    let size = (x.reduce(ReduceKind::Max, &[0], false) + 1i64).max(least);
    // −1: there are negative elements.
    let negative = x.reduce(ReduceKind::Min, &[0], false).lt(0i64);
    Ok(Some(negative.select(size.full_like(-1i64), size)))
}

fn bincount<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, weights) = (a.t(0)?, a.opt(1)?);
    let size = a.count().unwrap_or(a.int(2)?);
    ensure!(size >= 0, "bincount only supports 1-d non-negative integral inputs.");
    let weights = match weights {
        None => a.b.full(1i64, DType::I64, &x.sizes()),
        Some(w) => {
            ensure!(
                w.sizes() == x.sizes(),
                "weights should be 1-d and have the same length as input"
            );
            w.convert(if w.dtype() == DType::F32 { DType::F32 } else { DType::F64 })
        }
    };
    let bins = a.b.full(Number::Int(0), weights.dtype(), &[size]);
    if x.numel() == 0 {
        return bins.out();
    }
    let kind = ScatterKind::Reduce(ReduceKind::Sum);
    bins.put_flat(kind, x.convert(DType::I64), weights, false).out()
}
