//! Tensors made from numbers.
//!
//! Without a dtype argument the element type is the one of the number's category, floats f32:
//! a caller whose default dtype is another passes it.

use super::index::positions;
use super::{Args, Num, Out, Registry};
use crate::ensure;
use crate::error::Result;
use crate::ir::dtype::Category;
use crate::ir::{DType, Number, Shape, V};

pub(super) fn register(r: &mut Registry) {
    r.op("aten::zeros", |a| a.b.full(0i64, dtype_or(a, 1, DType::F32)?, &sizes(a, 0)?).out());
    r.op("aten::ones", |a| a.b.full(1i64, dtype_or(a, 1, DType::F32)?, &sizes(a, 0)?).out());
    r.op("aten::full", |a| {
        let value = a.num(1)?;
        filled(value, dtype_or(a, 2, default_dtype(value.category()))?, &sizes(a, 0)?)
    });
    r.op("aten::zeros_like", |a| like(a, 0, a.t(0)?.sizes()));
    r.op("aten::ones_like", |a| like(a, 1, a.t(0)?.sizes()));
    r.op("aten::new_zeros", |a| new(a, 0));
    r.op("aten::new_ones", |a| new(a, 1));
    r.op("aten::full_like", |a| {
        let x = a.t(0)?;
        filled(a.num(1)?, dtype_or(a, 2, x.dtype())?, &x.sizes())
    });
    r.op("aten::new_full", |a| filled(a.num(2)?, dtype_or(a, 3, a.t(0)?.dtype())?, &sizes(a, 1)?));
    r.op("aten::scalar_tensor", |a| a.num(0)?.to(dtype_or(a, 1, DType::F32)?).out());
    r.op("aten::zero", |a| a.t(0)?.full_like(0i64).out());
    r.op("aten::fill.Scalar", fill);
    r.op("aten::fill.Tensor", fill);
    r.op("aten::eye", |a| eye(a, a.int(0)?, a.int(0)?, 1));
    r.op("aten::eye.m", |a| eye(a, a.int(0)?, a.int(1)?, 2));
    r.op("aten::arange", |a| arange(a, None, 0, None));
    r.op("aten::arange.start", |a| arange(a, Some(0), 1, None));
    r.op("aten::arange.start_step", |a| arange(a, Some(0), 1, Some(2)));
    r.op("aten::range", |a| range(a, None, 2));
    r.op("aten::range.step", |a| range(a, Some(2), 3));
    for name in [
        "aten::linspace",
        "aten::linspace.Tensor_Tensor",
        "aten::linspace.Tensor_Scalar",
        "aten::linspace.Scalar_Tensor",
    ] {
        r.op(name, |a| {
            let dtype = dtype_or(a, 3, DType::F32)?;
            linspace(a, dtype)?.convert(dtype).out()
        });
    }
    for name in [
        "aten::logspace",
        "aten::logspace.Tensor_Tensor",
        "aten::logspace.Tensor_Scalar",
        "aten::logspace.Scalar_Tensor",
    ] {
        r.op(name, |a| {
            let dtype = dtype_or(a, 4, DType::F32)?;
            let exponent = linspace(a, dtype)?;
            let base = a.num(3)?.to(exponent.dtype());
            base.pow(exponent).convert(dtype).out()
        });
    }
    r.op("aten::tril_indices", |a| triangle_indices(a, true));
    r.op("aten::triu_indices", |a| triangle_indices(a, false));
}

/// The element type a number brings along by itself.
fn default_dtype(category: Category) -> DType {
    match category {
        Category::Bool => DType::Bool,
        Category::Int => DType::I64,
        Category::Float => DType::F32,
        Category::Complex => DType::C64,
    }
}

fn dtype_or(a: &Args<'_>, i: usize, default: DType) -> Result<DType> {
    Ok(a.opt_dtype(i)?.unwrap_or(default))
}

fn sizes(a: &Args<'_>, i: usize) -> Result<Shape> {
    let sizes = a.ints(i)?;
    ensure!(
        sizes.iter().all(|&n| n >= 0),
        "Trying to create tensor with negative dimension in size {:?}",
        sizes.as_slice()
    );
    Ok(sizes)
}

fn filled<'b>(value: Num<'b>, dtype: DType, sizes: &[i64]) -> Out<'b> {
    ensure!(
        value.category() != Category::Complex || dtype.is_complex() || dtype.is_bool(),
        "value cannot be converted to type {dtype} without overflow"
    );
    value.to(dtype).broadcast_to(sizes).out()
}

fn like<'b>(a: &Args<'b>, value: i64, sizes: Shape) -> Out<'b> {
    a.b.full(value, dtype_or(a, 1, a.t(0)?.dtype())?, &sizes).out()
}

fn new<'b>(a: &Args<'b>, value: i64) -> Out<'b> {
    a.b.full(value, dtype_or(a, 2, a.t(0)?.dtype())?, &sizes(a, 1)?).out()
}

/// (self, value)
fn fill<'b>(a: &Args<'b>) -> Out<'b> {
    let x = a.t(0)?;
    let value = a.to(1, x.dtype())?;
    ensure!(
        value.rank() == 0,
        "fill_ only supports 0-dimension value tensor but got tensor with {} dimensions.",
        value.rank()
    );
    value.broadcast_to(&x.sizes()).out()
}

fn eye<'b>(a: &Args<'b>, n: i64, m: i64, dtype: usize) -> Out<'b> {
    ensure!(n >= 0, "n must be greater or equal to 0, got {n}");
    ensure!(m >= 0, "m must be greater or equal to 0, got {m}");
    let dtype = dtype_or(a, dtype, DType::F32)?;
    let (row, column) = (a.b.iota(DType::I64, &[n, m], 0), a.b.iota(DType::I64, &[n, m], 1));
    row.eq(column).convert(dtype).out()
}

/// start, start + step, … of a known length. Numbers stay slots: their values are not part of
/// the graph.
fn progression<'b>(
    a: &Args<'b>,
    start: Option<Num<'b>>,
    step: Option<Num<'b>>,
    n: i64,
    dtype: DType,
) -> V<'b> {
    let given = [start, step];
    let integral = given.iter().flatten().all(|x| x.category() <= Category::Int);
    // As torch: integers exactly, floats in double.
    let compute = if integral || dtype.is_int() { DType::I64 } else { DType::F64 };
    let mut v = a.b.iota(compute, &[n], 0);
    if let Some(step) = step {
        v = v * step.to(compute);
    }
    if let Some(start) = start {
        v = v + start.to(compute);
    }
    v.convert(dtype)
}

fn arange<'b>(a: &Args<'b>, start: Option<usize>, end: usize, step: Option<usize>) -> Out<'b> {
    let (first, last) = (start.map(|i| a.num(i)).transpose()?, a.num(end)?);
    let by = step.map(|i| a.num(i)).transpose()?;
    let numbers = [first, Some(last), by];
    let integral = numbers.iter().flatten().all(|n| n.category() <= Category::Int);
    let dtype = step.unwrap_or(end) + 1;
    let dtype = dtype_or(a, dtype, if integral { DType::I64 } else { DType::F32 })?;
    // The length depends on the values, the elements on the slots.
    let value = |n: Option<Num<'b>>, default: i64| n.map_or(Number::Int(default), |n| a.pin(n));
    let (s, e, d) = (value(first, 0), value(Some(last), 0), value(by, 1));
    let n = if dtype == DType::I64 {
        let (s, e, d) = (s.to_i64(), e.to_i64(), d.to_i64());
        check_step(s as f64, e as f64, d as f64)?;
        let (span, d) = if d > 0 { (e - s, d) } else { (s - e, -d) };
        (span + d - 1) / d
    } else {
        let (s, e, d) = (s.to_f64(), e.to_f64(), d.to_f64());
        check_step(s, e, d)?;
        ((e - s) / d).ceil() as i64
    };
    progression(a, first, by, n, dtype).out()
}

fn check_step(start: f64, end: f64, step: f64) -> Result<()> {
    ensure!(step != 0.0, "step must be nonzero");
    ensure!(start.is_finite() && end.is_finite(), "unsupported range: {start} -> {end}");
    ensure!(
        (step > 0.0 && end >= start) || (step < 0.0 && end <= start),
        "upper bound and lower bound inconsistent with step sign"
    );
    Ok(())
}

/// (start, end, step, dtype): both ends included.
fn range<'b>(a: &Args<'b>, step: Option<usize>, dtype: usize) -> Out<'b> {
    let (first, last) = (a.num(0)?, a.num(1)?);
    let by = step.map(|i| a.num(i)).transpose()?;
    let dtype = dtype_or(a, dtype, DType::F32)?;
    let d = by.map_or(1.0, |n| a.pin(n).to_f64());
    let (s, e) = (a.pin(first).to_f64(), a.pin(last).to_f64());
    check_step(s, e, d)?;
    progression(a, Some(first), by, ((e - s) / d).floor() as i64 + 1, dtype).out()
}

/// (start, end, steps): evenly spaced, in the type to compute `dtype` in. From the middle on
/// counted from the end, so that both ends are exact.
fn linspace<'b>(a: &Args<'b>, dtype: DType) -> Result<V<'b>> {
    let n = a.int(2)?;
    ensure!(n >= 0, "number of steps must be non-negative");
    let compute = if dtype.is_integral() { DType::F64 } else { dtype.opmath() };
    let (start, end) = (a.to(0, compute)?, a.to(1, compute)?);
    ensure!(
        start.rank() == 0 && end.rank() == 0,
        "linspace only supports 0-dimensional start and end tensors, but got start with {} \
         dimension(s) and end with {} dimension(s).",
        start.rank(),
        end.rank()
    );
    // Integer results start from integers.
    let whole =
        |v: V<'b>| if dtype.is_integral() { v.convert(DType::I64).convert(compute) } else { v };
    let (start, end) = (whole(start), whole(end));
    if n <= 1 {
        return Ok(start.broadcast_to(&[n]));
    }
    let step = (end - start) / start.full_like(n - 1);
    let i = a.b.iota(compute, &[n], 0);
    let forward = i * step + start;
    let backward = end - (-i + i.full_like(n - 1)) * step;
    Ok(i.lt(i.full_like(n / 2)).select(forward, backward))
}

/// (row, col, offset, dtype): the coordinates of a triangle's elements, row by row.
fn triangle_indices<'b>(a: &Args<'b>, lower: bool) -> Out<'b> {
    let (rows, cols, offset) = (a.int(0)?, a.int(1)?, a.int(2)?);
    ensure!(rows >= 0, "row must be non-negative, got{rows}");
    ensure!(cols >= 0, "col must be non-negative, got{cols}");
    let dtype = dtype_or(a, 3, DType::I64)?;
    let below = |row: i64| (row + 1 + offset).clamp(0, cols);
    let n: i64 = (0..rows)
        .map(|row| if lower { below(row) } else { cols - (row + offset).clamp(0, cols) })
        .sum();
    if n == 0 {
        return a.b.full(0i64, dtype, &[2, 0]).out();
    }
    let diagonal = a.b.iota(DType::I64, &[rows, cols], 1) - a.b.iota(DType::I64, &[rows, cols], 0);
    let inside = if lower { diagonal.le(offset) } else { diagonal.ge(offset) };
    let flat = positions(inside, n);
    let parts = [(flat / flat.full_like(cols)).unsqueeze(0), flat.rem(cols).unsqueeze(0)];
    a.b.concat(&parts, 0).convert(dtype).out()
}
