//! A graph as the text of a StableHLO module, which is what PJRT plugins compile
//! (<https://openxla.org/stablehlo/spec>).
//!
//! - [`module`]: the module with its one function `@main`,
//! - `printer`: SSA names, types and the forms of an operation,
//! - `literal`: numbers as MLIR reads them back, bit for bit,
//! - `elementwise`, `structure`, `linalg`: the primitives, each with its spelling.
//!
//! The text depends on the graph and the parameters alone, so that it can be a cache key.

mod elementwise;
mod linalg;
mod literal;
mod printer;
mod structure;

use crate::ir::{BinaryOp, Graph, Node, Number, Prim, TensorType, ValueId};
use printer::{Printer, Ref, Ty, Val, put};

/// What the function takes, in the order of its arguments: the inputs, then the packed floats if
/// there are any, then the packed integers if there are any.
#[derive(Clone, Copy, Debug)]
pub struct Params<'a> {
    /// Type of `Prim::Input(i)`, which is argument `i`.
    pub inputs: &'a [TensorType],
    /// For input `i`: the output that takes over its buffer. Of the same type.
    pub aliases: &'a [Option<u32>],
    /// Slots of the numbers in the float64 vector, one an element. The slot of a complex number
    /// is there twice: real part, imaginary part.
    pub float_slots: &'a [u32],
    /// Slots of the numbers in the int64 vector, one an element. A bool is passed as 0 or 1.
    pub int_slots: &'a [u32],
}

/// The module that computes the outputs of `graph`. Only what they need is in it.
///
/// # Panics
/// The graph has an input that `params` doesn't, or a scalar in neither of its packs.
pub fn module(graph: &Graph, params: &Params<'_>) -> String {
    let live = graph.live();
    let mut p = Printer::new(64 * graph.nodes().len() + 256);
    signature(&mut p, graph, params);
    // What each node's results are called; meaningful for live nodes only.
    let mut names: Vec<Ref> = vec![Ref::Arg(0); graph.nodes().len()];
    let mut known = vec![false; graph.nodes().len()];
    for (i, node) in graph.nodes().iter().enumerate() {
        if live[i] {
            known[i] = is_known(node, &known);
            let guard = known[i] && may_trap(graph, node);
            names[i] = emit(&mut p, graph, &names, node, params, guard);
        }
    }
    put!(p, "    return");
    for (i, &v) in graph.outputs.iter().enumerate() {
        put!(p, "{} {}", if i > 0 { "," } else { "" }, result(&names, v));
    }
    for (i, &v) in graph.outputs.iter().enumerate() {
        put!(p, "{} {}", if i > 0 { "," } else { " :" }, Ty(graph.ty(v)));
    }
    put!(p, "\n  }}\n}}\n");
    p.out
}

fn signature(p: &mut Printer, graph: &Graph, params: &Params<'_>) {
    put!(p, "module @region {{\n  func.func public @main(");
    let packs = packs(params);
    let types = params.inputs.iter().chain(packs.iter().flatten());
    for (i, ty) in types.enumerate() {
        put!(p, "{}%arg{i}: {}", if i > 0 { ", " } else { "" }, Ty(ty));
        if let Some(Some(output)) = params.aliases.get(i) {
            put!(p, " {{tf.aliasing_output = {output} : i32}}");
        }
    }
    put!(p, ")");
    for (i, &v) in graph.outputs.iter().enumerate() {
        put!(p, "{}{}", if i > 0 { ", " } else { " -> (" }, Ty(graph.ty(v)));
    }
    put!(p, "{}{{\n", if graph.outputs.is_empty() { " " } else { ") " });
}

/// The types of the two packs, where they exist.
fn packs(params: &Params<'_>) -> [Option<TensorType>; 2] {
    use crate::ir::DType::{F64, I64};
    let pack = |slots: &[u32], dtype| {
        (!slots.is_empty()).then(|| TensorType::new(dtype, &[slots.len() as i64]))
    };
    [pack(params.float_slots, F64), pack(params.int_slots, I64)]
}

fn result(names: &[Ref], v: ValueId) -> Ref {
    match names[v.node as usize] {
        Ref::Result(n, _) => Ref::Result(n, v.output),
        name => name,
    }
}

/// Whether a compiler can work the node's value out.
fn is_known(node: &Node, known: &[bool]) -> bool {
    !matches!(node.prim, Prim::Input(_) | Prim::Scalar(_))
        && node.inputs.iter().all(|v| known[v.node as usize])
}

/// MLIR divides constant integers as the host does: by zero, that ends the process.
fn may_trap(graph: &Graph, node: &Node) -> bool {
    let [_, divisor] = node.inputs[..] else { return false };
    matches!(node.prim, Prim::Binary(BinaryOp::Div | BinaryOp::Rem))
        && node.types[0].dtype.is_integral()
        && !matches!(&graph.node(divisor.node).prim, Prim::Constant(n) if n.to_i64() != 0)
}

/// Prints one node and returns its name. `guard`: the compiler must not work it out.
fn emit(
    p: &mut Printer,
    graph: &Graph,
    names: &[Ref],
    node: &Node,
    params: &Params<'_>,
    guard: bool,
) -> Ref {
    let operands: smallvec::SmallVec<[Val; 4]> = (node.inputs.iter())
        .map(|&v| Val { name: result(names, v), ty: graph.ty(v).clone() })
        .collect();
    let ty = &node.types[0];
    let x = operands.as_slice();
    match &node.prim {
        Prim::Input(i) => {
            assert!((*i as usize) < params.inputs.len(), "input {i} is not a parameter");
            Ref::Arg(*i)
        }
        Prim::Scalar(slot) => scalar(p, *slot, ty, params),
        Prim::Constant(n) => p.constant(*n, ty).name,
        Prim::Unary(op) => elementwise::unary(p, *op, &x[0]).name,
        Prim::Binary(op) if guard => {
            let divisor = p.same("stablehlo.optimization_barrier", &[&x[1]]);
            elementwise::binary(p, *op, &x[0], &divisor).name
        }
        Prim::Binary(op) => elementwise::binary(p, *op, &x[0], &x[1]).name,
        Prim::Compare(dir) => p.compare(*dir, &x[0], &x[1]).name,
        Prim::Select => elementwise::select(p, &x[0], &x[1], &x[2]).name,
        Prim::Clamp => elementwise::clamp(p, &x[0], &x[1], &x[2]).name,
        Prim::Convert(to) => p.convert(&x[0], *to).name,
        Prim::Bitcast(_) => elementwise::bitcast(p, &x[0], ty).name,
        Prim::Dot(_)
        | Prim::Conv(_)
        | Prim::Cholesky { .. }
        | Prim::TriangularSolve { .. }
        | Prim::Fft { .. } => linalg::emit(p, &node.prim, x, ty).name,
        Prim::Reduce(..)
        | Prim::ArgReduce { .. }
        | Prim::ReduceWindow(..)
        | Prim::Sort { .. }
        | Prim::Scatter(..) => structure::with_region(p, &node.prim, x, &node.types).name,
        Prim::Iota(_)
        | Prim::Reshape(_)
        | Prim::Transpose(_)
        | Prim::Broadcast { .. }
        | Prim::Slice { .. }
        | Prim::Pad { .. }
        | Prim::Concat(_)
        | Prim::Reverse(_)
        | Prim::Barrier
        | Prim::DynamicSlice(_)
        | Prim::DynamicUpdateSlice
        | Prim::Gather(_) => structure::emit(p, &node.prim, x, ty).name,
    }
}

/// A number that is passed at run time, taken out of its pack.
fn scalar(p: &mut Printer, slot: u32, ty: &TensorType, params: &Params<'_>) -> Ref {
    let [floats, ints] = packs(params);
    let at = |slots: &[u32]| slots.iter().position(|&s| s == slot).map(|i| i as i64);
    let first = params.inputs.len() as u32;
    let (pack, arg, position) = match (at(params.float_slots), at(params.int_slots)) {
        (Some(i), _) => (floats, first, i),
        (None, Some(i)) => (ints, first + u32::from(floats.is_some()), i),
        (None, None) => panic!("scalar {slot} is neither among the floats nor the integers"),
    };
    let Some(pack) = pack.map(|ty| Val { name: Ref::Arg(arg), ty }) else {
        unreachable!("a slot was found in a pack that is empty")
    };
    let element = |p: &mut Printer, i: i64| {
        let one = p.slice(&pack, &[i], &[i + 1], &[1]);
        p.reshape(&one, &[])
    };
    let value = element(p, position);
    if ty.dtype.is_complex() {
        assert_eq!(
            params.float_slots.get(position as usize + 1),
            Some(&slot),
            "complex scalar {slot} takes two places"
        );
        let imag = element(p, position + 1);
        let whole = p.complex(&value, &imag);
        return p.convert(&whole, ty.dtype).name;
    }
    p.convert(&value, ty.dtype).name
}

/// The zero of a type.
fn zero() -> Number {
    Number::Int(0)
}
