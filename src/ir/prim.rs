//! The primitives. Each has one shape and dtype rule (`infer`), one cost (`cost`) and one
//! spelling in StableHLO (`crate::stablehlo`).

use super::{DType, Number, Shape};

/// Elementwise functions of one operand. Semantics: StableHLO, or CHLO where StableHLO has none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum UnaryOp {
    Abs,
    Neg,
    Sign,
    Not,
    Exp,
    Expm1,
    Log,
    Log1p,
    Sqrt,
    Rsqrt,
    Cbrt,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Logistic,
    Floor,
    Ceil,
    /// To the nearest integer, ties to even (`torch.round`).
    RoundEven,
    Erf,
    Erfc,
    ErfInv,
    Lgamma,
    Digamma,
    /// Bool: neither infinite nor NaN.
    IsFinite,
    Real,
    Imag,
    PopulationCount,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    /// Sign of the dividend, as C's `%` and `fmod`.
    Rem,
    Pow,
    Atan2,
    /// NaN if either operand is NaN.
    Max,
    Min,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRightArithmetic,
    ShiftRightLogical,
    /// A complex number of its parts.
    Complex,
    NextAfter,
    Polygamma,
    Zeta,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum CompareDir {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// The monoid of a reduction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum ReduceKind {
    Sum,
    Prod,
    /// NaN if any operand is NaN.
    Max,
    Min,
    And,
    Or,
}

impl ReduceKind {
    /// The neutral element for `dtype`.
    pub fn identity(self, dtype: DType) -> Number {
        match self {
            ReduceKind::Sum => Number::Int(0).cast(dtype),
            ReduceKind::Prod => Number::Int(1).cast(dtype),
            ReduceKind::Max => dtype.min_value(),
            ReduceKind::Min => dtype.max_value(),
            ReduceKind::And => Number::Int(-1).cast(dtype),
            ReduceKind::Or => Number::Int(0).cast(dtype),
        }
    }
}

/// How a scatter combines an update with what is there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum ScatterKind {
    Set,
    Reduce(ReduceKind),
}

/// `stablehlo.dot_general`: batch dimensions first, then the free ones of either side.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct DotAttrs {
    pub lhs_batch: Shape,
    pub rhs_batch: Shape,
    pub lhs_contract: Shape,
    pub rhs_contract: Shape,
    /// The accumulation and result type.
    pub out: DType,
}

/// `stablehlo.convolution` in the layouts NC<spatial>, OI<spatial> → NC<spatial>, or any
/// permutation of them given by the dimension numbers.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ConvAttrs {
    pub strides: Shape,
    pub pad_low: Shape,
    pub pad_high: Shape,
    pub lhs_dilation: Shape,
    pub rhs_dilation: Shape,
    /// Where batch, feature and the spatial dimensions are in the operand: `[n, c, s0, s1, …]`.
    pub lhs_dims: Shape,
    /// Where output feature, input feature and the spatial dimensions are in the kernel.
    pub rhs_dims: Shape,
    /// Where batch, feature and the spatial dimensions are in the result.
    pub out_dims: Shape,
    pub feature_groups: i64,
    pub batch_groups: i64,
    /// Per spatial dimension: the kernel is applied mirrored (a true convolution).
    pub reverse: bool,
}

/// The window of a `reduce_window`, one entry a dimension of the operand.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct WindowAttrs {
    pub sizes: Shape,
    pub strides: Shape,
    pub base_dilation: Shape,
    pub window_dilation: Shape,
    pub pad_low: Shape,
    pub pad_high: Shape,
}

/// Dimension numbers of `stablehlo.gather`. Out-of-range starts are clamped.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct GatherAttrs {
    pub offset_dims: Shape,
    pub collapsed_slice_dims: Shape,
    pub operand_batching_dims: Shape,
    pub start_indices_batching_dims: Shape,
    pub start_index_map: Shape,
    pub index_vector_dim: i64,
    pub slice_sizes: Shape,
}

/// Dimension numbers of `stablehlo.scatter`. Out-of-range updates are dropped.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ScatterAttrs {
    pub update_window_dims: Shape,
    pub inserted_window_dims: Shape,
    pub input_batching_dims: Shape,
    pub scatter_indices_batching_dims: Shape,
    pub scatter_dims_to_operand_dims: Shape,
    pub index_vector_dim: i64,
    pub unique_indices: bool,
}

/// A primitive with its attributes. Operands are listed with each.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Prim {
    /// The i-th tensor operand of the template or region.
    Input(u32),
    /// The i-th host number of the call: a 0-dimensional value in its carrier type, whose value
    /// is not part of the graph.
    Scalar(u32),
    /// A tensor all of whose elements are this number.
    Constant(Number),
    /// `0, 1, 2, …` along a dimension.
    Iota(u32),
    /// x
    Unary(UnaryOp),
    /// x, y
    Binary(BinaryOp),
    /// x, y → bool. NaN is unequal to everything.
    Compare(CompareDir),
    /// predicate, on true, on false
    Select,
    /// low, x, high; all of one shape
    Clamp,
    /// Value conversion; to bool: is not zero.
    Convert(DType),
    /// Reinterprets bits. Between widths, the last dimension is split or joined.
    Bitcast(DType),
    Reshape(Shape),
    Transpose(Shape),
    /// Result sizes, and for each operand dimension its place in the result.
    Broadcast {
        sizes: Shape,
        dims: Shape,
    },
    Slice {
        starts: Shape,
        limits: Shape,
        strides: Shape,
    },
    /// x, padding value
    Pad {
        low: Shape,
        high: Shape,
        interior: Shape,
    },
    /// parts…
    Concat(u32),
    Reverse(Shape),
    /// x itself; the compiler doesn't merge what is before it with what is behind it.
    Barrier,
    /// x, one 0-dimensional start a dimension
    DynamicSlice(Shape),
    /// x, update, one 0-dimensional start a dimension
    DynamicUpdateSlice,
    /// x, start indices
    Gather(GatherAttrs),
    /// x, indices, updates
    Scatter(ScatterKind, ScatterAttrs),
    /// lhs, rhs
    Dot(DotAttrs),
    /// operand, kernel
    Conv(ConvAttrs),
    /// x
    Reduce(ReduceKind, Shape),
    /// x → the extreme along the dimension, its i64 position (the first one; NaN is the most
    /// extreme value)
    ArgReduce {
        max: bool,
        dim: u32,
    },
    /// x
    ReduceWindow(ReduceKind, WindowAttrs),
    /// operands… sorted together by the first, stably; NaN counts as the largest value
    Sort {
        dim: u32,
        descending: bool,
    },
    /// Lower or upper factor of a symmetric positive-definite matrix.
    Cholesky {
        lower: bool,
    },
    /// a, b: solves op(a)·x = b (or x·op(a) = b)
    TriangularSolve {
        left: bool,
        lower: bool,
        unit_diagonal: bool,
        /// 0: none, 1: transposed, 2: conjugate transposed
        transpose: u8,
    },
    /// Fourier transform over the last dimensions; kind as StableHLO names it.
    Fft {
        kind: FftKind,
        lengths: Shape,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum FftKind {
    Fft,
    Ifft,
    Rfft,
    Irfft,
}
