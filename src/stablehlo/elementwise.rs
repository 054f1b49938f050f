//! The elementwise primitives: where StableHLO has no meaning for a dtype, what it comes to.

use super::printer::{Printer, Val};
use super::zero;
use crate::ir::{BinaryOp, CompareDir, DType, Number, ReduceKind, TensorType, UnaryOp};

pub(super) fn unary(p: &mut Printer, op: UnaryOp, x: &Val) -> Val {
    let dtype = x.ty.dtype;
    let name = match op {
        UnaryOp::Abs if dtype.is_unsigned() => return x.clone(),
        UnaryOp::Abs => return p.part("stablehlo.abs", x),
        // Modulo 2, a bit is its own negative.
        UnaryOp::Neg | UnaryOp::Sign if dtype.is_bool() => return x.clone(),
        UnaryOp::Neg => "stablehlo.negate",
        UnaryOp::Sign if dtype.is_unsigned() => {
            let one = p.constant(Number::Int(1), &x.ty);
            return p.same("stablehlo.minimum", &[x, &one]);
        }
        UnaryOp::Sign => "stablehlo.sign",
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::RoundEven if dtype.is_integral() => {
            return x.clone();
        }
        UnaryOp::Floor => "stablehlo.floor",
        UnaryOp::Ceil => "stablehlo.ceil",
        UnaryOp::RoundEven => "stablehlo.round_nearest_even",
        UnaryOp::IsFinite => return is_finite(p, x),
        UnaryOp::Real if !dtype.is_complex() => return x.clone(),
        UnaryOp::Real => return p.part("stablehlo.real", x),
        UnaryOp::Imag if !dtype.is_complex() => return p.constant(zero(), &x.ty),
        UnaryOp::Imag => return p.part("stablehlo.imag", x),
        UnaryOp::PopulationCount if dtype.is_bool() => return x.clone(),
        UnaryOp::PopulationCount => "stablehlo.popcnt",
        UnaryOp::Not => "stablehlo.not",
        UnaryOp::Exp => "stablehlo.exponential",
        UnaryOp::Expm1 => "stablehlo.exponential_minus_one",
        UnaryOp::Log => "stablehlo.log",
        UnaryOp::Log1p => "stablehlo.log_plus_one",
        UnaryOp::Sqrt => "stablehlo.sqrt",
        UnaryOp::Rsqrt => "stablehlo.rsqrt",
        UnaryOp::Cbrt => "stablehlo.cbrt",
        UnaryOp::Sin => "stablehlo.sine",
        UnaryOp::Cos => "stablehlo.cosine",
        UnaryOp::Tan => "stablehlo.tan",
        UnaryOp::Tanh => "stablehlo.tanh",
        UnaryOp::Logistic => "stablehlo.logistic",
        UnaryOp::Asin => return p.chlo("chlo.asin", &[x]),
        UnaryOp::Acos => return p.chlo("chlo.acos", &[x]),
        UnaryOp::Atan => return p.chlo("chlo.atan", &[x]),
        UnaryOp::Sinh => return p.chlo("chlo.sinh", &[x]),
        UnaryOp::Cosh => return p.chlo("chlo.cosh", &[x]),
        UnaryOp::Asinh => return p.chlo("chlo.asinh", &[x]),
        UnaryOp::Acosh => return p.chlo("chlo.acosh", &[x]),
        UnaryOp::Atanh => return p.chlo("chlo.atanh", &[x]),
        UnaryOp::Erf => return p.chlo("chlo.erf", &[x]),
        UnaryOp::Erfc => return p.chlo("chlo.erfc", &[x]),
        UnaryOp::ErfInv => return p.chlo("chlo.erf_inv", &[x]),
        UnaryOp::Lgamma => return p.chlo("chlo.lgamma", &[x]),
        UnaryOp::Digamma => return p.chlo("chlo.digamma", &[x]),
    };
    p.same(name, &[x])
}

fn is_finite(p: &mut Printer, x: &Val) -> Val {
    let ty = x.ty.with_dtype(DType::Bool);
    if x.ty.dtype.is_integral() {
        return p.constant(Number::Bool(true), &ty);
    }
    if x.ty.dtype.is_complex() {
        let (re, im) = (p.part("stablehlo.real", x), p.part("stablehlo.imag", x));
        let (re, im) = (is_finite(p, &re), is_finite(p, &im));
        return p.same("stablehlo.and", &[&re, &im]);
    }
    p.call("stablehlo.is_finite", &[x], format_args!(""), ty)
}

pub(super) fn binary(p: &mut Printer, op: BinaryOp, x: &Val, y: &Val) -> Val {
    if x.ty.dtype.is_bool() {
        return binary_bool(p, op, x, y);
    }
    let name = match op {
        BinaryOp::Add => "stablehlo.add",
        BinaryOp::Sub => "stablehlo.subtract",
        BinaryOp::Mul => "stablehlo.multiply",
        BinaryOp::Div => "stablehlo.divide",
        BinaryOp::Rem => "stablehlo.remainder",
        BinaryOp::Pow => "stablehlo.power",
        BinaryOp::Atan2 => "stablehlo.atan2",
        BinaryOp::Max => "stablehlo.maximum",
        BinaryOp::Min => "stablehlo.minimum",
        BinaryOp::And => "stablehlo.and",
        BinaryOp::Or => "stablehlo.or",
        BinaryOp::Xor => "stablehlo.xor",
        BinaryOp::ShiftLeft => "stablehlo.shift_left",
        BinaryOp::ShiftRightArithmetic => "stablehlo.shift_right_arithmetic",
        BinaryOp::ShiftRightLogical => "stablehlo.shift_right_logical",
        BinaryOp::Complex => return p.complex(x, y),
        BinaryOp::NextAfter => return p.chlo("chlo.next_after", &[x, y]),
        BinaryOp::Polygamma => return p.chlo("chlo.polygamma", &[x, y]),
        BinaryOp::Zeta => return p.chlo("chlo.zeta", &[x, y]),
    };
    p.same(name, &[x, y])
}

/// Bits: sums saturate (or), products are conjunctions; the rest is arithmetic on 0 and 1, with
/// XLA's x % 0 = x and x / 0 ≠ 0.
fn binary_bool(p: &mut Printer, op: BinaryOp, x: &Val, y: &Val) -> Val {
    let with_not = |p: &mut Printer, name: &str| {
        let not = p.same("stablehlo.not", &[y]);
        p.same(name, &[x, &not])
    };
    match op {
        BinaryOp::Add | BinaryOp::Max | BinaryOp::Or => p.same("stablehlo.or", &[x, y]),
        BinaryOp::Mul | BinaryOp::Min | BinaryOp::And => p.same("stablehlo.and", &[x, y]),
        BinaryOp::Sub | BinaryOp::Xor => p.same("stablehlo.xor", &[x, y]),
        BinaryOp::Div | BinaryOp::Pow => with_not(p, "stablehlo.or"),
        _ => with_not(p, "stablehlo.and"),
    }
}

/// The operation that joins two values in a reduction of `kind`.
pub(super) fn monoid(kind: ReduceKind, dtype: DType) -> &'static str {
    match kind {
        ReduceKind::Sum | ReduceKind::Max | ReduceKind::Or if dtype.is_bool() => "stablehlo.or",
        ReduceKind::Prod | ReduceKind::Min | ReduceKind::And if dtype.is_bool() => "stablehlo.and",
        ReduceKind::Sum => "stablehlo.add",
        ReduceKind::Prod => "stablehlo.multiply",
        ReduceKind::Max => "stablehlo.maximum",
        ReduceKind::Min => "stablehlo.minimum",
        ReduceKind::And => "stablehlo.and",
        ReduceKind::Or => "stablehlo.or",
    }
}

pub(super) fn select(p: &mut Printer, predicate: &Val, x: &Val, y: &Val) -> Val {
    p.call("stablehlo.select", &[predicate, x, y], format_args!(""), x.ty.clone())
}

pub(super) fn clamp(p: &mut Printer, low: &Val, x: &Val, high: &Val) -> Val {
    if x.ty.dtype.is_bool() {
        let x = p.same("stablehlo.or", &[x, low]);
        return p.same("stablehlo.and", &[&x, high]);
    }
    p.same("stablehlo.clamp", &[low, x, high])
}

/// The same bits as elements of `to`.
pub(super) fn bitcast(p: &mut Printer, x: &Val, to: &TensorType) -> Val {
    // Bool and complex have no bit patterns in StableHLO: they go through u8 and through their
    // parts.
    if x.ty.dtype.is_bool() {
        let x = p.convert(x, DType::U8);
        return bitcast(p, &x, to);
    }
    if x.ty.dtype.is_complex() {
        let parts = ["stablehlo.real", "stablehlo.imag"].map(|name| {
            let part = p.part(name, x);
            let mut sizes = part.ty.sizes();
            sizes.push(1);
            p.reshape(&part, &sizes)
        });
        let mut sizes = parts[0].ty.sizes();
        let dim = sizes.len() - 1;
        sizes[dim] = 2;
        let ty = TensorType::new(parts[0].ty.dtype, &sizes);
        let pair = p.call(
            "stablehlo.concatenate",
            &[&parts[0], &parts[1]],
            format_args!(", dim = {dim}"),
            ty,
        );
        return bitcast(p, &pair, to);
    }
    match to.dtype {
        DType::Bool => {
            let bytes = bitcast(p, x, &to.with_dtype(DType::U8));
            p.convert(&bytes, DType::Bool)
        }
        dtype if dtype.is_complex() => {
            let mut sizes = to.sizes();
            sizes.push(2);
            let pair = bitcast(p, x, &TensorType::new(dtype.real(), &sizes));
            let dim = sizes.len() - 1;
            let ones = crate::ir::Shape::from_elem(1, sizes.len());
            let part = |p: &mut Printer, i: i64| {
                let (mut starts, mut limits) =
                    (crate::ir::Shape::from_elem(0, ones.len()), sizes.clone());
                (starts[dim], limits[dim]) = (i, i + 1);
                let part = p.slice(&pair, &starts, &limits, &ones);
                p.reshape(&part, &to.sizes())
            };
            let (re, im) = (part(p, 0), part(p, 1));
            p.complex(&re, &im)
        }
        dtype => {
            // Trailing dimensions are regrouped to what one step of widening or narrowing takes.
            let (from, into) = (x.ty.dtype.size(), dtype.size());
            let mut before = to.sizes();
            let mut after = to.sizes();
            if from < into {
                before.push((into / from) as i64);
            } else if from > into {
                let k = (from / into) as i64;
                before = x.ty.sizes();
                after = before.clone();
                after.push(k);
            }
            let x = if x.ty.same_sizes(&before) { x.clone() } else { p.reshape(x, &before) };
            let y = if from == into && x.ty.dtype == dtype {
                x
            } else {
                let ty = TensorType::new(dtype, &after);
                p.call("stablehlo.bitcast_convert", &[&x], format_args!(""), ty)
            };
            if y.ty.same_sizes(&to.sizes()) { y } else { p.reshape(&y, &to.sizes()) }
        }
    }
}

/// For the regions of sorts and index reductions: `NE` of a value with itself is "is NaN".
pub(super) const IS_NAN: CompareDir = CompareDir::Ne;
