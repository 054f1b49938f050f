//! Flushing: cut the trace, find or make its program, send the call.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use smallvec::SmallVec;

use super::executor::{Call, Executor, Origin, Slot};
use super::regions::{Met, Variant};
use super::{Core, Engine};
use crate::ir::Number;
use crate::ir::graph::seeded;
use crate::policy::Reason;
use crate::region::{self, Cut, Source};
use crate::trace::Store;
use crate::trace::recorder::LocationId;
use crate::trace::store::State;

impl Engine {
    /// Sends everything pending to the executor.
    pub(super) fn flush_core(&self, core: &mut Core, executor: &Executor, reason: Reason) {
        let pending = core.recorder.trace.steps.len();
        self.flush_prefix(core, executor, reason, pending);
    }

    /// Sends the first `length` pending steps to the executor.
    pub(super) fn flush_prefix(
        &self,
        core: &mut Core,
        executor: &Executor,
        reason: Reason,
        length: usize,
    ) {
        if length == 0 {
            return;
        }
        *core.stats.flushes.entry(reason).or_default() += 1;
        let trace = &core.recorder.trace;
        let store = &mut core.recorder.store;
        let cut = region::cut(trace, length, store, |slot| !slot.shared.load(Relaxed));
        core.stats.ops_dead += (length - cut.steps.len()) as u64;
        core.stats.digest = seeded().hash_one((core.stats.digest, length, &cut.key));

        let slots = if cut.outputs.is_empty() {
            Vec::new()
        } else {
            let (variant, met) = core
                .regions
                .find(&cut, |earlier| Variant::new(executor, trace, &cut, store, earlier));
            match met {
                Met::Again => core.stats.cache_hits += 1,
                Met::New => core.stats.regions_compiled += 1,
                Met::OtherNumbers => {
                    core.stats.regions_compiled += 1;
                    core.stats.recompiled_for_number += 1;
                }
            }
            let last = cut.steps.last().map_or(0, |&s| trace.steps[s as usize].location);
            send(executor, store, &cut, variant, last)
        };

        // Values that live on are ready now, in the sense of promised.
        for (&(value, ..), slot) in cut.outputs.iter().zip(slots) {
            store.value_mut(value).state = State::Ready(slot);
        }
        core.recorder.forget(length);
    }

    pub fn flush(&self, reason: Reason) -> crate::error::Result<()> {
        if !self.is_open() {
            return Ok(());
        }
        let executor = self.executor()?;
        self.flush_core(&mut self.lock(), executor, reason);
        Ok(())
    }
}

/// Sends the call and returns the slot of each output.
fn send(
    executor: &Executor,
    store: &Store<Arc<Slot>>,
    cut: &Cut,
    variant: &Variant,
    recorded_at: LocationId,
) -> Vec<Arc<Slot>> {
    let slot = |i: usize| match &store.value(cut.inputs[i]).state {
        State::Ready(slot) => slot.clone(),
        State::Pending { .. } => unreachable!("inputs of a region are ready"),
    };
    let origin = Origin::new(variant.about.clone(), recorded_at);
    let mut results: SmallVec<[Option<Arc<Slot>>; 4]> =
        SmallVec::from_elem(None, variant.donors.len());
    let mut slots = Vec::with_capacity(cut.outputs.len());
    for (&(value, ..), source) in cut.outputs.iter().zip(&variant.sources) {
        slots.push(match *source {
            Source::Input(i) => {
                let slot = slot(i as usize);
                slot.shared.store(true, Relaxed);
                slot
            }
            Source::Result(r) => {
                let result = &mut results[r as usize];
                match result {
                    Some(slot) => slot.shared.store(true, Relaxed),
                    None => {
                        *result = Some(match variant.donors[r as usize] {
                            Some(donor) => executor.heir(&slot(donor as usize), &origin),
                            None => executor.promise(store.value(value).ty.bytes(), &origin),
                        });
                    }
                }
                result.clone().unwrap_or_else(|| unreachable!("it was just made"))
            }
        });
    }
    if !variant.donors.is_empty() {
        let (floats, ints) = values(&cut.numbers, &variant.open);
        executor.run(Call {
            program: variant.program.clone(),
            inputs: (0..cut.inputs.len()).map(slot).collect(),
            donate: variant.donate.clone(),
            floats,
            ints,
            outputs: results.into_iter().flatten().collect(),
            origin,
        });
    }
    slots
}

/// The open numbers, as `packed` orders them.
fn values(numbers: &[Number], open: &[bool]) -> (Vec<f64>, Vec<i64>) {
    let (mut floats, mut ints) = (Vec::new(), Vec::new());
    for (number, _) in numbers.iter().zip(open).filter(|(_, open)| **open) {
        match number {
            Number::Bool(_) | Number::Int(_) => ints.push(number.to_i64()),
            Number::Float(_) => floats.push(number.to_f64()),
            Number::Complex(..) => floats.extend([number.to_f64(), number.imag()]),
        }
    }
    (floats, ints)
}
