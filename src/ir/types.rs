//! Dimensions, shapes and tensor types.

use std::fmt;

use smallvec::SmallVec;

use super::DType;

/// Sizes, strides, permutations: a short list of integers.
pub type Shape = SmallVec<[i64; 6]>;

/// One dimension of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dim {
    /// Exactly this many elements.
    Fixed(i64),
    /// At most this many; the true size is a runtime value. Carried by the types from the start,
    /// not lowered yet.
    Bounded(i64),
}

impl Dim {
    /// The size that memory is laid out for.
    pub fn bound(self) -> i64 {
        match self {
            Dim::Fixed(n) | Dim::Bounded(n) => n,
        }
    }
}

/// An element type and dimensions. A scalar has none.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TensorType {
    pub dtype: DType,
    pub dims: SmallVec<[Dim; 4]>,
}

impl TensorType {
    pub fn new(dtype: DType, sizes: &[i64]) -> TensorType {
        TensorType { dtype, dims: sizes.iter().map(|&n| Dim::Fixed(n)).collect() }
    }

    pub fn scalar(dtype: DType) -> TensorType {
        TensorType { dtype, dims: SmallVec::new() }
    }

    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// The (bound) size of dimension `i`.
    pub fn size(&self, i: usize) -> i64 {
        self.dims[i].bound()
    }

    pub fn sizes(&self) -> Shape {
        self.dims.iter().map(|d| d.bound()).collect()
    }

    pub fn numel(&self) -> i64 {
        self.dims.iter().map(|d| d.bound()).product()
    }

    pub fn bytes(&self) -> u64 {
        self.numel() as u64 * self.dtype.size() as u64
    }

    /// The bytes, if a signed 64-bit number can hold them.
    pub fn checked_bytes(&self) -> Option<i64> {
        if self.dims.iter().any(|d| d.bound() == 0) {
            return Some(0);
        }
        let size = self.dtype.size() as i64;
        self.dims.iter().try_fold(size, |bytes, d| bytes.checked_mul(d.bound()))
    }

    pub fn same_sizes(&self, sizes: &[i64]) -> bool {
        self.dims.len() == sizes.len() && self.dims.iter().zip(sizes).all(|(d, &n)| d.bound() == n)
    }

    pub fn with_dtype(&self, dtype: DType) -> TensorType {
        TensorType { dtype, dims: self.dims.clone() }
    }
}

impl fmt::Display for TensorType {
    /// As in `float32[2, 3]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, d) in self.dims.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            match d {
                Dim::Fixed(n) => write!(f, "{n}")?,
                Dim::Bounded(n) => write!(f, "≤{n}")?,
            }
        }
        f.write_str("]")
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Row-major strides of `sizes`, as PyTorch computes them (a zero size counts as one).
pub fn contiguous_strides(sizes: &[i64]) -> Shape {
    let mut strides: Shape = SmallVec::from_elem(1, sizes.len());
    for i in (1..sizes.len()).rev() {
        strides[i - 1] = strides[i] * sizes[i].max(1);
    }
    strides
}

/// The common shape of two operands by NumPy's rules, or PyTorch's message of why there is none.
pub fn broadcast_shapes(a: &[i64], b: &[i64]) -> Result<Shape, String> {
    let rank = a.len().max(b.len());
    let mut out: Shape = SmallVec::from_elem(1, rank);
    for i in 0..rank {
        let of = |s: &[i64]| if i < rank - s.len() { 1 } else { s[i - (rank - s.len())] };
        let (x, y) = (of(a), of(b));
        out[i] = match (x, y) {
            _ if x == y => x,
            (1, _) => y,
            (_, 1) => x,
            _ => {
                return Err(format!(
                    "The size of tensor a ({x}) must match the size of tensor b ({y}) \
                     at non-singleton dimension {i}"
                ));
            }
        };
    }
    Ok(out)
}
