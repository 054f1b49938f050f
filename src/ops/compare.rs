//! Comparisons, extremes, clamping, logic and bits.

use super::elementwise::{ANY, BITS, ORDERED, REAL, map, only, unsupported};
use super::{Args, Num, Out, Registry};
use crate::ensure;
use crate::error::{Error, ErrorKind, Result};
use crate::ir::dtype::Category;
use crate::ir::{CompareDir, DType, ReduceKind, V};

pub(super) fn register(r: &mut Registry) {
    comparisons(r);
    extremes(r);
    logic(r);
    bits(r);
    r.op("aten::where.self", |a| {
        let condition = a.result_type(&[0])?;
        ensure!(
            matches!(condition, DType::Bool | DType::U8),
            "where expected condition to be a boolean tensor, but got a tensor with dtype {}",
            condition.scalar_type_name()
        );
        let dtype = a.result_type(&[1, 2])?;
        a.to(0, DType::Bool)?.select(a.to(1, dtype)?, a.to(2, dtype)?).out()
    });
    for name in ["aten::isin.Tensor_Tensor", "aten::isin.Tensor_Scalar", "aten::isin.Scalar_Tensor"]
    {
        r.op(name, isin);
    }
}

fn comparisons(r: &mut Registry) {
    use CompareDir::*;
    let all: [(&'static str, &'static str, &'static str, CompareDir); 6] = [
        ("aten::eq.Tensor", "aten::eq.Scalar", "eq_cpu", Eq),
        ("aten::ne.Tensor", "aten::ne.Scalar", "ne_cpu", Ne),
        ("aten::lt.Tensor", "aten::lt.Scalar", "lt_cpu", Lt),
        ("aten::le.Tensor", "aten::le.Scalar", "le_cpu", Le),
        ("aten::gt.Tensor", "aten::gt.Scalar", "gt_cpu", Gt),
        ("aten::ge.Tensor", "aten::ge.Scalar", "ge_cpu", Ge),
    ];
    for (tensor, scalar, op, dir) in all {
        let kinds = if matches!(dir, Eq | Ne) { ANY } else { ORDERED };
        for name in [tensor, scalar] {
            // In the result type itself: a number is first rounded to it.
            r.op(name, move |a| {
                let dtype = a.result_type(&[0, 1])?;
                only(op, dtype, kinds)?;
                a.to(0, dtype)?.compare(dir, a.to(1, dtype)?).out()
            });
        }
    }
}

fn extremes(r: &mut Registry) {
    r.op("aten::maximum", |a| extreme(a, "maximum", |x, y| x.max(y)));
    r.op("aten::minimum", |a| extreme(a, "minimum", |x, y| x.min(y)));
    r.op("aten::fmax", |a| extreme(a, "fmax", |x, y| numbers(x, y, x.max(y))));
    r.op("aten::fmin", |a| extreme(a, "fmin", |x, y| numbers(x, y, x.min(y))));
    for name in ["aten::clamp", "aten::clamp.Tensor"] {
        r.op(name, |a| clamp(a, Some(1), Some(2)));
    }
    for name in ["aten::clamp_min", "aten::clamp_min.Tensor"] {
        r.op(name, |a| clamp(a, Some(1), None));
    }
    for name in ["aten::clamp_max", "aten::clamp_max.Tensor"] {
        r.op(name, |a| clamp(a, None, Some(1)));
    }
}

fn extreme<'b>(a: &Args<'b>, op: &str, f: impl FnOnce(V<'b>, V<'b>) -> V<'b>) -> Out<'b> {
    let dtype = a.result_type(&[0, 1])?;
    ensure!(!dtype.is_complex(), Type, "{op} not implemented for complex tensors.");
    f(a.to(0, dtype)?, a.to(1, dtype)?).out()
}

/// `extreme` unless one operand is NaN: then the other.
fn numbers<'b>(x: V<'b>, y: V<'b>, extreme: V<'b>) -> V<'b> {
    if !x.dtype().is_float() {
        return extreme;
    }
    x.is_nan().select(y, y.is_nan().select(x, extreme))
}

/// min(max(x, low), high): NaN anywhere gives NaN.
fn clamp<'b>(a: &Args<'b>, low: Option<usize>, high: Option<usize>) -> Out<'b> {
    let given = |i: Option<usize>| i.filter(|&i| !a.is_none(i));
    let (low, high) = (given(low), given(high));
    ensure!(
        low.is_some() || high.is_some(),
        "torch.clamp: At least one of 'min' or 'max' must not be None"
    );
    let positions: Vec<usize> = [Some(0), low, high].into_iter().flatten().collect();
    let dtype = a.result_type(&positions)?;
    only("clamp", dtype, REAL)?;
    let mut x = a.to(0, dtype)?;
    if let Some(i) = low {
        x = x.max(bound(a, i, dtype)?);
    }
    if let Some(i) = high {
        x = x.min(bound(a, i, dtype)?);
    }
    x.out()
}

/// A bound of a clamp in `dtype`. An integer that the type doesn't hold is its nearest value.
fn bound<'b>(a: &Args<'b>, i: usize, dtype: DType) -> Result<V<'b>> {
    match a.num(i) {
        Ok(n) => Ok(saturate(n, dtype)),
        Err(_) => a.to(i, dtype),
    }
}

/// The number in `dtype`, or the nearest that the type holds.
pub(super) fn saturate(n: Num<'_>, dtype: DType) -> V<'_> {
    let narrow = dtype.is_int() && dtype.size() < 8;
    if narrow && n.category() == Category::Int {
        n.to(DType::I64).clamp(dtype.min_value(), dtype.max_value()).convert(dtype)
    } else {
        n.to(dtype)
    }
}

fn logic(r: &mut Registry) {
    r.op("aten::logical_and", |a| logical(a, |x, y| x.and(y)));
    r.op("aten::logical_or", |a| logical(a, |x, y| x.or(y)));
    r.op("aten::logical_xor", |a| logical(a, |x, y| x.xor(y)));
}

fn logical<'b>(a: &Args<'b>, f: impl FnOnce(V<'b>, V<'b>) -> V<'b>) -> Out<'b> {
    f(a.to(0, DType::Bool)?, a.to(1, DType::Bool)?).out()
}

fn bits(r: &mut Registry) {
    for name in
        ["aten::bitwise_and.Tensor", "aten::bitwise_and.Scalar", "aten::bitwise_and.Scalar_Tensor"]
    {
        r.op(name, |a| map(a, "bitwise_and_cpu", BITS, &[0, 1], |x| x[0].and(x[1])));
    }
    for name in
        ["aten::bitwise_or.Tensor", "aten::bitwise_or.Scalar", "aten::bitwise_or.Scalar_Tensor"]
    {
        r.op(name, |a| map(a, "bitwise_or_cpu", BITS, &[0, 1], |x| x[0].or(x[1])));
    }
    for name in
        ["aten::bitwise_xor.Tensor", "aten::bitwise_xor.Scalar", "aten::bitwise_xor.Scalar_Tensor"]
    {
        r.op(name, |a| map(a, "bitwise_xor_cpu", BITS, &[0, 1], |x| x[0].xor(x[1])));
    }
    // Shifts out of range give 0, or the sign to the right: the primitives' own semantics.
    for name in [
        "aten::bitwise_left_shift.Tensor",
        "aten::bitwise_left_shift.Tensor_Scalar",
        "aten::bitwise_left_shift.Scalar_Tensor",
        "aten::__lshift__.Tensor",
        "aten::__lshift__.Scalar",
    ] {
        r.op(name, |a| map(a, "lshift_cpu", &[Category::Int], &[0, 1], |x| x[0].shift_left(x[1])));
    }
    for name in [
        "aten::bitwise_right_shift.Tensor",
        "aten::bitwise_right_shift.Tensor_Scalar",
        "aten::bitwise_right_shift.Scalar_Tensor",
        "aten::__rshift__.Tensor",
        "aten::__rshift__.Scalar",
    ] {
        r.op(name, |a| {
            map(a, "rshift_cpu", &[Category::Int], &[0, 1], |x| {
                if x[0].dtype().is_unsigned() {
                    x[0].shift_right(x[1])
                } else {
                    x[0].shift_right_arithmetic(x[1])
                }
            })
        });
    }
}

/// Above this many pairs a comparison of each with each is the wrong algorithm.
const ISIN_PAIRS: i64 = 1 << 30;

fn isin<'b>(a: &Args<'b>) -> Out<'b> {
    let dtype = a.result_type(&[0, 1])?;
    if dtype.is_complex() {
        return Err(unsupported("isin", dtype));
    }
    let (x, set) = (a.to(0, dtype)?, a.to(1, dtype)?);
    let pairs = x.numel().saturating_mul(set.numel());
    if pairs > ISIN_PAIRS {
        let text = format!("isin of {} in {} isn't native: too many pairs", x.ty(), set.ty());
        return Err(Error::new(ErrorKind::NotImplemented, text));
    }
    let equal = x.flatten().unsqueeze(1).eq(set.flatten().unsqueeze(0));
    let found = equal.reduce(ReduceKind::Or, &[1], false).reshape(&x.sizes());
    (if a.bool(3)? { found.not() } else { found }).out()
}
