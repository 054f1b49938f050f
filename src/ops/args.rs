//! The arguments of a call, as the shim gives them and as an op definition reads them.

use std::cell::RefCell;

use smallvec::SmallVec;

use crate::ensure;
use crate::error::{Error, ErrorKind, Result};
use crate::ir::{Builder, DType, Number, Prim, Shape, TensorType, V};

/// A strided window on a storage cell. Sizes, strides and offset count elements.
#[derive(Clone, Copy, Debug)]
pub struct TensorArg<'a> {
    /// 0: an undefined element of a tensor list.
    pub cell: u64,
    pub dtype: DType,
    pub sizes: &'a [i64],
    pub strides: &'a [i64],
    pub offset: i64,
    /// The return of the op that is written into this tensor, if the call writes it.
    pub write: Option<u8>,
    /// Its old value isn't read and it may be resized (`out=`).
    pub out: bool,
}

/// One argument of a call, in schema order.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    None,
    Tensor(TensorArg<'a>),
    Tensors(&'a [TensorArg<'a>]),
    /// A number that may change from call to call without changing the graph.
    Number(Number),
    /// A 0-dimensional CPU tensor: likewise. `wrapped`: made from a Python number.
    HostScalar {
        dtype: DType,
        wrapped: bool,
        value: Number,
    },
    Int(i64),
    Bool(bool),
    Ints(&'a [i64]),
    Floats(&'a [f64]),
    Bools(&'a [i64]),
    Str(&'a str),
    DType(DType),
    /// Seed and call counter of a random number generator.
    Generator {
        seed: i64,
        counter: i64,
    },
    /// No part of the op's meaning (device, layout, memory format).
    Ignored,
}

/// An argument while the op is expanded: tensors are values, numbers are slots.
pub(crate) enum Item<'b> {
    None,
    Tensor(V<'b>),
    Tensors(Vec<Option<V<'b>>>),
    Slot(Num<'b>),
    Int(i64),
    Bool(bool),
    Ints(Shape),
    Floats(Vec<f64>),
    Bools(Vec<bool>),
    Str(String),
    DType(DType),
    Rng { seed: V<'b>, counter: V<'b> },
}

/// A number of the call. It stays out of the graph, as a slot, unless its value is asked for.
#[derive(Clone, Copy)]
pub struct Num<'b> {
    pub(crate) b: &'b Builder,
    pub(crate) slot: u32,
    pub(crate) value: Number,
    /// The dtype, of a 0-dimensional CPU tensor.
    pub(crate) dtype: Option<DType>,
    pub(crate) wrapped: bool,
}

impl<'b> Num<'b> {
    /// As a 0-dimensional value of `dtype`.
    pub fn to(self, dtype: DType) -> V<'b> {
        let ty = TensorType::scalar(self.value.carrier());
        self.b.leaf(Prim::Scalar(self.slot), ty).convert(dtype)
    }

    /// Bool, int, float or complex. Fixed by the call's key.
    pub fn category(self) -> crate::ir::dtype::Category {
        self.value.category()
    }
}

/// What an op definition sees of a call. Positions are those of the schema; an argument of
/// another kind than asked for is a type error that names the position.
pub struct Args<'b> {
    pub b: &'b Builder,
    pub(crate) items: Vec<Item<'b>>,
    pub(crate) pins: RefCell<Vec<(u32, Number)>>,
    pub(crate) count: Option<i64>,
}

fn wrong(i: usize, wanted: &str) -> Error {
    Error::new(ErrorKind::Type, format!("argument {} must be {wanted}", i + 1))
}

impl<'b> Args<'b> {
    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn item(&self, i: usize) -> Result<&Item<'b>> {
        self.items.get(i).ok_or_else(|| wrong(i, "given"))
    }

    pub fn is_none(&self, i: usize) -> bool {
        matches!(self.items.get(i), None | Some(Item::None))
    }

    /// A tensor; a 0-dimensional CPU tensor becomes one of its own dtype, a Python number one of
    /// its carrier type.
    pub fn t(&self, i: usize) -> Result<V<'b>> {
        match self.item(i)? {
            Item::Tensor(v) => Ok(*v),
            Item::Slot(n) => Ok(n.to(n.dtype.unwrap_or(n.value.carrier()))),
            _ => Err(wrong(i, "a tensor")),
        }
    }

    pub fn opt(&self, i: usize) -> Result<Option<V<'b>>> {
        if self.is_none(i) { Ok(None) } else { self.t(i).map(Some) }
    }

    pub fn list(&self, i: usize) -> Result<Vec<V<'b>>> {
        match self.item(i)? {
            Item::Tensors(list) => {
                list.iter().map(|v| v.ok_or_else(|| wrong(i, "a list of tensors"))).collect()
            }
            _ => Err(wrong(i, "a list of tensors")),
        }
    }

    pub fn opt_list(&self, i: usize) -> Result<Vec<Option<V<'b>>>> {
        match self.item(i)? {
            Item::Tensors(list) => Ok(list.clone()),
            _ => Err(wrong(i, "a list of tensors")),
        }
    }

    pub fn int(&self, i: usize) -> Result<i64> {
        match self.item(i)? {
            Item::Int(n) => Ok(*n),
            Item::Bool(v) => Ok((*v).into()),
            Item::Slot(n) => Ok(self.pin(*n).to_i64()),
            _ => Err(wrong(i, "an integer")),
        }
    }

    pub fn opt_int(&self, i: usize) -> Result<Option<i64>> {
        if self.is_none(i) { Ok(None) } else { self.int(i).map(Some) }
    }

    pub fn bool(&self, i: usize) -> Result<bool> {
        match self.item(i)? {
            Item::Bool(v) => Ok(*v),
            Item::Int(n) => Ok(*n != 0),
            Item::Slot(n) => Ok(!self.pin(*n).is_zero()),
            _ => Err(wrong(i, "a bool")),
        }
    }

    pub fn opt_bool(&self, i: usize) -> Result<Option<bool>> {
        if self.is_none(i) { Ok(None) } else { self.bool(i).map(Some) }
    }

    /// A list of integers; a single one is a list of one.
    pub fn ints(&self, i: usize) -> Result<Shape> {
        match self.item(i)? {
            Item::Ints(v) => Ok(v.clone()),
            Item::Int(n) => Ok([*n].as_slice().into()),
            _ => Err(wrong(i, "a list of integers")),
        }
    }

    pub fn opt_ints(&self, i: usize) -> Result<Option<Shape>> {
        if self.is_none(i) { Ok(None) } else { self.ints(i).map(Some) }
    }

    /// A list of integers for `n` dimensions: a list of one is repeated, an empty one is
    /// `default` repeated.
    pub fn ints_n(&self, i: usize, n: usize, default: i64) -> Result<Shape> {
        let v = self.opt_ints(i)?.unwrap_or_default();
        Ok(match v.len() {
            0 => Shape::from_elem(default, n),
            1 => Shape::from_elem(v[0], n),
            _ => v,
        })
    }

    pub fn opt_floats(&self, i: usize) -> Result<Option<Vec<f64>>> {
        match self.item(i)? {
            Item::None => Ok(None),
            Item::Floats(v) => Ok(Some(v.clone())),
            _ => Err(wrong(i, "a list of floats")),
        }
    }

    pub fn bools(&self, i: usize) -> Result<Vec<bool>> {
        match self.item(i)? {
            Item::Bools(v) => Ok(v.clone()),
            _ => Err(wrong(i, "a list of bools")),
        }
    }

    pub fn str(&self, i: usize) -> Result<&str> {
        match self.item(i)? {
            Item::Str(s) => Ok(s),
            _ => Err(wrong(i, "a string")),
        }
    }

    pub fn opt_str(&self, i: usize) -> Result<Option<&str>> {
        if self.is_none(i) { Ok(None) } else { self.str(i).map(Some) }
    }

    pub fn opt_dtype(&self, i: usize) -> Result<Option<DType>> {
        match self.items.get(i) {
            None | Some(Item::None) => Ok(None),
            Some(Item::DType(d)) => Ok(Some(*d)),
            Some(_) => Err(wrong(i, "a dtype")),
        }
    }

    /// A number whose value needn't be known to build the graph: prefer this to `pinned`.
    pub fn num(&self, i: usize) -> Result<Num<'b>> {
        match self.item(i)? {
            Item::Slot(n) => Ok(*n),
            _ => Err(wrong(i, "a number")),
        }
    }

    pub fn opt_num(&self, i: usize) -> Result<Option<Num<'b>>> {
        if self.is_none(i) { Ok(None) } else { self.num(i).map(Some) }
    }

    /// A number whose value shapes the graph; another value is another graph.
    pub fn pinned(&self, i: usize) -> Result<Number> {
        match self.item(i)? {
            Item::Int(n) => Ok(Number::Int(*n)),
            Item::Bool(v) => Ok(Number::Bool(*v)),
            Item::Slot(n) => Ok(self.pin(*n)),
            _ => Err(wrong(i, "a number")),
        }
    }

    /// The value of a number, from now on a part of what identifies the expansion.
    pub fn pin(&self, n: Num<'b>) -> Number {
        let mut pins = self.pins.borrow_mut();
        if !pins.iter().any(|(slot, _)| *slot == n.slot) {
            pins.push((n.slot, n.value));
        }
        n.value
    }

    /// Seed and call counter (i64 scalars) of the call's random number generator.
    pub fn rng(&self) -> Result<(V<'b>, V<'b>)> {
        self.items
            .iter()
            .find_map(|item| match item {
                Item::Rng { seed, counter } => Some((*seed, *counter)),
                _ => None,
            })
            .ok_or_else(|| Error::runtime("the call has no random number generator"))
    }

    /// The size that this op's `count` graph gave, if it gave one.
    pub fn count(&self) -> Option<i64> {
        self.count
    }

    /// A dimension argument, wrapped into `0..rank`. (A scalar has dimension 0 and −1.)
    pub fn dim(&self, i: usize, rank: usize) -> Result<usize> {
        wrap_dim(self.int(i)?, rank)
    }

    /// A list of dimensions; none or empty means all.
    pub fn dims(&self, i: usize, rank: usize) -> Result<Shape> {
        let given = self.opt_ints(i)?.unwrap_or_default();
        if given.is_empty() {
            return Ok((0..rank as i64).collect());
        }
        let mut dims = Shape::new();
        for d in given {
            let d = wrap_dim(d, rank)? as i64;
            ensure!(!dims.contains(&d), "dim {d} appears multiple times in the list of dims");
            dims.push(d);
        }
        if rank == 0 {
            dims.clear();
        }
        Ok(dims)
    }
}

/// `dim` counted from the end if negative, or PyTorch's IndexError.
pub fn wrap_dim(dim: i64, rank: usize) -> Result<usize> {
    let n = rank.max(1) as i64;
    ensure!(
        (-n..n).contains(&dim),
        Index,
        "Dimension out of range (expected to be in range of [{}, {}], but got {dim})",
        -n,
        n - 1
    );
    Ok(dim.rem_euclid(n) as usize)
}

/// The results of an op: values in order of return (`None`: an undefined tensor), and arguments
/// it writes although its schema doesn't say so (a batch norm's running statistics).
#[derive(Default)]
pub struct Outputs<'b> {
    pub values: SmallVec<[Option<V<'b>>; 3]>,
    /// (schema position of the argument, its new value)
    pub writes: SmallVec<[(usize, V<'b>); 2]>,
}

pub type Out<'b> = Result<Outputs<'b>>;

impl<'b> V<'b> {
    /// As an op's only result.
    pub fn out(self) -> Out<'b> {
        outs([self])
    }
}

/// Several results.
pub fn outs<'b>(values: impl IntoIterator<Item = V<'b>>) -> Out<'b> {
    Ok(Outputs { values: values.into_iter().map(Some).collect(), writes: SmallVec::new() })
}

/// Several results, some undefined.
pub fn opt_outs<'b>(values: impl IntoIterator<Item = Option<V<'b>>>) -> Out<'b> {
    Ok(Outputs { values: values.into_iter().collect(), writes: SmallVec::new() })
}
