//! Cutting a trace: liveness, operands, donation, key.

use crate::ir::Number;
use crate::trace::store::State;
use crate::trace::{Store, Trace, Ty, ValueId};

/// Where a step's operand comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    /// Input `i` of the region.
    Input(u32),
    /// An output of the region's step `step`.
    Step { step: u32, output: u16 },
}

/// A region of a trace. Steps, inputs and outputs are in order of recording.
#[derive(Debug, Default)]
pub struct Cut {
    /// Positions in the trace of the steps that live values need.
    pub steps: Vec<u32>,
    /// The operands of these steps, one after the other.
    pub operands: Vec<Operand>,
    /// Ready values that the region reads.
    pub inputs: Vec<ValueId>,
    /// Values that live on, and the step (of `steps`) and output that make them.
    pub outputs: Vec<(ValueId, u32, u16)>,
    /// For each input: the output that takes over its buffer.
    pub donations: Vec<Option<u32>>,
    /// The numbers of the steps, one after the other, and which of them change with each call by
    /// nature.
    pub numbers: Vec<Number>,
    pub runtime: Vec<bool>,
    /// What identifies the program, up to the values of numbers.
    pub key: Vec<u64>,
}

/// Cuts the whole trace into one region. `may_donate`: whether a ready value that nothing holds
/// any more is the only one with its buffer.
pub fn cut<B>(trace: &Trace, store: &mut Store<B>, may_donate: impl Fn(&B) -> bool) -> Cut {
    let mut cut = Cut::default();
    let needed = live_steps(trace, store);
    // Position of a needed step within the region.
    let mut position = vec![0u32; trace.steps.len()];
    for (i, step) in trace.steps.iter().enumerate().filter(|(i, _)| needed[*i]) {
        let at = cut.steps.len() as u32;
        position[i] = at;
        cut.steps.push(i as u32);
        cut.key.push(u64::from(step.template.id) | 1 << 63);
        for &input in &step.inputs {
            let operand = match store.value(input).state {
                State::Pending { step, output } => {
                    Operand::Step { step: position[step as usize], output }
                }
                State::Ready(_) => {
                    let value = store.value_mut(input);
                    // `mark` is the input's number plus one while this cut is being made.
                    if value.mark == 0 {
                        cut.inputs.push(input);
                        value.mark = cut.inputs.len() as u32;
                    }
                    Operand::Input(value.mark - 1)
                }
            };
            cut.key.push(match operand {
                Operand::Input(i) => u64::from(i) << 1,
                Operand::Step { step, output } => {
                    u64::from(step) << 17 | u64::from(output) << 1 | 1
                }
            });
            cut.operands.push(operand);
        }
        let mut live = 0u64;
        for (output, &value) in step.outputs.iter().enumerate() {
            if store.value(value).holders > 0 {
                live |= 1 << (output % 64);
                cut.outputs.push((value, at, output as u16));
            }
        }
        cut.key.push(live);
        cut.numbers.extend_from_slice(&step.numbers);
        cut.runtime.extend_from_slice(&step.template.runtime);
    }
    for &input in &cut.inputs {
        store.value_mut(input).mark = 0;
    }
    donate(&mut cut, store, may_donate);
    cut
}

fn live_steps<B>(trace: &Trace, store: &Store<B>) -> Vec<bool> {
    let mut needed = vec![false; trace.steps.len()];
    for (i, step) in trace.steps.iter().enumerate().rev() {
        needed[i] |= step.outputs.iter().any(|&v| store.value(v).holders > 0);
        if needed[i] {
            for &input in &step.inputs {
                if let State::Pending { step, .. } = store.value(input).state {
                    needed[step as usize] = true;
                }
            }
        }
    }
    needed
}

/// An input that dies in the region gives its buffer to the value that its storage ended with, if
/// that one has the same type: the parameter before a step to the parameter after it.
fn donate<B>(cut: &mut Cut, store: &mut Store<B>, may_donate: impl Fn(&B) -> bool) {
    for (i, &(value, ..)) in cut.outputs.iter().enumerate() {
        store.value_mut(value).mark = i as u32 + 1;
    }
    for &input in &cut.inputs {
        let value = store.value(input);
        let dies = value.holders == 0
            && matches!(&value.state, State::Ready(buffer) if may_donate(buffer));
        let heir = dies.then(|| heir(store, input, value.ty)).flatten();
        let output = heir.map(|heir| store.value(heir).mark - 1);
        if let Some(heir) = heir {
            // One buffer an output.
            store.value_mut(heir).mark = 0;
        }
        cut.donations.push(output);
        cut.key.push(output.map_or(0, |o| u64::from(o) + 1) | 1 << 62);
    }
    for &(value, ..) in &cut.outputs {
        store.value_mut(value).mark = 0;
    }
}

/// The last value of the storage that `input` was once in, if it is an output not yet taken.
fn heir<B>(store: &Store<B>, input: ValueId, ty: Ty) -> Option<ValueId> {
    let mut at = store.successor(input)?;
    while store.value(at).holders == 0 {
        at = store.successor(at)?;
    }
    let value = store.value(at);
    (value.mark != 0 && value.ty == ty).then_some(at)
}
