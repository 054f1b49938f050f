//! Elementwise functions of one operand.

use std::f64::consts::{LN_2, LN_10, PI};

use super::elementwise::{
    ANY, BITS, FLOAT, NUMERIC, ORDERED, REAL, abs_int, exp2, map, map_float, only, sign_bit, trunc,
    unsupported, zeta,
};
use super::{Args, Out, Registry};
use crate::ensure;
use crate::ir::dtype::Category;
use crate::ir::{DType, Number, V};

type Function = fn(V<'_>) -> V<'_>;

pub(super) fn register(r: &mut Registry) {
    floats(r);
    specials(r);
    integers(r);
    tests(r);
    parts(r);
}

/// Registers a function that takes integers to floats.
fn float(r: &mut Registry, name: &'static str, kinds: &'static [Category], f: Function) {
    r.op(name, move |a| map_float(a, short(name), kinds, &[0], |x| f(x[0])));
}

/// Registers a function that keeps the dtype.
fn same(r: &mut Registry, name: &'static str, kinds: &'static [Category], f: Function) {
    r.op(name, move |a| map(a, short(name), kinds, &[0], |x| f(x[0])));
}

/// Registers a function to integers of the operand's own type: what is an integer stays.
fn integer(r: &mut Registry, name: &'static str, f: Function) {
    r.op(name, move |a| {
        map(a, short(name), REAL, &[0], |x| if x[0].dtype().is_int() { x[0] } else { f(x[0]) })
    });
}

/// Registers a predicate, computed in the operand's own type.
fn test(r: &mut Registry, name: &'static str, kinds: &'static [Category], f: Function) {
    r.op(name, move |a| {
        let x = a.t(0)?;
        only(short(name), x.dtype(), kinds)?;
        f(x).out()
    });
}

/// An op's name without namespace.
fn short(name: &'static str) -> &'static str {
    name.trim_start_matches("aten::")
}

/// False everywhere.
fn none(x: V<'_>) -> V<'_> {
    x.b.full(false, DType::Bool, &x.sizes())
}

fn floats(r: &mut Registry) {
    float(r, "aten::exp", ANY, |x| x.exp());
    float(r, "aten::exp2", ANY, exp2);
    float(r, "aten::expm1", ANY, |x| x.expm1());
    float(r, "aten::log", ANY, |x| x.log());
    float(r, "aten::log2", ANY, |x| x.log() / LN_2);
    float(r, "aten::log10", ANY, |x| x.log() / LN_10);
    float(r, "aten::log1p", ANY, |x| x.log1p());
    float(r, "aten::sqrt", ANY, |x| x.sqrt());
    float(r, "aten::rsqrt", ANY, |x| x.rsqrt());
    float(r, "aten::reciprocal", ANY, |x| 1.0 / x);
    float(r, "aten::sin", ANY, |x| x.sin());
    float(r, "aten::cos", ANY, |x| x.cos());
    float(r, "aten::tan", ANY, |x| x.tan());
    float(r, "aten::asin", ANY, |x| x.asin());
    float(r, "aten::acos", ANY, |x| x.acos());
    float(r, "aten::atan", ANY, |x| x.atan());
    float(r, "aten::sinh", ANY, |x| x.sinh());
    float(r, "aten::cosh", ANY, |x| x.cosh());
    float(r, "aten::tanh", ANY, |x| x.tanh());
    float(r, "aten::asinh", ANY, |x| x.asinh());
    float(r, "aten::acosh", ANY, |x| x.acosh());
    float(r, "aten::atanh", ANY, |x| x.atanh());
    float(r, "aten::sigmoid", ANY, |x| x.logistic());
    float(r, "aten::sinc", ANY, |x| {
        let y = x * PI;
        x.eq(0.0).select(x.full_like(1.0), y.sin() / y)
    });
}

fn specials(r: &mut Registry) {
    float(r, "aten::erf", ORDERED, |x| x.erf());
    float(r, "aten::erfc", ORDERED, |x| x.erfc());
    float(r, "aten::erfinv", ORDERED, |x| x.erf_inv());
    float(r, "aten::lgamma", ORDERED, |x| x.lgamma());
    float(r, "aten::digamma", ORDERED, digamma);
    r.op("aten::polygamma", |a| {
        let n = a.int(0)?;
        ensure!(n >= 0, "polygamma(n, x) does not support negative n.");
        map_float(a, "polygamma", ORDERED, &[1], |x| match n {
            0 => digamma(x[0]),
            1 => trigamma(x[0]),
            _ => polygamma(n, x[0]),
        })
    });
    r.op("aten::logit", |a| {
        let eps = a.opt_num(1)?.map(|n| a.pin(n).to_f64()).filter(|&eps| eps >= 0.0);
        map_float(a, "logit_cpu", ORDERED, &[0], |x| {
            let x = eps.map_or(x[0], |eps| x[0].clamp_numbers(eps, 1.0 - eps));
            (x / (1.0 - x)).log()
        })
    });
    r.op("aten::logit_backward", |a| {
        let eps = a.opt_num(2)?.map(|n| a.pin(n).to_f64()).filter(|&eps| eps >= 0.0);
        map(a, "logit_backward_cpu", FLOAT, &[0, 1], |x| {
            let (grad, x) = (x[0], x[1]);
            let slope = grad / (x * (1.0 - x));
            // Where the forward pass clamps there is no slope; without eps, no value out of 0…1.
            let (low, high, other) = match eps {
                Some(eps) => (eps, 1.0 - eps, 0.0),
                None => (0.0, 1.0, f64::NAN),
            };
            let outside = x.lt(low).or(x.gt(high));
            outside.select(slope.full_like(other), slope)
        })
    });
    float(r, "aten::special_entr", ORDERED, |x| {
        let inf = x.full_like(f64::NEG_INFINITY);
        let other = x.eq(0.0).select(x.full_like(0.0), inf);
        x.is_nan().select(x, x.gt(0.0).select(-(x * x.log()), other))
    });
}

fn digamma(x: V<'_>) -> V<'_> {
    // A pole whose side is the sign of zero.
    x.eq(0.0).select(-1.0 / x, x.digamma())
}

/// By reflection at ½: ψ₁(1 − x) + ψ₁(x) = π² / sin²(πx).
fn trigamma(x: V<'_>) -> V<'_> {
    let mirrored = x.lt(0.5);
    let z = mirrored.select(1.0 - x, x);
    // Ten terms of the series, the rest by Euler–Maclaurin (NIST DLMF 5.15.8): the first term left
    // out is below 1e-15 of the value.
    let head = (0..10).fold(z.full_like(0.0), |sum, k| {
        let shifted = z + f64::from(k);
        sum + 1.0 / (shifted * shifted)
    });
    let r = 1.0 / (z + 10.0);
    let r2 = r * r;
    const BERNOULLI: [f64; 6] =
        [1.0 / 6.0, -1.0 / 30.0, 1.0 / 42.0, -1.0 / 30.0, 5.0 / 66.0, -691.0 / 2730.0];
    let series = BERNOULLI.iter().rev().fold(z.full_like(0.0), |sum, &b| sum * r2 + b);
    let y = head + r + r2 * 0.5 + r2 * r * series;
    let sine = (x * PI).sin();
    mirrored.select(PI * PI / (sine * sine) - y, y)
}

/// (−1)ⁿ⁺¹ n! ζ(n + 1, x)
fn polygamma(n: i64, x: V<'_>) -> V<'_> {
    let factorial: f64 = (1..=n).map(|k| k as f64).product();
    let sign = if n % 2 == 1 { 1.0 } else { -1.0 };
    zeta(x.full_like((n + 1) as f64), x) * (sign * factorial)
}

fn integers(r: &mut Registry) {
    integer(r, "aten::floor", |x| x.floor());
    integer(r, "aten::ceil", |x| x.ceil());
    integer(r, "aten::trunc", trunc);
    integer(r, "aten::round", |x| x.round_even());
    r.op("aten::round.decimals", |a| {
        let decimals = a.int(1)?;
        map(a, "round_cpu", FLOAT, &[0], |x| {
            let scale = 10f64.powi(decimals.unsigned_abs().min(400) as i32);
            match decimals {
                0 => x[0].round_even(),
                1.. => (x[0] * scale).round_even() / scale,
                _ => (x[0] / scale).round_even() * scale,
            }
        })
    });
    same(r, "aten::frac", FLOAT, |x| x - trunc(x));
    same(r, "aten::bitwise_not", BITS, |x| x.not());
    same(r, "aten::abs", NUMERIC, abs_int);
    same(r, "aten::neg", NUMERIC, |x| -x);
    same(r, "aten::sign", ORDERED, sign);
    same(r, "aten::sgn", ANY, sign);
}

/// −1, 0 or 1 (0 for NaN); z/|z| of a complex number.
fn sign(x: V<'_>) -> V<'_> {
    match x.dtype().category() {
        Category::Bool => x,
        Category::Int if x.dtype().is_unsigned() => x.ne(0i64).convert(x.dtype()),
        // NaN and −0 give 0.
        Category::Float => x.ne(0.0).and(x.is_nan().not()).select(x.sign(), x.full_like(0.0)),
        _ => x.sign(),
    }
}

fn tests(r: &mut Registry) {
    test(r, "aten::isnan", ANY, |x| if x.dtype().is_inexact() { x.is_nan() } else { none(x) });
    test(r, "aten::isinf", ANY, |x| match x.dtype().category() {
        Category::Complex => x.real().is_inf().or(x.imag().is_inf()),
        Category::Float => x.is_inf(),
        _ => none(x),
    });
    test(r, "aten::isposinf", ORDERED, |x| {
        if x.dtype().is_float() { x.eq(f64::INFINITY) } else { none(x) }
    });
    test(r, "aten::isneginf", ORDERED, |x| {
        if x.dtype().is_float() { x.eq(f64::NEG_INFINITY) } else { none(x) }
    });
    test(r, "aten::signbit", ORDERED, sign_bit);
    test(r, "aten::logical_not", ANY, |x| x.convert(DType::Bool).not());
}

fn parts(r: &mut Registry) {
    r.op("aten::_conj_physical", |a| conj(a.t(0)?).out());
    r.op("aten::angle", |a| {
        let x = a.t(0)?;
        if x.dtype().is_complex() {
            return x.imag().atan2(x.real()).out();
        }
        map_float(a, "angle", ORDERED, &[0], |x| {
            let x = x[0];
            let side = x.lt(0.0).select(x.full_like(PI), 0.0);
            x.is_nan().select(x, side)
        })
    });
    r.op("aten::nan_to_num", nan_to_num);
}

/// The complex conjugate; a real value is its own.
pub(super) fn conj(x: V<'_>) -> V<'_> {
    if x.dtype().is_complex() { x.real().complex(-x.imag()) } else { x }
}

fn nan_to_num<'b>(a: &Args<'b>) -> Out<'b> {
    let x = a.t(0)?;
    if !x.dtype().is_inexact() {
        return x.out();
    }
    let dtype = x.dtype().real();
    let highest = finite_max(dtype).ok_or_else(|| unsupported("nan_to_num", dtype))?;
    let number = |i: usize, default: f64| {
        let n = a.opt_num(i)?;
        Ok::<_, crate::error::Error>(
            n.map_or_else(|| a.b.full(Number::float(default), dtype, &[]), |n| n.to(dtype)),
        )
    };
    let (nan, high, low) = (number(1, 0.0)?, number(2, highest)?, number(3, -highest)?);
    let clean = |x: V<'b>| {
        let finite = x.eq(f64::INFINITY).select(high, x.eq(f64::NEG_INFINITY).select(low, x));
        x.is_nan().select(nan, finite)
    };
    if x.dtype().is_complex() {
        clean(x.real()).complex(clean(x.imag())).out()
    } else {
        clean(x).out()
    }
}

/// The largest finite value of a float type.
fn finite_max(dtype: DType) -> Option<f64> {
    Some(match dtype {
        DType::F64 => f64::MAX,
        DType::F32 => f32::MAX.into(),
        DType::F16 => 65504.0,
        DType::BF16 => f64::from(f32::from_bits(0x7f7f_0000)),
        _ => return None,
    })
}
