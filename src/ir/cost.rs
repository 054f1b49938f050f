//! What a primitive costs: floating-point operations and bytes read and written.

use super::prim::{Prim, UnaryOp};
use super::{Graph, Node};

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Arithmetic operations; a multiply-add counts as two, a transcendental as eight.
    pub flops: u64,
    /// Bytes of operands and results, as if each went through memory.
    pub bytes: u64,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.flops += other.flops;
        self.bytes += other.bytes;
    }
}

/// The cost of one node of `graph`, run alone.
pub fn cost(graph: &Graph, node: &Node) -> Cost {
    let out: u64 = node.types.iter().map(|t| t.numel() as u64).sum();
    let operand = |i: usize| graph.ty(node.inputs[i]);
    let flops = match &node.prim {
        Prim::Input(_) | Prim::Scalar(_) => return Cost::default(),
        Prim::Constant(_) | Prim::Iota(_) => 0,
        Prim::Reshape(_) | Prim::Bitcast(_) => return Cost::default(),
        Prim::Unary(op) => match op {
            UnaryOp::Abs
            | UnaryOp::Neg
            | UnaryOp::Not
            | UnaryOp::Sign
            | UnaryOp::Floor
            | UnaryOp::Ceil
            | UnaryOp::RoundEven
            | UnaryOp::IsFinite
            | UnaryOp::Real
            | UnaryOp::Imag => out,
            _ => 8 * out,
        },
        Prim::Binary(_) | Prim::Compare(_) | Prim::Select | Prim::Clamp | Prim::Convert(_) => out,
        Prim::Dot(a) => {
            let k: u64 =
                a.lhs_contract.iter().map(|&i| operand(0).size(i as usize) as u64).product();
            2 * out * k
        }
        Prim::Conv(a) => {
            let kernel = operand(1);
            let per_output =
                kernel.numel() as u64 / kernel.size(a.rhs_dims[0] as usize).max(1) as u64;
            2 * out * per_output
        }
        Prim::Reduce(..) | Prim::ArgReduce { .. } => operand(0).numel() as u64,
        Prim::ReduceWindow(_, w) => out * w.sizes.iter().product::<i64>() as u64,
        Prim::Scatter(..) => operand(2).numel() as u64,
        Prim::Sort { .. } => {
            let n = operand(0).numel().max(2) as u64;
            n * u64::from(n.ilog2())
        }
        Prim::Cholesky { .. } => out * operand(0).sizes().last().map_or(1, |&n| n as u64) / 3,
        Prim::TriangularSolve { .. } => out * operand(0).sizes().last().map_or(1, |&n| n as u64),
        Prim::Fft { lengths, .. } => {
            5 * out * u64::from(lengths.iter().product::<i64>().max(2).ilog2())
        }
        _ => 0,
    };
    let read: u64 = node.inputs.iter().map(|&v| graph.ty(v).bytes()).sum();
    let written: u64 = node.types.iter().map(|t| t.bytes()).sum();
    Cost { flops, bytes: read + written }
}
