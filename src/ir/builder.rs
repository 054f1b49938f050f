//! The typed surface that op definitions are written against.
//!
//! A [`V`] is a value of a graph under construction; arithmetic on it adds primitives, with
//! NumPy broadcasting of shapes but never of dtypes. What doesn't fit ends the expansion by
//! unwinding with an [`IrError`], which [`Builder::build`] returns as an error: so a definition
//! reads as the mathematics does, `(x - mean) * rstd`, without a `?` at each step.

use std::cell::RefCell;
use std::ops;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use smallvec::SmallVec;

use super::types::broadcast_shapes;
use super::{
    BinaryOp, CompareDir, DType, Graph, Number, Prim, Shape, TensorType, UnaryOp, ValueId,
};

/// Why a graph cannot be built: shapes or dtypes that don't fit.
#[derive(Debug)]
pub struct IrError(pub String);

/// A graph under construction.
#[derive(Default)]
pub struct Builder {
    graph: RefCell<Graph>,
}

/// A value of a graph under construction.
#[derive(Clone, Copy)]
pub struct V<'b> {
    pub b: &'b Builder,
    pub id: ValueId,
}

/// Ends the expansion under way with `message`.
pub fn fail(message: String) -> ! {
    // Not a panic: no hook runs and nothing is printed. `Builder::build` receives it.
    resume_unwind(Box::new(IrError(message)))
}

/// XLA counts a value's bytes in 63 bits, also if it never exists in memory, and a compiler that
/// meets a larger one may end the process.
fn check_size(ty: &TensorType) {
    if ty.checked_bytes().is_none() {
        fail(format!("{ty} is too large: no tensor may have 2^63 bytes"));
    }
}

impl Builder {
    /// Runs `f` on a fresh builder and returns the graph it made.
    ///
    /// Errors: what `f` returns, or the message of a primitive that didn't fit. A panic inside
    /// `f` (a bug in an op definition) is reported as an error too.
    pub fn build<T, E: From<IrError>>(
        f: impl FnOnce(&Builder) -> Result<T, E>,
    ) -> Result<(Graph, T), E> {
        let builder = Builder { graph: RefCell::new(Graph::new()) };
        match catch_unwind(AssertUnwindSafe(|| f(&builder))) {
            Ok(Ok(result)) => Ok((builder.graph.into_inner(), result)),
            Ok(Err(e)) => Err(e),
            Err(payload) => Err(match payload.downcast::<IrError>() {
                Ok(e) => E::from(*e),
                Err(payload) => {
                    let text = payload
                        .downcast_ref::<String>()
                        .map(String::as_str)
                        .or_else(|| payload.downcast_ref::<&str>().copied())
                        .unwrap_or("a panic without a message");
                    E::from(IrError(format!("internal error in the op's definition: {text}")))
                }
            }),
        }
    }

    /// Adds a primitive.
    pub fn add(&self, prim: Prim, inputs: &[V<'_>]) -> V<'_> {
        let ids: SmallVec<[ValueId; 4]> = inputs.iter().map(|v| v.id).collect();
        let added = self.graph.borrow_mut().add(prim, &ids);
        match added {
            Ok(id) => {
                check_size(self.graph.borrow().ty(id));
                V { b: self, id }
            }
            Err(message) => fail(message),
        }
    }

    /// Adds a primitive with `n` results.
    pub fn add_multi(&self, prim: Prim, inputs: &[V<'_>], n: u16) -> Vec<V<'_>> {
        let first = self.add(prim, inputs);
        (0..n).map(|output| V { b: self, id: ValueId { node: first.id.node, output } }).collect()
    }

    pub fn leaf(&self, prim: Prim, ty: TensorType) -> V<'_> {
        check_size(&ty);
        V { b: self, id: self.graph.borrow_mut().leaf(prim, ty) }
    }

    /// A tensor filled with `value`, converted to `dtype`.
    pub fn full(&self, value: impl Into<Number>, dtype: DType, sizes: &[i64]) -> V<'_> {
        self.leaf(Prim::Constant(value.into().cast(dtype)), TensorType::new(dtype, sizes))
    }

    /// `0, 1, 2, …` along dimension `dim`.
    pub fn iota(&self, dtype: DType, sizes: &[i64], dim: usize) -> V<'_> {
        self.leaf(Prim::Iota(dim as u32), TensorType::new(dtype, sizes))
    }

    pub fn concat<'b>(&'b self, parts: &[V<'b>], dim: usize) -> V<'b> {
        self.add(Prim::Concat(dim as u32), parts)
    }

    /// Sorts the operands together by the first of them, stably.
    pub fn sort<'b>(&'b self, operands: &[V<'b>], dim: usize, descending: bool) -> Vec<V<'b>> {
        let prim = Prim::Sort { dim: dim as u32, descending };
        self.add_multi(prim, operands, operands.len() as u16)
    }
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident => $op:ident),* $(,)?) => {
        // `not` is a method rather than an operator because it ends chains: `x.is_nan().not()`.
        #[allow(clippy::should_implement_trait)]
        impl<'b> V<'b> {
            $($(#[$doc])* pub fn $name(self) -> V<'b> { self.unary(UnaryOp::$op) })*
        }
    };
}

unary! {
    abs => Abs, sign => Sign, not => Not, exp => Exp, expm1 => Expm1, log => Log, log1p => Log1p,
    sqrt => Sqrt, rsqrt => Rsqrt, cbrt => Cbrt, sin => Sin, cos => Cos, tan => Tan, asin => Asin,
    acos => Acos, atan => Atan, sinh => Sinh, cosh => Cosh, tanh => Tanh, asinh => Asinh,
    acosh => Acosh, atanh => Atanh, logistic => Logistic, floor => Floor, ceil => Ceil,
    round_even => RoundEven, erf => Erf, erfc => Erfc, erf_inv => ErfInv, lgamma => Lgamma,
    digamma => Digamma, is_finite => IsFinite, real => Real, imag => Imag,
    population_count => PopulationCount,
}

macro_rules! binary {
    ($($name:ident => $op:ident),* $(,)?) => {
        // `rem` keeps C's sign; as the operator `%` it would be read as Python's.
        #[allow(clippy::should_implement_trait)]
        impl<'b> V<'b> {
            $(pub fn $name(self, other: impl Operand<'b>) -> V<'b> {
                self.binary(BinaryOp::$op, other.of(self))
            })*
        }
    };
}

binary! {
    pow => Pow, atan2 => Atan2, max => Max, min => Min, and => And, or => Or, xor => Xor,
    shift_left => ShiftLeft, shift_right => ShiftRightLogical,
    shift_right_arithmetic => ShiftRightArithmetic, complex => Complex, rem => Rem,
    next_after => NextAfter, polygamma => Polygamma, zeta => Zeta,
}

macro_rules! compare {
    ($($name:ident => $dir:ident),* $(,)?) => {
        impl<'b> V<'b> {
            $(pub fn $name(self, other: impl Operand<'b>) -> V<'b> {
                self.compare(CompareDir::$dir, other.of(self))
            })*
        }
    };
}

compare! { eq => Eq, ne => Ne, lt => Lt, le => Le, gt => Gt, ge => Ge }

/// The right-hand side of an operation: a value, or a number that takes the left side's dtype.
pub trait Operand<'b> {
    fn of(self, left: V<'b>) -> V<'b>;
}

impl<'b> Operand<'b> for V<'b> {
    fn of(self, _: V<'b>) -> V<'b> {
        self
    }
}

macro_rules! number_operand {
    ($($t:ty),*) => {$(
        impl<'b> Operand<'b> for $t {
            fn of(self, left: V<'b>) -> V<'b> {
                left.b.full(self, left.dtype(), &[])
            }
        }
    )*};
}

number_operand!(f64, i64, bool, Number);

macro_rules! operator {
    ($($trait:ident $method:ident $op:ident),* $(,)?) => {$(
        impl<'b, R: Operand<'b>> ops::$trait<R> for V<'b> {
            type Output = V<'b>;
            fn $method(self, right: R) -> V<'b> {
                self.binary(BinaryOp::$op, right.of(self))
            }
        }
        impl<'b> ops::$trait<V<'b>> for f64 {
            type Output = V<'b>;
            fn $method(self, right: V<'b>) -> V<'b> {
                self.of(right).binary(BinaryOp::$op, right)
            }
        }
    )*};
}

operator! { Add add Add, Sub sub Sub, Mul mul Mul, Div div Div }

impl<'b> ops::Neg for V<'b> {
    type Output = V<'b>;
    fn neg(self) -> V<'b> {
        self.unary(UnaryOp::Neg)
    }
}

impl<'b> V<'b> {
    pub fn ty(self) -> TensorType {
        self.b.graph.borrow().ty(self.id).clone()
    }

    pub fn dtype(self) -> DType {
        self.b.graph.borrow().ty(self.id).dtype
    }

    pub fn sizes(self) -> Shape {
        self.b.graph.borrow().ty(self.id).sizes()
    }

    pub fn size(self, dim: usize) -> i64 {
        self.b.graph.borrow().ty(self.id).size(dim)
    }

    pub fn rank(self) -> usize {
        self.b.graph.borrow().ty(self.id).rank()
    }

    pub fn numel(self) -> i64 {
        self.b.graph.borrow().ty(self.id).numel()
    }

    /// The number that every element is, if that is known while building.
    pub fn as_constant(self) -> Option<Number> {
        match self.b.graph.borrow().node(self.id.node).prim {
            Prim::Constant(n) => Some(n),
            _ => None,
        }
    }

    pub fn unary(self, op: UnaryOp) -> V<'b> {
        self.b.add(Prim::Unary(op), &[self])
    }

    /// Both sides broadcast to their common shape; dtypes must agree.
    pub fn binary(self, op: BinaryOp, other: V<'b>) -> V<'b> {
        let (x, y) = self.broadcast_with(other);
        self.b.add(Prim::Binary(op), &[x, y])
    }

    pub fn compare(self, dir: CompareDir, other: V<'b>) -> V<'b> {
        let (x, y) = self.broadcast_with(other);
        self.b.add(Prim::Compare(dir), &[x, y])
    }

    /// Where this predicate holds `on_true`, elsewhere `on_false`; all broadcast. A number takes
    /// the other side's dtype.
    pub fn select(self, on_true: V<'b>, on_false: impl Operand<'b>) -> V<'b> {
        let (x, y) = on_true.broadcast_with(on_false.of(on_true));
        let (p, x) = self.broadcast_with(x);
        let y = y.broadcast_to(&x.sizes());
        self.b.add(Prim::Select, &[p, x, y])
    }

    /// `low` and `high` broadcast to this value's shape.
    pub fn clamp(self, low: impl Operand<'b>, high: impl Operand<'b>) -> V<'b> {
        let sizes = self.sizes();
        let (low, high) = (low.of(self).broadcast_to(&sizes), high.of(self).broadcast_to(&sizes));
        self.b.add(Prim::Clamp, &[low, self, high])
    }

    pub fn is_nan(self) -> V<'b> {
        self.ne(self)
    }

    pub fn is_inf(self) -> V<'b> {
        self.abs().eq(Number::float(f64::INFINITY))
    }

    /// A tensor of this one's dtype and shape.
    pub fn full_like(self, value: impl Into<Number>) -> V<'b> {
        self.b.full(value, self.dtype(), &self.sizes())
    }

    pub fn convert(self, dtype: DType) -> V<'b> {
        // Complex to real: PyTorch drops the imaginary part.
        let from = self.dtype();
        if from.is_complex() && dtype.is_bool() {
            return self.ne(Number::Int(0).cast(from));
        }
        let x = if from.is_complex() && !dtype.is_complex() { self.real() } else { self };
        self.b.add(Prim::Convert(dtype), &[x])
    }

    pub fn bitcast(self, dtype: DType) -> V<'b> {
        self.b.add(Prim::Bitcast(dtype), &[self])
    }

    /// Both values in their common shape.
    pub fn broadcast_with(self, other: V<'b>) -> (V<'b>, V<'b>) {
        let (xs, ys) = (self.sizes(), other.sizes());
        if xs == ys {
            return (self, other);
        }
        match broadcast_shapes(&xs, &ys) {
            Ok(sizes) => (self.broadcast_to(&sizes), other.broadcast_to(&sizes)),
            Err(message) => fail(message),
        }
    }
}
