//! Cutting a trace: liveness, operands, donation, key.

use crate::ir::Number;
use crate::trace::store::State;
use crate::trace::{Step, Store, Trace, Ty, ValueId};

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

/// Cuts the first `length` steps of a trace off as one region. `may_donate`: whether a ready value
/// that nothing holds any more is the only one with its buffer.
pub fn cut<B>(
    trace: &Trace,
    length: usize,
    store: &mut Store<B>,
    may_donate: impl Fn(&B) -> bool,
) -> Cut {
    let (steps, rest) = trace.steps.split_at(length);
    await_inputs(rest, store, true);
    let mut cut = Cut::default();
    let needed = live_steps(steps, store);
    // Position of a needed step within the region.
    let mut position = vec![0u32; steps.len()];
    for (i, step) in steps.iter().enumerate().filter(|(i, _)| needed[*i]) {
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
            if lives_on(store, value) {
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
    await_inputs(rest, store, false);
    cut
}

/// Marks, or unmarks, what the steps after a region read.
fn await_inputs<B>(rest: &[Step], store: &mut Store<B>, awaited: bool) {
    for &input in rest.iter().flat_map(|step| &step.inputs) {
        store.value_mut(input).awaited = awaited;
    }
}

/// Something needs the value after the region.
fn lives_on<B>(store: &Store<B>, value: ValueId) -> bool {
    let value = store.value(value);
    value.holders > 0 || value.awaited
}

fn live_steps<B>(steps: &[Step], store: &Store<B>) -> Vec<bool> {
    let mut needed = vec![false; steps.len()];
    for (i, step) in steps.iter().enumerate().rev() {
        needed[i] |= step.outputs.iter().any(|&v| lives_on(store, v));
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
        let dies = !lives_on(store, input)
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

/// The first value after `input` in its storage that the region hands on, if its buffer is free.
fn heir<B>(store: &Store<B>, input: ValueId, ty: Ty) -> Option<ValueId> {
    let mut at = store.successor(input)?;
    while store.value(at).mark == 0 {
        at = store.successor(at)?;
    }
    (store.value(at).ty == ty).then_some(at)
}
