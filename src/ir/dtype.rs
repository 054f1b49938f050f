//! Element types and host-side numbers.

use std::fmt;

/// The element type of a tensor. The discriminant is PyTorch's `c10::ScalarType`, so that the
/// C ABI needs no table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum DType {
    U8 = 0,
    I8 = 1,
    I16 = 2,
    I32 = 3,
    I64 = 4,
    F16 = 5,
    F32 = 6,
    F64 = 7,
    C64 = 9,
    C128 = 10,
    Bool = 11,
    BF16 = 15,
    F8E5M2 = 23,
    F8E4M3FN = 24,
    U16 = 27,
    U32 = 28,
    U64 = 29,
}

/// What an element type is a representation of; PyTorch's promotion categories, in order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Category {
    Bool,
    Int,
    Float,
    Complex,
}

impl DType {
    pub const ALL: [DType; 17] = [
        DType::U8,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::F16,
        DType::F32,
        DType::F64,
        DType::C64,
        DType::C128,
        DType::Bool,
        DType::BF16,
        DType::F8E5M2,
        DType::F8E4M3FN,
        DType::U16,
        DType::U32,
        DType::U64,
    ];

    /// The type with this `c10::ScalarType` value, if the engine has it.
    pub fn from_torch(code: u8) -> Option<DType> {
        DType::ALL.into_iter().find(|d| *d as u8 == code)
    }

    /// Bytes an element takes in memory.
    pub fn size(self) -> usize {
        use DType::*;
        match self {
            U8 | I8 | Bool | F8E5M2 | F8E4M3FN => 1,
            I16 | F16 | BF16 | U16 => 2,
            I32 | F32 | U32 => 4,
            I64 | F64 | C64 | U64 => 8,
            C128 => 16,
        }
    }

    pub fn category(self) -> Category {
        use DType::*;
        match self {
            Bool => Category::Bool,
            U8 | I8 | I16 | I32 | I64 | U16 | U32 | U64 => Category::Int,
            F16 | F32 | F64 | BF16 | F8E5M2 | F8E4M3FN => Category::Float,
            C64 | C128 => Category::Complex,
        }
    }

    pub fn is_float(self) -> bool {
        self.category() == Category::Float
    }

    pub fn is_complex(self) -> bool {
        self.category() == Category::Complex
    }

    pub fn is_bool(self) -> bool {
        self == DType::Bool
    }

    /// Integers, bool not among them.
    pub fn is_int(self) -> bool {
        self.category() == Category::Int
    }

    pub fn is_integral(self) -> bool {
        self.is_int() || self.is_bool()
    }

    pub fn is_unsigned(self) -> bool {
        matches!(self, DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::Bool)
    }

    /// Floating or complex.
    pub fn is_inexact(self) -> bool {
        self.category() >= Category::Float
    }

    /// The real type of a complex one, itself otherwise.
    pub fn real(self) -> DType {
        match self {
            DType::C64 => DType::F32,
            DType::C128 => DType::F64,
            other => other,
        }
    }

    /// The complex type whose parts are this type.
    pub fn complex(self) -> DType {
        match self {
            DType::F64 | DType::C128 => DType::C128,
            _ => DType::C64,
        }
    }

    /// The type PyTorch computes in for inputs of this type (`opmath`): half-width floats are
    /// widened to f32 inside an op and rounded once at its end.
    pub fn opmath(self) -> DType {
        match self {
            DType::F16 | DType::BF16 | DType::F8E5M2 | DType::F8E4M3FN => DType::F32,
            other => other,
        }
    }

    /// The MLIR spelling of the element type.
    pub fn mlir(self) -> &'static str {
        use DType::*;
        match self {
            U8 => "ui8",
            I8 => "i8",
            I16 => "i16",
            I32 => "i32",
            I64 => "i64",
            F16 => "f16",
            F32 => "f32",
            F64 => "f64",
            C64 => "complex<f32>",
            C128 => "complex<f64>",
            Bool => "i1",
            BF16 => "bf16",
            F8E5M2 => "f8E5M2",
            F8E4M3FN => "f8E4M3FN",
            U16 => "ui16",
            U32 => "ui32",
            U64 => "ui64",
        }
    }

    /// The name PyTorch prints after `torch.`.
    pub fn torch_name(self) -> &'static str {
        use DType::*;
        match self {
            U8 => "uint8",
            I8 => "int8",
            I16 => "int16",
            I32 => "int32",
            I64 => "int64",
            F16 => "float16",
            F32 => "float32",
            F64 => "float64",
            C64 => "complex64",
            C128 => "complex128",
            Bool => "bool",
            BF16 => "bfloat16",
            F8E5M2 => "float8_e5m2",
            F8E4M3FN => "float8_e4m3fn",
            U16 => "uint16",
            U32 => "uint32",
            U64 => "uint64",
        }
    }

    /// The name PyTorch's error messages use (`Float`, `Long`, …).
    pub fn scalar_type_name(self) -> &'static str {
        use DType::*;
        match self {
            U8 => "Byte",
            I8 => "Char",
            I16 => "Short",
            I32 => "Int",
            I64 => "Long",
            F16 => "Half",
            F32 => "Float",
            F64 => "Double",
            C64 => "ComplexFloat",
            C128 => "ComplexDouble",
            Bool => "Bool",
            BF16 => "BFloat16",
            F8E5M2 => "Float8_e5m2",
            F8E4M3FN => "Float8_e4m3fn",
            U16 => "UInt16",
            U32 => "UInt32",
            U64 => "UInt64",
        }
    }

    /// The largest value of the type: infinity for floats, as an exact number for integers.
    pub fn max_value(self) -> Number {
        use DType::*;
        match self {
            Bool => Number::Bool(true),
            U8 => Number::Int(u8::MAX.into()),
            U16 => Number::Int(u16::MAX.into()),
            U32 => Number::Int(u32::MAX.into()),
            // Literals are printed as two's complement, see `Number`.
            U64 => Number::Int(-1),
            I8 => Number::Int(i8::MAX.into()),
            I16 => Number::Int(i16::MAX.into()),
            I32 => Number::Int(i32::MAX.into()),
            I64 => Number::Int(i64::MAX),
            // e4m3fn has no infinity; its largest finite value is 448 (OCP FP8 specification).
            F8E4M3FN => Number::float(448.0),
            _ => Number::float(f64::INFINITY),
        }
    }

    /// The smallest value of the type: minus infinity for floats.
    pub fn min_value(self) -> Number {
        use DType::*;
        match self {
            Bool => Number::Bool(false),
            U8 | U16 | U32 | U64 => Number::Int(0),
            I8 => Number::Int(i8::MIN.into()),
            I16 => Number::Int(i16::MIN.into()),
            I32 => Number::Int(i32::MIN.into()),
            I64 => Number::Int(i64::MIN),
            F8E4M3FN => Number::float(-448.0),
            _ => Number::float(f64::NEG_INFINITY),
        }
    }

    /// The distance from 1 to the next larger float; 0 for other types.
    pub fn epsilon(self) -> f64 {
        match self.real() {
            DType::F64 => f64::EPSILON,
            DType::F32 => f32::EPSILON.into(),
            DType::F16 => 2f64.powi(-10),
            DType::BF16 => 2f64.powi(-7),
            DType::F8E4M3FN => 0.125,
            DType::F8E5M2 => 0.25,
            _ => 0.0,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.torch_name())
    }
}

/// A number on the host: a Python scalar, or the value of a splat constant. Floats are held as
/// their bits, so that a number can be compared and hashed exactly (NaN equals itself, 0 is not
/// −0).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Number {
    Bool(bool),
    /// Also the bits of a u64, in two's complement.
    Int(i64),
    Float(u64),
    Complex(u64, u64),
}

impl Number {
    pub fn float(value: f64) -> Number {
        Number::Float(value.to_bits())
    }

    pub fn complex(re: f64, im: f64) -> Number {
        Number::Complex(re.to_bits(), im.to_bits())
    }

    pub fn category(self) -> Category {
        match self {
            Number::Bool(_) => Category::Bool,
            Number::Int(_) => Category::Int,
            Number::Float(_) => Category::Float,
            Number::Complex(..) => Category::Complex,
        }
    }

    /// Somebody may have written it: an integer, a decimal of up to six digits, or a fraction of a
    /// small power of two. Any other float was computed.
    pub fn is_plain(self) -> bool {
        let plain = |bits: u64| {
            let x = f64::from_bits(bits);
            let low_mantissa = bits & ((1 << 44) - 1);
            !x.is_finite() || low_mantissa == 0 || format!("{x:.5e}").parse() == Ok(x)
        };
        match self {
            Number::Bool(_) | Number::Int(_) => true,
            Number::Float(x) => plain(x),
            Number::Complex(re, im) => plain(re) && plain(im),
        }
    }

    /// The (real) value as a float.
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Bool(v) => v.into(),
            Number::Int(v) => v as f64,
            Number::Float(v) | Number::Complex(v, _) => f64::from_bits(v),
        }
    }

    /// The (real) value as an integer, truncated.
    pub fn to_i64(self) -> i64 {
        match self {
            Number::Bool(v) => v.into(),
            Number::Int(v) => v,
            Number::Float(v) | Number::Complex(v, _) => f64::from_bits(v) as i64,
        }
    }

    pub fn imag(self) -> f64 {
        match self {
            Number::Complex(_, im) => f64::from_bits(im),
            _ => 0.0,
        }
    }

    pub fn is_zero(self) -> bool {
        self.to_f64() == 0.0 && self.imag() == 0.0
    }

    /// The widest type of this number's category, in which it crosses to the device.
    pub fn carrier(self) -> DType {
        match self {
            Number::Bool(_) => DType::Bool,
            Number::Int(_) => DType::I64,
            Number::Float(_) => DType::F64,
            Number::Complex(..) => DType::C128,
        }
    }

    /// The number as a value of `dtype`, by C conversion rules.
    pub fn cast(self, dtype: DType) -> Number {
        match dtype.category() {
            Category::Bool => Number::Bool(!self.is_zero()),
            Category::Int => {
                let v = self.to_i64();
                Number::Int(match dtype {
                    DType::U8 => i64::from(v as u8),
                    DType::I8 => i64::from(v as i8),
                    DType::I16 => i64::from(v as i16),
                    DType::U16 => i64::from(v as u16),
                    DType::I32 => i64::from(v as i32),
                    DType::U32 => i64::from(v as u32),
                    _ => v,
                })
            }
            Category::Float if dtype == DType::F32 => Number::float(self.to_f64() as f32 as f64),
            Category::Float => Number::float(self.to_f64()),
            Category::Complex => Number::complex(self.to_f64(), self.imag()),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Bool(v) => write!(f, "{v}"),
            Number::Int(v) => write!(f, "{v}"),
            Number::Float(_) => write!(f, "{:?}", self.to_f64()),
            Number::Complex(..) => write!(f, "({:?}{:+?}j)", self.to_f64(), self.imag()),
        }
    }
}

impl From<f64> for Number {
    fn from(v: f64) -> Number {
        Number::float(v)
    }
}

impl From<i64> for Number {
    fn from(v: i64) -> Number {
        Number::Int(v)
    }
}

impl From<bool> for Number {
    fn from(v: bool) -> Number {
        Number::Bool(v)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_numbers_are_those_that_people_write() {
        for x in [0.0, -1.0, 0.1, 1e-3, 3e-4, 0.999, 1e-8, 0.125, f64::INFINITY, 0.000_976_562_5] {
            assert!(Number::float(x).is_plain(), "{x}");
        }
        for x in [0.1 + 0.2, 1.0 / 3.0, 1e-3 / (1.0 - 0.9), 0.999f64.sqrt(), 1.234_567_8] {
            assert!(!Number::float(x).is_plain(), "{x}");
        }
    }
}
