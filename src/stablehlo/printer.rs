//! SSA names, types, and the textual forms that operations share.

use std::collections::HashMap;
use std::fmt;

use ahash::RandomState;

use super::literal::literal;
use crate::ir::graph::seeded;
use crate::ir::{CompareDir, DType, Number, TensorType};

/// Appends formatted text; writing to a `String` cannot fail.
macro_rules! put {
    ($p:expr, $($text:tt)*) => {{
        use std::fmt::Write as _;
        let _ = write!($p.out, $($text)*);
    }};
}
pub(super) use put;

/// The name of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ref {
    /// `%arg3`
    Arg(u32),
    /// `%3`
    Op(u32),
    /// `%3#1`
    Result(u32, u16),
}

impl fmt::Display for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ref::Arg(i) => write!(f, "%arg{i}"),
            Ref::Op(n) => write!(f, "%{n}"),
            Ref::Result(n, i) => write!(f, "%{n}#{i}"),
        }
    }
}

/// A value that was printed.
#[derive(Clone, Debug)]
pub(super) struct Val {
    pub name: Ref,
    pub ty: TensorType,
}

/// A tensor type as MLIR spells it. Bounded dimensions have the size memory is laid out for.
pub(super) struct Ty<'a>(pub &'a TensorType);

impl fmt::Display for Ty<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tensor<")?;
        for d in &self.0.dims {
            write!(f, "{}x", d.bound())?;
        }
        write!(f, "{}>", self.0.dtype.mlir())
    }
}

/// `[1, 2, 3]`
pub(super) struct List<'a>(pub &'a [i64]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, n) in self.0.iter().enumerate() {
            write!(f, "{}{n}", if i > 0 { ", " } else { "[" })?;
        }
        f.write_str(if self.0.is_empty() { "[]" } else { "]" })
    }
}

/// `array<i64: 1, 2, 3>`
pub(super) struct Array<'a>(pub &'a [i64]);

impl fmt::Display for Array<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("array<i64")?;
        for (i, n) in self.0.iter().enumerate() {
            write!(f, "{} {n}", if i > 0 { "," } else { ":" })?;
        }
        f.write_str(">")
    }
}

/// `[[0, 1], [2, 2]]`: a pair a dimension.
pub(super) struct Pairs<'a>(pub &'a [i64], pub &'a [i64]);

impl fmt::Display for Pairs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, (low, high)) in self.0.iter().zip(self.1).enumerate() {
            write!(f, "{}[{low}, {high}]", if i > 0 { ", " } else { "" })?;
        }
        f.write_str("]")
    }
}

/// The module under construction.
pub(super) struct Printer {
    pub out: String,
    next: u32,
    /// Constants printed so far; primitives need some of their own.
    constants: HashMap<(Number, TensorType), Ref, RandomState>,
}

impl Printer {
    pub fn new(capacity: usize) -> Printer {
        Printer {
            out: String::with_capacity(capacity),
            next: 0,
            constants: HashMap::with_hasher(seeded()),
        }
    }

    /// Starts an operation with one result: `%7 = name`.
    pub fn begin(&mut self, name: &str) -> Ref {
        let r = Ref::Op(self.next);
        put!(self, "    {r} = {name}");
        self.next += 1;
        r
    }

    /// Starts an operation with `n` results: `%7:2 = name`.
    pub fn begin_multi(&mut self, name: &str, n: usize) -> Ref {
        if n == 1 {
            return self.begin(name);
        }
        put!(self, "    %{}:{n} = {name}", self.next);
        self.next += 1;
        Ref::Result(self.next - 1, 0)
    }

    /// ` %1, %2`
    pub fn operands(&mut self, operands: &[&Val]) {
        for (i, x) in operands.iter().enumerate() {
            put!(self, "{} {}", if i > 0 { "," } else { "" }, x.name);
        }
    }

    /// ` : (types) -> type`, ending the operation.
    pub fn signature(&mut self, operands: &[&Val], results: &[&TensorType]) {
        for (i, x) in operands.iter().enumerate() {
            put!(self, "{}{}", if i > 0 { ", " } else { " : (" }, Ty(&x.ty));
        }
        put!(self, ") -> ");
        if let [ty] = results {
            put!(self, "{}\n", Ty(ty));
            return;
        }
        for (i, ty) in results.iter().enumerate() {
            put!(self, "{}{}", if i > 0 { ", " } else { "(" }, Ty(ty));
        }
        put!(self, ")\n");
    }

    /// An operation whose operands and result have one type: `%2 = name %0, %1 : type`.
    pub fn same(&mut self, name: &str, operands: &[&Val]) -> Val {
        let r = self.begin(name);
        self.operands(operands);
        let ty = &operands[0].ty;
        put!(self, " : {}\n", Ty(ty));
        Val { name: r, ty: ty.clone() }
    }

    /// `%2 = name %0, %1<attributes> : (types) -> type`
    pub fn call(
        &mut self,
        name: &str,
        operands: &[&Val],
        attributes: fmt::Arguments<'_>,
        ty: TensorType,
    ) -> Val {
        let r = self.begin(name);
        self.operands(operands);
        put!(self, "{attributes}");
        self.signature(operands, &[&ty]);
        Val { name: r, ty }
    }

    /// CHLO's form: `%2 = chlo.name %0, %1 : type, type -> type`.
    pub fn chlo(&mut self, name: &str, operands: &[&Val]) -> Val {
        let r = self.begin(name);
        self.operands(operands);
        let ty = &operands[0].ty;
        for i in 0..operands.len() {
            put!(self, "{} {}", if i > 0 { "," } else { " :" }, Ty(ty));
        }
        put!(self, " -> {}\n", Ty(ty));
        Val { name: r, ty: ty.clone() }
    }

    /// A tensor all of whose elements are `n`.
    pub fn constant(&mut self, n: Number, ty: &TensorType) -> Val {
        let n = n.cast(ty.dtype);
        let key = (n, ty.clone());
        let name = match self.constants.get(&key) {
            Some(&name) => name,
            None => {
                let name = self.begin("stablehlo.constant");
                put!(self, " dense<");
                literal(&mut self.out, n, ty.dtype);
                put!(self, "> : {}\n", Ty(ty));
                self.constants.insert(key, name);
                name
            }
        };
        Val { name, ty: ty.clone() }
    }

    pub fn reshape(&mut self, x: &Val, sizes: &[i64]) -> Val {
        let ty = TensorType::new(x.ty.dtype, sizes);
        self.call("stablehlo.reshape", &[x], format_args!(""), ty)
    }

    pub fn slice(&mut self, x: &Val, starts: &[i64], limits: &[i64], strides: &[i64]) -> Val {
        let sizes: crate::ir::Shape = (0..starts.len())
            .map(|i| (limits[i] - starts[i] + strides[i] - 1) / strides[i])
            .collect();
        let ty = TensorType::new(x.ty.dtype, &sizes);
        let r = self.begin("stablehlo.slice");
        self.operands(&[x]);
        put!(self, " [");
        for i in 0..starts.len() {
            let comma = if i > 0 { ", " } else { "" };
            put!(self, "{comma}{}:{}:{}", starts[i], limits[i], strides[i]);
        }
        put!(self, "]");
        self.signature(&[x], &[&ty]);
        Val { name: r, ty }
    }

    pub fn complex(&mut self, re: &Val, im: &Val) -> Val {
        let ty = re.ty.with_dtype(re.ty.dtype.complex());
        self.call("stablehlo.complex", &[re, im], format_args!(""), ty)
    }

    /// The real or the imaginary part of a complex value: `name` is `stablehlo.real` or `….imag`.
    pub fn part(&mut self, name: &str, x: &Val) -> Val {
        let ty = x.ty.with_dtype(x.ty.dtype.real());
        self.call(name, &[x], format_args!(""), ty)
    }

    pub fn compare(&mut self, dir: CompareDir, x: &Val, y: &Val) -> Val {
        let ty = x.ty.with_dtype(DType::Bool);
        let r = self.begin("stablehlo.compare");
        let (dir, kind) = (direction(dir), compare_type(x.ty.dtype));
        put!(self, " {dir}, {}, {}, {kind}", x.name, y.name);
        self.signature(&[x, y], &[&ty]);
        Val { name: r, ty }
    }

    /// Converts values. To bool: is not zero. From complex to real: the real part.
    pub fn convert(&mut self, x: &Val, to: DType) -> Val {
        let from = x.ty.dtype;
        if from == to {
            return x.clone();
        }
        if to.is_bool() {
            let zero = self.constant(super::zero(), &x.ty);
            return self.compare(CompareDir::Ne, x, &zero);
        }
        if from.is_complex() && !to.is_complex() {
            let real = self.part("stablehlo.real", x);
            return self.convert(&real, to);
        }
        let ty = x.ty.with_dtype(to);
        if from.is_bool() && to.is_inexact() {
            // XLA takes a product with a converted predicate for a selection, which loses the NaN
            // of inf * 0.
            let (one, zero) =
                (self.constant(Number::Int(1), &ty), self.constant(super::zero(), &ty));
            return self.call("stablehlo.select", &[x, &one, &zero], format_args!(""), ty);
        }
        self.call("stablehlo.convert", &[x], format_args!(""), ty)
    }
}

pub(super) fn direction(dir: CompareDir) -> &'static str {
    match dir {
        CompareDir::Eq => "EQ",
        CompareDir::Ne => "NE",
        CompareDir::Lt => "LT",
        CompareDir::Le => "LE",
        CompareDir::Gt => "GT",
        CompareDir::Ge => "GE",
    }
}

pub(super) fn compare_type(dtype: DType) -> &'static str {
    if dtype.is_inexact() {
        "FLOAT"
    } else if dtype.is_unsigned() {
        "UNSIGNED"
    } else {
        "SIGNED"
    }
}
