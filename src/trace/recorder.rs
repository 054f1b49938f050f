//! The pending steps and how a call becomes one.

use std::sync::Arc;

use smallvec::SmallVec;

use super::store::{CellId, State, Store, ValueId};
use super::template::{
    Base, Bases, Found, Key, Return, Sizing, Template, Templates, for_each_number, for_each_tensor,
};
use super::types::Ty;
use crate::ensure;
use crate::error::Result;
use crate::ir::Number;
use crate::ops::{Arg, OpId};

/// An interned Python source line; 0 is unknown.
pub type LocationId = u32;

/// One recorded call.
#[derive(Debug)]
pub struct Step {
    pub template: Arc<Template>,
    /// What `template.reads` refers to.
    pub inputs: SmallVec<[ValueId; 4]>,
    /// One a graph output.
    pub outputs: SmallVec<[ValueId; 2]>,
    /// What `template.slots` refers to.
    pub numbers: SmallVec<[Number; 2]>,
    pub location: LocationId,
}

/// The steps recorded since the last flush.
#[derive(Debug, Default)]
pub struct Trace {
    pub steps: Vec<Step>,
    /// Bytes of all results, dead ones included: an upper bound of what is deferred.
    pub bytes: u64,
}

/// What a call gave.
pub enum Recorded {
    /// The template, and a new cell (with its address) for each fresh return.
    Step(Arc<Template>, SmallVec<[(CellId, u64); 2]>),
    Resize(SmallVec<[Ty; 2]>),
    /// The op needs no size for these arguments.
    NoCount,
}

pub struct Recorder<B> {
    pub store: Store<B>,
    pub templates: Templates,
    pub trace: Trace,
    key: Key,
}

impl<B> Default for Recorder<B> {
    fn default() -> Recorder<B> {
        Recorder {
            store: Store::default(),
            templates: Templates::default(),
            trace: Trace::default(),
            key: Key::new(),
        }
    }
}

impl<B> Recorder<B> {
    /// Appends a call to the trace.
    ///
    /// Errors: what the op's definition finds wrong with its arguments. Nothing is recorded then.
    pub fn record(
        &mut self,
        op: OpId,
        args: &[Arg<'_>],
        sizing: Sizing,
        location: LocationId,
    ) -> Result<Recorded> {
        let mut cells: SmallVec<[CellId; 8]> = SmallVec::new();
        let mut bases: Bases = SmallVec::new();
        let mut offsets: SmallVec<[i64; 8]> = SmallVec::new();
        let mut unknown = None;
        for_each_tensor(args, |t| {
            cells.push(t.cell);
            offsets.push(t.offset);
            bases.push(match self.store.cell(t.cell) {
                Some(cell) => match cell.value {
                    Some(v) => Base::Value(self.store.value(v).ty),
                    None => Base::Empty(cell.nbytes),
                },
                None => {
                    unknown = Some(t.cell);
                    Base::Empty(0)
                }
            });
        });
        ensure!(unknown.is_none(), "a tensor's storage was freed or belongs to another process");
        let mut numbers: SmallVec<[Number; 4]> = SmallVec::new();
        for_each_number(args, |n| numbers.push(n));
        let found = self.templates.find(op, args, &bases, &numbers, sizing, &mut self.key)?;
        let template = match found {
            Found::Template(t) => t,
            Found::Resize(types) => return Ok(Recorded::Resize(types)),
            Found::NoCount => return Ok(Recorded::NoCount),
        };

        let step = self.trace.steps.len() as u32;
        let inputs: SmallVec<[ValueId; 4]> = template
            .reads
            .iter()
            .filter_map(|&operand| {
                // A read operand had a value when the template was chosen.
                let value = self.store.cell(cells[operand as usize])?.value?;
                self.store.value_mut(value).uses += 1;
                Some(value)
            })
            .collect();
        let mut outputs: SmallVec<[ValueId; 2]> = SmallVec::new();
        for (i, &ty) in template.outputs.iter().enumerate() {
            let state = State::Pending { step, output: i as u16 };
            outputs.push(self.store.new_value(ty, state));
            self.trace.bytes += ty.bytes();
        }
        let mut fresh: SmallVec<[(CellId, u64); 2]> = SmallVec::new();
        let mut next = 0;
        for r in &template.returns {
            if let Return::Fresh(ty) = r {
                let (cell, address) = self.store.new_cell(ty.bytes());
                self.store.hold(cell, outputs[next]);
                fresh.push((cell, address));
                next += 1;
            }
        }
        if sizing == Sizing::Ask {
            // The size has no tensor: the caller holds the value through this cell.
            let (cell, address) = self.store.new_cell(8);
            self.store.hold(cell, outputs[0]);
            fresh.push((cell, address));
            next += 1;
        }
        for (write, &value) in template.writes.iter().zip(&outputs[next..]) {
            self.store.hold(cells[write.operand as usize], value);
        }
        let number = |&slot: &u32| match numbers.get(slot as usize) {
            Some(&number) => number,
            None => Number::Int(offsets[slot as usize - numbers.len()]),
        };
        let numbers = template.slots.iter().map(number).collect();
        let step = Step { template: template.clone(), inputs, outputs, numbers, location };
        self.trace.steps.push(step);
        Ok(Recorded::Step(template, fresh))
    }

    /// Drops the first `length` steps, which were flushed, with the values that only they knew.
    pub fn forget(&mut self, length: usize) {
        for step in self.trace.steps.drain(..length) {
            for &input in &step.inputs {
                self.store.was_read(input);
            }
            for &output in &step.outputs {
                self.store.settle(output);
            }
        }
        self.trace.bytes = 0;
        for (i, step) in self.trace.steps.iter().enumerate() {
            for (output, &value) in step.outputs.iter().enumerate() {
                let value = self.store.value_mut(value);
                value.state = State::Pending { step: i as u32, output: output as u16 };
                self.trace.bytes += value.ty.bytes();
            }
        }
    }
}
