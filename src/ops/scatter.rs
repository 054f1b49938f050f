//! Writing by index: scatter, index_put, index_add.

use super::index::{at_least_1d, check_along, check_integer_index, masks_count, places, wrap};
use super::shape::expand_to;
use super::{Args, Out, Registry};
use crate::ensure;
use crate::error::{Error, Result};
use crate::ir::types::broadcast_shapes;
use crate::ir::{DType, Number, ReduceKind, ScatterAttrs, ScatterKind, Shape, V};

pub(super) fn register(r: &mut Registry) {
    r.op("aten::scatter.src", |a| scatter(a, None));
    r.op("aten::scatter.value", |a| scatter(a, None));
    r.op("aten::scatter.reduce", |a| scatter(a, Some(arithmetic(a.str(4)?)?)));
    r.op("aten::scatter.value_reduce", |a| scatter(a, Some(arithmetic(a.str(4)?)?)));
    r.op("aten::scatter_add", |a| scatter(a, Some(ReduceKind::Sum)));
    r.op("aten::scatter_reduce.two", scatter_reduce);
    for name in ["aten::index_put", "aten::_index_put_impl", "aten::_unsafe_index_put"] {
        r.sized(name, index_put_count, index_put);
    }
    r.op("aten::index_add", index_add);
    r.op("aten::index_copy", |a| {
        let s = Rows::new(a, "index_copy")?;
        s.finish(rows(s.x, ScatterKind::Set, s.dim, s.index, s.source))
    });
    r.op("aten::index_reduce", index_reduce);
    r.op("aten::index_fill.int_Scalar", index_fill);
    r.op("aten::index_fill.int_Tensor", index_fill);
    r.op("aten::put", put);
    r.op("aten::masked_scatter", masked_scatter);
}

/// Slices `updates` written or accumulated into `x` at the positions `index` (a vector) of one
/// dimension; positions out of range are dropped.
pub(super) fn rows<'b>(
    x: V<'b>,
    kind: ScatterKind,
    dim: usize,
    index: V<'b>,
    updates: V<'b>,
) -> V<'b> {
    if updates.numel() == 0 {
        return x;
    }
    let d = dim as i64;
    x.scatter(
        kind,
        index.convert(DType::I64),
        updates,
        ScatterAttrs {
            update_window_dims: (0..x.rank() as i64).filter(|&i| i != d).collect(),
            inserted_window_dims: [d].as_slice().into(),
            input_batching_dims: Shape::new(),
            scatter_indices_batching_dims: Shape::new(),
            scatter_dims_to_operand_dims: [d].as_slice().into(),
            index_vector_dim: 1,
            unique_indices: false,
        },
    )
}

fn combine<'b>(kind: ScatterKind, x: V<'b>, y: V<'b>) -> V<'b> {
    match kind {
        ScatterKind::Set => y,
        ScatterKind::Reduce(ReduceKind::Sum) => x + y,
        ScatterKind::Reduce(ReduceKind::Prod) => x * y,
        ScatterKind::Reduce(ReduceKind::Max) => x.max(y),
        ScatterKind::Reduce(ReduceKind::Min) => x.min(y),
        ScatterKind::Reduce(ReduceKind::And) => x.and(y),
        ScatterKind::Reduce(ReduceKind::Or) => x.or(y),
    }
}

/// `updates` (the shape of `index`) written or accumulated into `x` at `index` along `dim`.
fn scatter_along<'b>(
    x: V<'b>,
    kind: ScatterKind,
    dim: usize,
    index: V<'b>,
    updates: V<'b>,
) -> V<'b> {
    if index.numel() == 0 || x.numel() == 0 {
        return x;
    }
    let rank = x.rank();
    let mut box_ = index.sizes();
    box_[dim] = x.size(dim);
    if box_ != x.sizes() {
        let part = x.slices(&Shape::from_elem(0, rank), &box_, &Shape::from_elem(1, rank));
        let part = scatter_along(part, kind, dim, index, updates);
        return x.update_slice(part, &Shape::from_elem(0, rank));
    }
    let index = index.convert(DType::I64);
    if index.size(dim) == 1 {
        // One write a line: a comparison does it, without a loop over the indices.
        let hit = x.b.iota(DType::I64, &box_, dim).eq(index);
        return hit.select(combine(kind, x, updates.broadcast_to(&box_)), x);
    }
    let others: Shape = (0..rank as i64).filter(|&d| d != dim as i64).collect();
    x.scatter(
        kind,
        index,
        updates,
        ScatterAttrs {
            update_window_dims: Shape::new(),
            inserted_window_dims: [dim as i64].as_slice().into(),
            input_batching_dims: others.clone(),
            scatter_indices_batching_dims: others,
            scatter_dims_to_operand_dims: [dim as i64].as_slice().into(),
            index_vector_dim: rank as i64,
            unique_indices: false,
        },
    )
}

fn arithmetic(reduce: &str) -> Result<ReduceKind> {
    match reduce {
        "add" => Ok(ReduceKind::Sum),
        "multiply" => Ok(ReduceKind::Prod),
        _ => Err(Error::runtime("reduce argument must be either add or multiply.")),
    }
}

/// The monoid on bools is the logical one.
fn kind_for(reduce: ReduceKind, dtype: DType) -> ScatterKind {
    ScatterKind::Reduce(match reduce {
        ReduceKind::Sum | ReduceKind::Max if dtype.is_bool() => ReduceKind::Or,
        ReduceKind::Prod | ReduceKind::Min if dtype.is_bool() => ReduceKind::And,
        other => other,
    })
}

/// What scatter and its relatives are called with: (self, dim, index, src or value).
struct Scatter<'b> {
    x: V<'b>,
    dim: usize,
    index: V<'b>,
    /// The part of the source that is read, in the shape of `index`.
    updates: V<'b>,
    sizes: Shape,
}

fn scatter_args<'b>(a: &Args<'b>) -> Result<Scatter<'b>> {
    let (x, index) = (a.t(0)?, a.t(2)?);
    let sizes = x.sizes();
    let dim = a.dim(1, x.rank())?;
    ensure!(
        matches!(index.dtype(), DType::I32 | DType::I64),
        "scatter(): Expected dtype int32/int64 for index"
    );
    let (x, index) = (at_least_1d(x), at_least_1d(index));
    let number = a.num(3).is_ok_and(|n| n.dtype.is_none());
    let src = if number { a.to(3, x.dtype())? } else { at_least_1d(a.t(3)?) };
    if index.numel() == 0 {
        let updates = a.b.full(0i64, x.dtype(), &index.sizes());
        return Ok(Scatter { x, dim, index, updates, sizes });
    }
    check_along("scatter", x, dim, index)?;
    if src.rank() == 0 {
        let updates = src.broadcast_to(&index.sizes());
        return Ok(Scatter { x, dim, index, updates, sizes });
    }
    ensure!(src.dtype() == x.dtype(), "scatter(): Expected self.dtype to be equal to src.dtype");
    ensure!(
        src.rank() == index.rank() && (0..src.rank()).all(|d| index.size(d) <= src.size(d)),
        "Expected index {:?} to be no larger than src {:?}",
        index.sizes().as_slice(),
        src.sizes().as_slice()
    );
    let rank = src.rank();
    let updates =
        src.slices(&Shape::from_elem(0, rank), &index.sizes(), &Shape::from_elem(1, rank));
    Ok(Scatter { x, dim, index, updates, sizes })
}

fn scatter<'b>(a: &Args<'b>, reduce: Option<ReduceKind>) -> Out<'b> {
    let s = scatter_args(a)?;
    let dtype = s.x.dtype();
    let out = match reduce {
        None => scatter_along(s.x, ScatterKind::Set, s.dim, s.index, s.updates),
        Some(reduce) => {
            let compute = dtype.opmath();
            let (x, updates) = (s.x.convert(compute), s.updates.convert(compute));
            scatter_along(x, kind_for(reduce, dtype), s.dim, s.index, updates).convert(dtype)
        }
    };
    out.reshape(&s.sizes).out()
}

/// A reduction by name, and whether it is divided by the number of its operands.
fn reduction(name: &str) -> Result<(ReduceKind, bool)> {
    Ok(match name {
        "sum" => (ReduceKind::Sum, false),
        "mean" => (ReduceKind::Sum, true),
        "prod" => (ReduceKind::Prod, false),
        "amax" => (ReduceKind::Max, false),
        "amin" => (ReduceKind::Min, false),
        _ => {
            return Err(Error::runtime(format!(
                "reduce argument must be either sum, prod, mean, amax or amin, got {name}."
            )));
        }
    })
}

/// A reducing scatter in opmath, with or without what was there. `write(kind, into, updates)`
/// scatters; `updates` have the op's source shape.
fn reduce_into<'b>(
    x: V<'b>,
    updates: V<'b>,
    reduce: (ReduceKind, bool),
    include_self: bool,
    write: impl Fn(ScatterKind, V<'b>, V<'b>) -> V<'b>,
) -> V<'b> {
    let dtype = x.dtype();
    let compute = dtype.opmath();
    let (mut base, updates) = (x.convert(compute), updates.convert(compute));
    let kind = kind_for(reduce.0, dtype);
    if !include_self {
        let ScatterKind::Reduce(monoid) = kind else { return x };
        let neutral = updates.full_like(monoid.identity(compute));
        base = write(ScatterKind::Set, base, neutral);
    }
    let out = write(kind, base, updates);
    if !reduce.1 {
        return out.convert(dtype);
    }
    let counts = base.full_like(i64::from(include_self));
    let sum = ScatterKind::Reduce(ReduceKind::Sum);
    let counts = write(sum, counts, updates.full_like(1i64)).max(Number::Int(1).cast(compute));
    let mean = if compute.is_integral() {
        // Rounded down, as torch does; XLA's division of integers truncates.
        let quotient = out / counts;
        let inexact = (quotient * counts).ne(out).and(out.lt(Number::Int(0)));
        inexact.select(quotient - quotient.full_like(1i64), quotient)
    } else {
        out / counts
    };
    mean.convert(dtype)
}

/// (self, dim, index, src, reduce, include_self)
fn scatter_reduce<'b>(a: &Args<'b>) -> Out<'b> {
    let s = scatter_args(a)?;
    let out = reduce_into(s.x, s.updates, reduction(a.str(4)?)?, a.bool(5)?, |kind, x, u| {
        scatter_along(x, kind, s.dim, s.index, u)
    });
    out.reshape(&s.sizes).out()
}

/// What index_add and its relatives are called with: (self, dim, index, source).
struct Rows<'b> {
    x: V<'b>,
    dim: usize,
    index: V<'b>,
    source: V<'b>,
    sizes: Shape,
}

impl<'b> Rows<'b> {
    fn new(a: &Args<'b>, op: &str) -> Result<Rows<'b>> {
        let (x, index, source) = (a.t(0)?, a.t(2)?, a.t(3)?);
        check_integer_index(op, index)?;
        ensure!(
            index.rank() <= 1,
            Index,
            "{op}(): Index should have dimension 1 or 0 (got {})",
            index.rank()
        );
        ensure!(
            source.dtype() == x.dtype(),
            "{op}(): self and source expected to have the same dtype, but got (self) {} and \
             (source) {}",
            x.dtype().scalar_type_name(),
            source.dtype().scalar_type_name()
        );
        let sizes = x.sizes();
        let dim = a.dim(1, x.rank())?;
        let (x, index, source) = (at_least_1d(x), at_least_1d(index), at_least_1d(source));
        let mut expected = x.sizes();
        expected[dim] = index.numel();
        ensure!(
            source.sizes() == expected,
            "{op}(): Source/destination tensor must have same slice shapes: expected {:?} for an \
             index of {} elements at dimension {dim}, got {:?}",
            expected.as_slice(),
            index.numel(),
            source.sizes().as_slice()
        );
        Ok(Rows { x, dim, index, source, sizes })
    }

    fn finish(&self, out: V<'b>) -> Out<'b> {
        out.reshape(&self.sizes).out()
    }
}

/// (self, dim, index, source, alpha)
fn index_add<'b>(a: &Args<'b>) -> Out<'b> {
    let s = Rows::new(a, "index_add")?;
    let dtype = s.x.dtype();
    let compute = dtype.opmath();
    let mut source = s.source.convert(compute);
    let alpha = a.num(4)?;
    if alpha.value.to_f64() == 1.0 {
        a.pin(alpha);
    } else if dtype.is_bool() {
        source = source.and(alpha.to(dtype));
    } else {
        source = source * alpha.to(compute);
    }
    let kind = kind_for(ReduceKind::Sum, dtype);
    let out = rows(s.x.convert(compute), kind, s.dim, s.index, source);
    s.finish(out.convert(dtype))
}

/// (self, dim, index, source, reduce, include_self)
fn index_reduce<'b>(a: &Args<'b>) -> Out<'b> {
    let s = Rows::new(a, "index_reduce")?;
    let name = a.str(4)?;
    ensure!(
        matches!(name, "prod" | "mean" | "amax" | "amin"),
        "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {name}."
    );
    let out = reduce_into(s.x, s.source, reduction(name)?, a.bool(5)?, |kind, x, u| {
        rows(x, kind, s.dim, s.index, u)
    });
    s.finish(out)
}

/// (self, dim, index, value)
fn index_fill<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, index) = (a.t(0)?, a.t(2)?);
    ensure!(index.dtype() == DType::I64, Index, "index_fill_(): Expected dtype int64 for index.");
    ensure!(index.rank() <= 1, "Index has to be a vector/scalar");
    let value = a.to(3, x.dtype())?;
    ensure!(
        value.rank() == 0,
        "index_fill_ only supports a 0-dimensional value tensor, but got tensor with {} \
         dimension(s).",
        value.rank()
    );
    if index.numel() == 0 || x.numel() == 0 {
        return x.out();
    }
    if x.rank() == 0 {
        return value.out();
    }
    let dim = a.dim(1, x.rank())?;
    let n = x.size(dim);
    let index = wrap(at_least_1d(index), n);
    let hits = a.b.full(false, DType::Bool, &[n]);
    let hits =
        hits.put_flat(ScatterKind::Set, index, a.b.full(true, DType::Bool, &index.sizes()), false);
    hits.broadcast_in_dim(&x.sizes(), &[dim as i64]).select(value.broadcast_to(&x.sizes()), x).out()
}

/// (self, index, source, accumulate)
fn put<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, index, source) = (a.t(0)?, a.t(1)?, a.t(2)?);
    ensure!(
        index.dtype() == DType::I64,
        "put_(): Expected a long tensor for index, but got {}",
        index.dtype().scalar_type_name()
    );
    ensure!(
        source.dtype() == x.dtype(),
        "put_(): self and source expected to have the same dtype, but got self.dtype = {} and \
         source.dtype = {}",
        x.dtype().scalar_type_name(),
        source.dtype().scalar_type_name()
    );
    ensure!(
        index.numel() == source.numel(),
        "put_(): Expected source and index to have the same number of elements, but got \
         source.numel() = {}, index.numel() = {}",
        source.numel(),
        index.numel()
    );
    if index.numel() == 0 {
        return x.out();
    }
    ensure!(x.numel() > 0, Index, "put_(): cannot put elements into an empty tensor");
    let dtype = x.dtype();
    let kind = if a.bool(3)? { kind_for(ReduceKind::Sum, dtype) } else { ScatterKind::Set };
    let compute = dtype.opmath();
    let at = wrap(index.flatten(), x.numel());
    let out =
        x.convert(compute).flatten().put_flat(kind, at, source.convert(compute).flatten(), false);
    out.reshape(&x.sizes()).convert(dtype).out()
}

/// (self, mask, source): the mask's true elements take source's, in order.
fn masked_scatter<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, mask, source) = (a.t(0)?, a.t(1)?, a.t(2)?);
    ensure!(
        mask.dtype().is_bool(),
        "masked_scatter_ only supports boolean masks, but got mask with dtype {}",
        mask.dtype()
    );
    ensure!(
        source.dtype() == x.dtype(),
        "masked_scatter_: expected self and source to have same dtypes but got {} and {}",
        x.dtype().scalar_type_name(),
        source.dtype().scalar_type_name()
    );
    let (x, mask) = x.broadcast_with(mask);
    if x.numel() == 0 || source.numel() == 0 {
        return x.out();
    }
    let nth = mask.flatten().convert(DType::I64).cumulative(ReduceKind::Sum, 0) - 1i64;
    mask.select(source.take_flat(nth).reshape(&x.sizes()), x).out()
}

/// The only index is a mask: (its position, the mask, values in a shape that broadcasts against
/// the result), if the values don't depend on how many elements are true.
fn masked_value<'b>(a: &Args<'b>) -> Result<Option<(V<'b>, V<'b>)>> {
    let (x, indices, values) = (a.t(0)?, a.opt_list(1)?, a.t(2)?);
    let Some(at) = indices.iter().position(Option::is_some) else { return Ok(None) };
    let (Some(mask), true) = (indices[at], indices[at + 1..].iter().all(Option::is_none)) else {
        return Ok(None);
    };
    let (k, rank) = (mask.rank(), x.rank());
    if !mask.dtype().is_bool() || k == 0 || at + k > rank {
        return Ok(None);
    }
    // The result's dimensions: self's before the mask, the true elements, self's after it.
    let result_rank = rank - k + 1;
    let mut sizes = values.sizes();
    while sizes.len() > result_rank && sizes[0] == 1 {
        sizes.remove(0);
    }
    if sizes.len() > result_rank {
        return Ok(None);
    }
    let lead = result_rank - sizes.len();
    if at >= lead {
        if sizes[at - lead] != 1 {
            return Ok(None);
        }
        for _ in 1..k {
            sizes.insert(at - lead, 1);
        }
    }
    let mut wide = x.sizes();
    (0..rank).filter(|d| !(at..at + k).contains(d)).for_each(|d| wide[d] = 1);
    wide[at..at + k].copy_from_slice(&mask.sizes());
    if mask.sizes().as_slice() != &x.sizes()[at..at + k] {
        return Ok(None);
    }
    let values = values.reshape(&sizes);
    Ok(Some((mask.reshape(&wide), values)))
}

fn index_put_count<'b>(a: &Args<'b>) -> Result<Option<V<'b>>> {
    if masked_value(a)?.is_some() {
        return Ok(None);
    }
    masks_count(a.t(0)?, &a.opt_list(1)?)
}

/// (self, indices, values, accumulate)
fn index_put<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, values, accumulate) = (a.t(0)?, a.t(2)?, a.bool(3)?);
    let dtype = x.dtype();
    ensure!(
        values.dtype() == dtype,
        "Index put requires the source and destination dtypes match, got {} for the destination \
         and {} for the source.",
        dtype.scalar_type_name(),
        values.dtype().scalar_type_name()
    );
    let kind = if accumulate { kind_for(ReduceKind::Sum, dtype) } else { ScatterKind::Set };
    let compute = if accumulate { dtype.opmath() } else { dtype };
    if let Some((mask, values)) = masked_value(a)? {
        // Each place is written once, all with values that don't depend on the count.
        let sizes = x.sizes();
        let values = expand_to(values.convert(compute), &sizes)?;
        let new = combine(kind, x.convert(compute), values).convert(dtype);
        return mask.broadcast_to(&sizes).select(new, x).out();
    }
    let Some(p) = places(a, x, &a.opt_list(1)?)? else {
        let values = expand_to(values.convert(compute), &x.sizes())?;
        return combine(kind, x.convert(compute), values).convert(dtype).out();
    };
    let mut own = values.sizes();
    while own.len() > p.sizes.len() && own[0] == 1 {
        own.remove(0);
    }
    let fits = broadcast_shapes(&p.sizes, &own).is_ok_and(|s| s == p.sizes);
    ensure!(
        fits,
        "shape mismatch: value tensor of shape {:?} cannot be broadcast to indexing result of \
         shape {:?}",
        values.sizes().as_slice(),
        p.sizes.as_slice()
    );
    if p.sizes.contains(&0) {
        return x.out();
    }
    let updates = values.convert(compute).reshape(&own).broadcast_to(&p.sizes);
    let out = x.convert(compute).scatter(
        kind,
        p.starts,
        updates,
        ScatterAttrs {
            update_window_dims: p.window_dims(),
            inserted_window_dims: p.dims.clone(),
            input_batching_dims: Shape::new(),
            scatter_indices_batching_dims: Shape::new(),
            scatter_dims_to_operand_dims: p.dims.clone(),
            index_vector_dim: p.batch.len() as i64,
            unique_indices: false,
        },
    );
    out.convert(dtype).out()
}
