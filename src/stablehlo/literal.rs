//! Numbers as MLIR literals that read back bit for bit.

use std::fmt::{self, Write};

use crate::ir::{DType, Number};

/// Writes `n` as an element of a `dense<…>` attribute of `dtype`.
pub(super) fn literal(out: &mut String, n: Number, dtype: DType) {
    let _ = match n.cast(dtype) {
        Number::Bool(v) => write!(out, "{v}"),
        Number::Int(v) if dtype == DType::U64 => write!(out, "{}", v as u64),
        Number::Int(v) => write!(out, "{v}"),
        Number::Float(v) => float(out, f64::from_bits(v), dtype),
        Number::Complex(re, im) => complex(out, [re, im].map(f64::from_bits), dtype.real()),
    };
}

fn complex(out: &mut String, parts: [f64; 2], dtype: DType) -> fmt::Result {
    out.push('(');
    float(out, parts[0], dtype)?;
    out.push_str(", ");
    float(out, parts[1], dtype)?;
    out.push(')');
    Ok(())
}

/// Decimal where that is short and exact, else the bits.
fn float(out: &mut String, v: f64, dtype: DType) -> fmt::Result {
    let v = if dtype == DType::F64 { v } else { f64::from(v as f32) };
    let wide = matches!(dtype, DType::F64 | DType::F32);
    let plain =
        v.abs() < 1e9 && v.abs() >= 1e-4 && (wide || (v * 2.0).fract() == 0.0 && v.abs() <= 2.0);
    if plain || v.to_bits() == 0 {
        return write!(out, "{v:?}");
    }
    match dtype {
        DType::F64 => write!(out, "0x{:016X}", v.to_bits()),
        DType::F32 => write!(out, "0x{:08X}", (v as f32).to_bits()),
        DType::F16 => write!(out, "0x{:04X}", narrow(v, 5, 10, true)),
        DType::BF16 => write!(out, "0x{:04X}", narrow(v, 8, 7, true)),
        DType::F8E5M2 => write!(out, "0x{:02X}", narrow(v, 5, 2, true)),
        _ => write!(out, "0x{:02X}", narrow(v, 4, 3, false)),
    }
}

/// The bits of `v` as a float of `exponent` and `mantissa` bits, rounded to nearest, ties to
/// even. Without infinities, what overflows is NaN (all ones), as in float8_e4m3fn.
fn narrow(v: f64, exponent: u32, mantissa: u32, infinities: bool) -> u32 {
    let sign = u32::from(v.is_sign_negative()) << (exponent + mantissa);
    let top = ((1 << exponent) - 1) << mantissa;
    let (overflow, nan, largest) = if infinities {
        // IEEE: quiet NaN. e5m2 spells NaN with all bits set, as PyTorch does.
        let nan = if mantissa == 2 { top | 3 } else { top | 1 << (mantissa - 1) };
        (top, nan, top - 1)
    } else {
        let ones = (1 << (exponent + mantissa)) - 1;
        (ones, ones, ones - 1)
    };
    if v.is_nan() {
        return nan;
    }
    if v.is_infinite() {
        return sign | overflow;
    }
    let smallest_normal = 2 - (1 << (exponent - 1)); // as a power of two
    // Powers of two and f64's exponent field are exact; zero and f64 subnormals clamp away.
    let power = ((v.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(smallest_normal);
    let quantum = 2f64.powi(power - mantissa as i32);
    let units = (v.abs() / quantum).round_ties_even() as u32;
    let bits = (((power - smallest_normal) as u64) << mantissa) + u64::from(units);
    sign | if bits > u64::from(largest) { overflow } else { bits as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(n: Number, dtype: DType) -> String {
        let mut out = String::new();
        literal(&mut out, n, dtype);
        out
    }

    #[test]
    fn numbers_that_decimals_cannot_say_are_bits() {
        let f = Number::float;
        for (n, dtype, expected) in [
            (f(0.0), DType::F32, "0.0"),
            (f(-0.0), DType::F32, "0x80000000"),
            (f(-1.5), DType::BF16, "-1.5"),
            (f(0.1), DType::F64, "0.1"),
            (f(0.1), DType::F16, "0x2E66"),
            (f(1e-300), DType::F64, "0x01A56E1FC2F8F359"),
            (f(f64::NAN), DType::F32, "0x7FC00000"),
            (f(f64::INFINITY), DType::F16, "0x7C00"),
            (f(f64::NEG_INFINITY), DType::BF16, "0xFF80"),
            (f(65504.0), DType::F16, "0x7BFF"),
            (f(65519.0), DType::F16, "0x7BFF"),
            (f(65520.0), DType::F16, "0x7C00"),
            (f(6e-8), DType::F16, "0x0001"),
            (f(448.0), DType::F8E4M3FN, "0x7E"),
            (f(1000.0), DType::F8E4M3FN, "0x7F"),
            (f(f64::NAN), DType::F8E5M2, "0x7F"),
            (f(3.0), DType::F8E5M2, "0x42"),
            (f(-0.0), DType::F8E4M3FN, "0x80"),
            (Number::Int(-1), DType::U64, "18446744073709551615"),
            (Number::Int(i64::MIN), DType::I64, "-9223372036854775808"),
            (Number::Int(300), DType::U8, "44"),
            (Number::Bool(true), DType::Bool, "true"),
            (Number::complex(f64::NAN, 2.0), DType::C64, "(0x7FC00000, 2.0)"),
        ] {
            assert_eq!(text(n, dtype), expected, "{n} as {dtype}");
        }
    }
}
