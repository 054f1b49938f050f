//! The program of a region.

use super::cut::{Cut, Operand};
use crate::ir::{Graph, Number, Prim, TensorType, ValueId};
use crate::trace::Trace;

/// Where a value that lives on comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// This result of the program.
    Result(u32),
    /// It is this input, unchanged.
    Input(u32),
}

/// A region as one graph.
pub struct Program {
    /// Its inputs are the region's, its scalars the region's numbers that stayed out of it.
    pub graph: Graph,
    /// For each output of the region.
    pub sources: Vec<Source>,
    pub inputs: Vec<TensorType>,
    /// For each input: the result that takes over its buffer.
    pub donations: Vec<Option<u32>>,
}

/// Builds the program of a cut. Numbers are constants of it, but for those in `open`.
pub fn build(trace: &Trace, cut: &Cut, inputs: Vec<TensorType>, open: &[bool]) -> Program {
    let mut graph = Graph::new();
    let mut results: Vec<Vec<ValueId>> = Vec::with_capacity(cut.steps.len());
    let mut operands = cut.operands.iter();
    let mut first_number = 0;
    for &at in &cut.steps {
        let step = &trace.steps[at as usize];
        let template = &*step.template;
        let values: Vec<ValueId> = operands
            .by_ref()
            .take(template.reads.len())
            .map(|operand| match *operand {
                Operand::Input(i) => graph.leaf(Prim::Input(i), inputs[i as usize].clone()),
                Operand::Step { step, output } => results[step as usize][output as usize],
            })
            .collect();
        let outputs =
            graph.inline(&template.graph, &template.live, |graph, node| match node.prim {
                Prim::Input(operand) => {
                    let i = template.reads.iter().position(|&r| r == operand)?;
                    Some(values[i])
                }
                Prim::Scalar(slot) => {
                    let i = template.slots.iter().position(|&s| s == slot)?;
                    let number = first_number + i;
                    Some(if open[number] {
                        graph.leaf(Prim::Scalar(number as u32), node.types[0].clone())
                    } else {
                        constant(graph, cut.numbers[number])
                    })
                }
                _ => None,
            });
        results.push(outputs);
        first_number += template.slots.len();
    }
    let mut sources = Vec::with_capacity(cut.outputs.len());
    for &(_, step, output) in &cut.outputs {
        let v = results[step as usize][output as usize];
        if let Prim::Input(i) = graph.node(v.node).prim {
            sources.push(Source::Input(i));
            continue;
        }
        let known = graph.outputs.iter().position(|&o| o == v);
        let result = known.unwrap_or_else(|| {
            graph.outputs.push(v);
            graph.outputs.len() - 1
        });
        sources.push(Source::Result(result as u32));
    }
    let mut taken = vec![false; graph.outputs.len()];
    let donations = cut
        .donations
        .iter()
        .enumerate()
        .map(|(input, donation)| {
            // An input that lives on as an output keeps its buffer.
            if sources.contains(&Source::Input(input as u32)) {
                return None;
            }
            match sources[(*donation)? as usize] {
                Source::Result(r) if !std::mem::replace(&mut taken[r as usize], true) => Some(r),
                _ => None,
            }
        })
        .collect();
    Program { graph, sources, inputs, donations }
}

fn constant(graph: &mut Graph, number: Number) -> ValueId {
    graph.leaf(Prim::Constant(number), TensorType::scalar(number.carrier()))
}
