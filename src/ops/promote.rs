//! PyTorch's type promotion, and the elementwise forms built on it.
//!
//! Operands fall in three groups: tensors with dimensions, 0-dimensional tensors, and Python
//! numbers. A lower group raises the result only to its own category, never within one
//! (<https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc>).

use super::args::{Args, Item, Out};
use crate::ensure;
use crate::error::{Error, Result};
use crate::ir::dtype::Category;
use crate::ir::{DType, V};

/// The smallest type that holds both (`torch.promote_types`).
pub fn promote_types(a: DType, b: DType) -> DType {
    use DType::*;
    if a == b {
        return a;
    }
    let (ca, cb) = (a.category(), b.category());
    if ca != cb {
        let (high, low) = if ca > cb { (a, b) } else { (b, a) };
        // Double and c64 make c128; any other float or integer leaves the higher one.
        return if high.is_complex() && low == F64 { C128 } else { high };
    }
    match ca {
        Category::Bool => Bool,
        Category::Complex => C128,
        Category::Float => {
            if a.size() == b.size() || a.size() + b.size() < 4 {
                // f16 with bf16, or an 8-bit float with anything its size.
                if a.size() == 1 { BF16 } else { F32 }
            } else if a.size() > b.size() {
                a
            } else {
                b
            }
        }
        Category::Int => {
            let (ua, ub) = (a.is_unsigned(), b.is_unsigned());
            if ua == ub {
                return if a.size() > b.size() { a } else { b };
            }
            let (signed, unsigned) = if ua { (b, a) } else { (a, b) };
            if signed.size() > unsigned.size() {
                return signed;
            }
            match unsigned.size() {
                1 => I16,
                2 => I32,
                4 => I64,
                _ => F32,
            }
        }
    }
}

/// PyTorch's default dtype of a category, that a Python number brings along.
fn default_of(category: Category) -> DType {
    match category {
        Category::Bool => DType::Bool,
        Category::Int => DType::I64,
        Category::Float => DType::F32,
        Category::Complex => DType::C64,
    }
}

/// What a call's operands promote to.
#[derive(Default, Clone, Copy)]
struct Groups {
    dimensioned: Option<DType>,
    zero_dim: Option<DType>,
    number: Option<DType>,
}

impl Groups {
    fn result(self) -> Option<DType> {
        let higher = |high: Option<DType>, low: Option<DType>| match (high, low) {
            (Some(h), Some(l)) if l.category() <= h.category() => Some(h),
            (Some(h), Some(l)) => Some(promote_types(h, l)),
            (h, l) => h.or(l),
        };
        higher(self.dimensioned, higher(self.zero_dim, self.number))
    }
}

impl<'b> Args<'b> {
    /// The result type of the operands at these positions (`torch.result_type`).
    pub fn result_type(&self, positions: &[usize]) -> Result<DType> {
        let mut groups = Groups::default();
        for &i in positions {
            match self.item(i)? {
                Item::None => {}
                Item::Tensors(list) => list.iter().flatten().for_each(|v| groups.tensor(*v)),
                Item::Tensor(v) => groups.tensor(*v),
                Item::Slot(n) => match n.dtype {
                    Some(d) if !n.wrapped => join(&mut groups.zero_dim, d),
                    _ => join(&mut groups.number, default_of(n.category())),
                },
                _ => return Err(Error::runtime(format!("argument {} has no dtype", i + 1))),
            }
        }
        // A float16 tensor with a complex number is complex32 in torch.
        let low = [groups.zero_dim, groups.number].into_iter().flatten();
        let complex = low.map(DType::is_complex).fold(false, |a, b| a | b);
        ensure!(
            !(complex && groups.dimensioned == Some(DType::F16)),
            Type,
            "the result would be of dtype complex32, which tpu doesn't have: convert the float16 \
             operand to float32 first"
        );
        groups.result().ok_or_else(|| Error::runtime("no operand has a dtype"))
    }

    /// The operand at a position, converted to `dtype`; a number becomes a 0-dimensional value.
    pub fn to(&self, i: usize, dtype: DType) -> Result<V<'b>> {
        match self.item(i)? {
            Item::Slot(n) => Ok(n.to(dtype)),
            _ => Ok(self.t(i)?.convert(dtype)),
        }
    }

    /// Elementwise over the operands at `positions`, computed in the opmath of their result
    /// type and returned in that type.
    pub fn pointwise(&self, positions: &[usize], f: impl FnOnce(&[V<'b>]) -> V<'b>) -> Out<'b> {
        let dtype = self.result_type(positions)?;
        self.pointwise_as(positions, dtype, f)
    }

    /// As `pointwise`, but integers and bools compute in the default float type.
    pub fn pointwise_float(
        &self,
        positions: &[usize],
        f: impl FnOnce(&[V<'b>]) -> V<'b>,
    ) -> Out<'b> {
        let dtype = self.result_type(positions)?;
        self.pointwise_as(positions, if dtype.is_inexact() { dtype } else { DType::F32 }, f)
    }

    /// Elementwise in a given type. The result keeps its own dtype if `f` changed it (a
    /// comparison, a modulus), else it is rounded to `dtype`.
    pub fn pointwise_as(
        &self,
        positions: &[usize],
        dtype: DType,
        f: impl FnOnce(&[V<'b>]) -> V<'b>,
    ) -> Out<'b> {
        let compute = dtype.opmath();
        let mut operands = Vec::with_capacity(positions.len());
        for &i in positions {
            operands.push(self.to(i, compute)?);
        }
        let y = f(&operands);
        // A number alone with a tensor never lowers the rank; an op of numbers only is a scalar.
        (if y.dtype() == compute { y.convert(dtype) } else { y }).out()
    }

    /// A function of one operand that keeps its dtype.
    pub fn unary(&self, f: impl FnOnce(V<'b>) -> V<'b>) -> Out<'b> {
        self.pointwise(&[0], |x| f(x[0]))
    }

    /// A function of one operand that takes integers to floats.
    pub fn float_unary(&self, f: impl FnOnce(V<'b>) -> V<'b>) -> Out<'b> {
        self.pointwise_float(&[0], |x| f(x[0]))
    }
}

fn join(group: &mut Option<DType>, dtype: DType) {
    *group = Some(group.map_or(dtype, |g| promote_types(g, dtype)));
}

impl Groups {
    fn tensor(&mut self, v: V<'_>) {
        join(if v.rank() > 0 { &mut self.dimensioned } else { &mut self.zero_dim }, v.dtype());
    }
}
