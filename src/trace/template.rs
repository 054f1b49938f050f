//! Memoised expansions of op calls.
//!
//! A call is identified by its op, the geometry of its tensors (how each reads its storage, and
//! what the storage holds) and its other arguments, but not by its numbers, unless the expansion
//! looked at them, nor by where in its storage a tensor starts. Calls alike share one template: reading the operands through their views, the
//! op itself, and the writes through the views of what it mutates, all as one small graph.

use std::collections::HashMap;
use std::sync::Arc;

use ahash::RandomState;
use smallvec::SmallVec;

use super::types::{Ty, intern};
use super::view::{self, Window};
use crate::ensure;
use crate::error::{Error, Result};
use crate::ir::types::contiguous_strides;
use crate::ir::{Builder, DType, Graph, Number, Prim, TensorType, V, ValueId};
use crate::ops::args::{Item, Num};
use crate::ops::{Arg, Args, OpDef, OpId, TensorArg, registry};

pub type TemplateId = u32;

/// What a storage cell holds when a call reads it.
#[derive(Clone, Copy)]
pub enum Base {
    /// A value of this type.
    Value(Ty),
    /// Nothing was written yet; this many bytes of zeros.
    Empty(u64),
}

/// One return of a call.
#[derive(Clone, Copy, Debug)]
pub enum Return {
    /// A new tensor: the graph's output at this position.
    Fresh(Ty),
    /// Landed in an argument.
    Written,
    /// An undefined tensor.
    Undefined,
}

/// An argument's storage gets a new value.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// Which of the call's tensors, counted through its arguments.
    pub operand: u32,
    pub ty: Ty,
}

/// The expansion of a call.
#[derive(Debug)]
pub struct Template {
    pub id: TemplateId,
    pub op: OpId,
    /// Inputs are numbered by the call's tensors, scalars by the call's slots: its numbers, then
    /// the offset of each tensor. Outputs: the fresh returns, then the writes.
    pub graph: Graph,
    pub live: Vec<bool>,
    /// The tensors that the graph really reads, in order.
    pub reads: SmallVec<[u32; 4]>,
    pub returns: SmallVec<[Return; 2]>,
    pub writes: SmallVec<[Write; 2]>,
    /// Types of the graph's outputs.
    pub outputs: SmallVec<[Ty; 2]>,
    /// Slots that the graph really uses, in order.
    pub slots: SmallVec<[u32; 2]>,
    /// Of `slots`: those that change with each call by nature (a generator's state).
    pub runtime: SmallVec<[bool; 2]>,
}

/// What looking up a call gives.
pub enum Found {
    Template(Arc<Template>),
    /// Tensors given as `out=` have another shape; the shapes they must get, in order of return.
    Resize(SmallVec<[Ty; 2]>),
    /// The op needs no size for these arguments (only from a count lookup).
    NoCount,
}

/// Whether the size of a call's result is asked for, or known, or of no concern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sizing {
    None,
    /// Expand the graph of the size; its only return is an i64 scalar.
    Ask,
    Known(i64),
}

/// Slots that an expansion looked at, with the values it saw.
type Pins = SmallVec<[(u32, Number); 2]>;

#[derive(Default)]
struct Entry {
    variants: SmallVec<[(Pins, Arc<Template>); 1]>,
    no_count: bool,
}

pub type Key = SmallVec<[u64; 64]>;
pub type Bases = SmallVec<[Base; 8]>;

/// All templates.
#[derive(Default)]
pub struct Templates {
    index: HashMap<Box<[u64]>, Entry, RandomState>,
    all: Vec<Arc<Template>>,
}

impl Templates {
    pub fn get(&self, id: TemplateId) -> &Arc<Template> {
        &self.all[id as usize]
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The template of a call, made now if there is none. `key` is scratch space.
    pub fn find(
        &mut self,
        op: OpId,
        args: &[Arg<'_>],
        bases: &Bases,
        numbers: &[Number],
        sizing: Sizing,
        key: &mut Key,
    ) -> Result<Found> {
        write_key(op, args, bases, sizing, key);
        if let Some(entry) = self.index.get(key.as_slice()) {
            if entry.no_count {
                return Ok(Found::NoCount);
            }
            let matches = |pins: &[(u32, Number)]| {
                pins.iter().all(|&(slot, value)| numbers[slot as usize] == value)
            };
            if let Some((_, t)) = entry.variants.iter().find(|(pins, _)| matches(pins)) {
                return Ok(Found::Template(t.clone()));
            }
        }
        let id = self.all.len() as TemplateId;
        let def = registry().get(op);
        match expand(id, op, def, args, bases, sizing)? {
            Expanded::Resize(types) => Ok(Found::Resize(types)),
            Expanded::NoCount => {
                let entry = Entry { no_count: true, ..Entry::default() };
                self.index.insert(key.as_slice().into(), entry);
                Ok(Found::NoCount)
            }
            Expanded::Template(template, pins) => {
                let template = Arc::new(*template);
                self.all.push(template.clone());
                let entry = self.index.entry(key.as_slice().into()).or_default();
                entry.variants.push((pins, template.clone()));
                Ok(Found::Template(template))
            }
        }
    }
}

/// All that identifies a call but its numbers, as words.
fn write_key(op: OpId, args: &[Arg<'_>], bases: &Bases, sizing: Sizing, key: &mut Key) {
    key.clear();
    match sizing {
        Sizing::None => key.push(u64::from(op)),
        Sizing::Ask => key.push(u64::from(op) | 1 << 32),
        Sizing::Known(n) => key.extend([u64::from(op) | 1 << 33, n as u64]),
    }
    let mut bases = bases.iter();
    let mut tensor = |t: &TensorArg<'_>, key: &mut Key| {
        let write = t.write.map_or(0, |w| u64::from(w) + 1);
        let head = t.dtype as u64 | write << 8 | u64::from(t.out) << 16;
        if t.cell == 0 {
            key.push(head | 1 << 17);
            return;
        }
        let bytes = match bases.next() {
            Some(Base::Value(ty)) if identity(t, *ty) => {
                key.push(head | 1 << 18 | u64::from(ty.id()) << 32);
                return;
            }
            Some(Base::Value(ty)) => {
                key.push(head | (t.sizes.len() as u64) << 24 | u64::from(ty.id()) << 32);
                ty.bytes()
            }
            Some(Base::Empty(bytes)) => {
                key.push(head | 1 << 19 | (t.sizes.len() as u64) << 24);
                key.push(*bytes);
                *bytes
            }
            None => unreachable!("each defined tensor of a call has a base"),
        };
        key.extend(t.sizes.iter().map(|&n| n as u64));
        key.extend(t.strides.iter().map(|&n| n as u64));
        key.push(window(t).reach(bytes as i64 / t.dtype.size() as i64) as u64);
    };
    for arg in args {
        match arg {
            Arg::None => key.push(1),
            Arg::Ignored => key.push(2),
            Arg::Tensor(t) => {
                key.push(3);
                tensor(t, key);
            }
            Arg::Tensors(list) => {
                key.push(4 | (list.len() as u64) << 8);
                for t in *list {
                    tensor(t, key);
                }
            }
            Arg::Number(n) => key.push(5 | (n.category() as u64) << 8),
            Arg::HostScalar { dtype, wrapped, .. } => {
                key.push(6 | (*dtype as u64) << 8 | u64::from(*wrapped) << 16);
            }
            Arg::Int(n) => key.extend([7, *n as u64]),
            Arg::Bool(v) => key.push(8 | u64::from(*v) << 8),
            Arg::Ints(v) => {
                key.push(9 | (v.len() as u64) << 8);
                key.extend(v.iter().map(|&n| n as u64));
            }
            Arg::Floats(v) => {
                key.push(10 | (v.len() as u64) << 8);
                key.extend(v.iter().map(|x| x.to_bits()));
            }
            Arg::Bools(v) => {
                key.push(11 | (v.len() as u64) << 8);
                key.extend(v.iter().map(|&n| n as u64));
            }
            Arg::Str(s) => {
                key.push(12 | (s.len() as u64) << 8);
                key.extend(s.bytes().map(u64::from));
            }
            Arg::DType(d) => key.push(13 | (*d as u64) << 8),
            Arg::Generator { .. } => key.push(14),
        }
    }
    // Two written tensors on one storage: the second write builds on the first.
    let mut written: SmallVec<[u64; 4]> = SmallVec::new();
    for_each_tensor(args, |t| {
        if t.write.is_some() {
            let earlier = written.iter().position(|&cell| cell == t.cell);
            if let Some(earlier) = earlier {
                key.extend([15, written.len() as u64, earlier as u64]);
            }
            written.push(t.cell);
        }
    });
}

/// The window is the storage's value as it stands.
fn identity(t: &TensorArg<'_>, ty: Ty) -> bool {
    t.dtype == ty.dtype() && t.sizes == ty.sizes() && window(t).is_contiguous()
}

fn window<'a>(t: &TensorArg<'a>) -> Window<'a> {
    Window { sizes: t.sizes, strides: t.strides, offset: t.offset }
}

/// Every defined tensor of a call, in order: the numbering of operands.
pub fn for_each_tensor<'a>(args: &[Arg<'a>], mut f: impl FnMut(&TensorArg<'a>)) {
    for arg in args {
        match arg {
            Arg::Tensor(t) => f(t),
            Arg::Tensors(list) => list.iter().filter(|t| t.cell != 0).for_each(&mut f),
            _ => {}
        }
    }
}

/// Every number of a call, in order: the numbering of slots.
pub fn for_each_number(args: &[Arg<'_>], mut f: impl FnMut(Number)) {
    for arg in args {
        match arg {
            Arg::Number(n) => f(*n),
            Arg::HostScalar { value, .. } => f(*value),
            Arg::Generator { seed, counter } => {
                f(Number::Int(*seed));
                f(Number::Int(*counter));
            }
            _ => {}
        }
    }
}

enum Expanded {
    Template(Box<Template>, Pins),
    Resize(SmallVec<[Ty; 2]>),
    NoCount,
}

/// What one expansion yields beside its graph.
struct Shape {
    returns: SmallVec<[Return; 2]>,
    writes: SmallVec<[Write; 2]>,
    outputs: Vec<ValueId>,
    types: SmallVec<[Ty; 2]>,
    pins: Pins,
    runtime: Vec<bool>,
    resize: Option<SmallVec<[Ty; 2]>>,
    no_count: bool,
}

fn expand(
    id: TemplateId,
    op: OpId,
    def: &OpDef,
    args: &[Arg<'_>],
    bases: &Bases,
    sizing: Sizing,
) -> Result<Expanded> {
    let built = Builder::build(|b| expand_in(b, def, args, bases, sizing));
    let (mut graph, shape) = built.map_err(|e| describe(e, def, args))?;
    if shape.no_count {
        return Ok(Expanded::NoCount);
    }
    if let Some(types) = shape.resize {
        return Ok(Expanded::Resize(types));
    }
    graph.outputs = shape.outputs;
    let live = graph.live();
    let mut reads: SmallVec<[u32; 4]> = SmallVec::new();
    let mut slots: SmallVec<[u32; 2]> = SmallVec::new();
    for (node, _) in graph.nodes().iter().zip(&live).filter(|(_, live)| **live) {
        match node.prim {
            Prim::Input(i) => reads.push(i),
            Prim::Scalar(slot) => slots.push(slot),
            _ => {}
        }
    }
    reads.sort_unstable();
    slots.sort_unstable();
    let runtime = slots.iter().map(|&s| shape.runtime[s as usize]).collect();
    let (returns, writes, outputs) = (shape.returns, shape.writes, shape.types);
    let template =
        Template { id, op, graph, live, reads, returns, writes, outputs, slots, runtime };
    Ok(Expanded::Template(Box::new(template), shape.pins))
}

/// A tensor of the call and, while the expansion goes on, the current value of its storage.
#[derive(Clone, Copy)]
struct Target<'a, 'b> {
    arg: TensorArg<'a>,
    operand: u32,
    position: usize,
    base: V<'b>,
    /// The tensor's offset.
    at: V<'b>,
}

fn expand_in<'a, 'b>(
    b: &'b Builder,
    def: &OpDef,
    args: &[Arg<'a>],
    bases: &Bases,
    sizing: Sizing,
) -> Result<Shape> {
    let mut items = Vec::with_capacity(args.len());
    let mut targets: Vec<Target<'a, 'b>> = Vec::new();
    let mut operands = 0u32;
    let mut runtime = Vec::new();
    let mut all: Vec<Target<'a, 'b>> = Vec::new();
    let mut numbers = 0u32;
    for_each_number(args, |_| numbers += 1);
    let mut tensor = |t: &TensorArg<'a>, position: usize| -> Result<V<'b>> {
        let operand = operands;
        operands += 1;
        let base = match bases[operand as usize] {
            Base::Value(ty) => {
                let value = b.leaf(Prim::Input(operand), ty.tensor_type().clone());
                view::reinterpret(value, t.dtype)?
            }
            Base::Empty(bytes) => b.full(0i64, t.dtype, &[bytes as i64 / t.dtype.size() as i64]),
        };
        let at = b.leaf(Prim::Scalar(numbers + operand), TensorType::scalar(DType::I64));
        let target = Target { arg: *t, operand, position, base, at };
        all.push(target);
        let v = if t.out {
            // Its old value has no meaning to the op; only its dtype and sizes do.
            b.full(0i64, t.dtype, t.sizes)
        } else {
            view::read(base, window(t), at)?
        };
        if t.write.is_some() {
            targets.push(target);
        }
        Ok(v)
    };
    let mut slot = |value: Number, dtype, wrapped, by_nature| {
        let slot = runtime.len() as u32;
        runtime.push(by_nature);
        Num { b, slot, value, dtype, wrapped }
    };
    for (position, arg) in args.iter().enumerate() {
        items.push(match arg {
            Arg::None | Arg::Ignored => Item::None,
            Arg::Tensor(t) => Item::Tensor(tensor(t, position)?),
            Arg::Tensors(list) => Item::Tensors(
                list.iter()
                    .map(|t| if t.cell == 0 { Ok(None) } else { tensor(t, position).map(Some) })
                    .collect::<Result<_>>()?,
            ),
            Arg::Number(n) => Item::Slot(slot(*n, None, false, false)),
            Arg::HostScalar { dtype, wrapped, value } => {
                Item::Slot(slot(*value, Some(*dtype), *wrapped, false))
            }
            Arg::Int(n) => Item::Int(*n),
            Arg::Bool(v) => Item::Bool(*v),
            Arg::Ints(v) => Item::Ints((*v).into()),
            Arg::Floats(v) => Item::Floats(v.to_vec()),
            Arg::Bools(v) => Item::Bools(v.iter().map(|&x| x != 0).collect()),
            Arg::Str(s) => Item::Str((*s).to_owned()),
            Arg::DType(d) => Item::DType(*d),
            Arg::Generator { seed, counter } => {
                let mut word = |n: i64| slot(Number::Int(n), None, false, true).to(DType::I64);
                Item::Rng { seed: word(*seed), counter: word(*counter) }
            }
        });
    }
    // Offsets may differ between calls, but don't by nature.
    runtime.resize((numbers + operands) as usize, false);
    let count = if let Sizing::Known(n) = sizing { Some(n) } else { None };
    let args = Args { b, items, pins: Default::default(), count };
    let mut shape = Shape {
        returns: SmallVec::new(),
        writes: SmallVec::new(),
        outputs: Vec::new(),
        types: SmallVec::new(),
        pins: SmallVec::new(),
        runtime,
        resize: None,
        no_count: false,
    };
    if sizing == Sizing::Ask {
        let size = match &def.count {
            Some(count) => count(&args)?,
            None => None,
        };
        match size {
            Some(v) => shape.fresh(v),
            None => shape.no_count = true,
        }
        shape.pins = args.pins.into_inner().into();
        return Ok(shape);
    }
    let outputs = (def.body)(&args)?;
    shape.pins = args.pins.borrow().as_slice().into();

    // out= tensors must have the results' shapes before anything is written.
    let mut resize: SmallVec<[Ty; 2]> = SmallVec::new();
    let mut fits = true;
    for (i, value) in outputs.values.iter().enumerate() {
        let out = targets.iter().find(|t| t.arg.out && t.arg.write == Some(i as u8));
        if let (Some(target), Some(v)) = (out, value) {
            fits &= v.sizes().as_slice() == target.arg.sizes;
            resize.push(intern(&v.ty().with_dtype(target.arg.dtype)));
        }
    }
    if !fits {
        shape.resize = Some(resize);
        return Ok(shape);
    }

    for (i, value) in outputs.values.iter().enumerate() {
        let written = targets.iter().any(|t| t.arg.write == Some(i as u8));
        let kind = match value {
            _ if written => Return::Written,
            Some(v) => {
                shape.fresh(*v);
                Return::Fresh(intern(&v.ty()))
            }
            None => Return::Undefined,
        };
        shape.returns.push(kind);
    }
    // An op that returns nothing may still write (a foreach or in-place op without result).
    let mut pending: Vec<(usize, V<'b>)> = Vec::new();
    for (t, target) in targets.iter().enumerate() {
        if let Some(Some(v)) = target.arg.write.and_then(|i| outputs.values.get(i as usize)) {
            pending.push((t, *v));
        }
    }
    for (position, value) in &outputs.writes {
        let known = targets.iter().position(|t| t.position == *position);
        let t = match known {
            Some(t) => t,
            None => {
                // The schema doesn't say that this argument is written; the definition does.
                let target = all.iter().find(|t| t.position == *position).ok_or_else(|| {
                    Error::runtime(format!("argument {} isn't a tensor to write", position + 1))
                })?;
                targets.push(*target);
                targets.len() - 1
            }
        };
        pending.push((t, *value));
    }
    for (t, value) in pending {
        let target = &targets[t];
        let new = write_through(target, value)?;
        let (cell, operand) = (target.arg.cell, target.operand);
        // Later writes to the same storage build on this one and replace it.
        for other in targets.iter_mut().filter(|o| o.arg.cell == cell) {
            other.base = view::reinterpret(new, other.arg.dtype)?;
        }
        let ty = intern(&new.ty());
        let first = targets.iter().filter(|o| o.arg.cell == cell).map(|o| o.operand).min();
        let operand = first.unwrap_or(operand);
        let earlier = shape.writes.iter().position(|w| w.operand == operand);
        match earlier {
            Some(i) => {
                let at = shape.outputs.len() - shape.writes.len() + i;
                (shape.outputs[at], shape.types[at]) = (new.id, ty);
                shape.writes[i].ty = ty;
            }
            None => {
                shape.writes.push(Write { operand, ty });
                shape.outputs.push(new.id);
                shape.types.push(ty);
            }
        }
    }
    Ok(shape)
}

impl Shape {
    fn fresh(&mut self, v: V<'_>) {
        self.outputs.push(v.id);
        self.types.push(intern(&v.ty()));
    }
}

/// The target's storage after `value` went through its view, checked as torch checks it.
fn write_through<'b>(target: &Target<'_, 'b>, value: V<'b>) -> Result<V<'b>> {
    let t = &target.arg;
    let from = value.dtype();
    ensure!(
        from.category() <= t.dtype.category() || from == t.dtype,
        "result type {} can't be cast to the desired output type {}",
        from.scalar_type_name(),
        t.dtype.scalar_type_name()
    );
    let sizes = value.sizes();
    ensure!(
        sizes.as_slice() == t.sizes,
        "output with shape {:?} doesn't match the broadcast shape {:?}",
        t.sizes,
        sizes.as_slice()
    );
    let value = value.convert(t.dtype);
    let w = window(t);
    let base = target.base;
    if w.is_contiguous() && base.numel() == value.numel() {
        // The whole storage: it takes the value's own shape.
        return Ok(value);
    }
    view::write(base, w, target.at, value)
}

/// Adds the op and its operands to an error.
fn describe(e: Error, def: &OpDef, args: &[Arg<'_>]) -> Error {
    let Error { kind, message } = e;
    Error::new(kind, format!("{message}\n  in {}", signature(def.name, args)))
}

/// `aten::add.Tensor(float32[2, 3], 0.5, …)`, for messages.
pub fn signature(name: &str, args: &[Arg<'_>]) -> String {
    let tensor = |t: &TensorArg<'_>| {
        let ty = TensorType::new(t.dtype, t.sizes);
        if t.strides == contiguous_strides(t.sizes).as_slice() {
            ty.to_string()
        } else {
            format!("{ty} (strides {:?})", t.strides)
        }
    };
    let parts: Vec<String> = args
        .iter()
        .filter(|a| !matches!(a, Arg::Ignored))
        .map(|arg| match arg {
            Arg::None | Arg::Ignored => "None".to_owned(),
            Arg::Tensor(t) => tensor(t),
            Arg::Tensors(list) => {
                let list: Vec<String> = list.iter().map(tensor).collect();
                format!("[{}]", list.join(", "))
            }
            Arg::Number(n) => n.to_string(),
            Arg::HostScalar { value, .. } => value.to_string(),
            Arg::Int(n) => n.to_string(),
            Arg::Bool(v) => v.to_string(),
            Arg::Ints(v) => format!("{v:?}"),
            Arg::Floats(v) => format!("{v:?}"),
            Arg::Bools(v) => format!("{v:?}"),
            Arg::Str(s) => format!("{s:?}"),
            Arg::DType(d) => d.to_string(),
            Arg::Generator { .. } => "generator".to_owned(),
        })
        .collect();
    format!("{name}({})", parts.join(", "))
}
