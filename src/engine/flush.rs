//! Flushing: cut the trace, find or make its program, send the call.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use smallvec::SmallVec;

use super::executor::{Call, Executor, Origin, Pending, Slot};
use super::{Core, Engine};
use crate::ir::dtype::Category;
use crate::ir::{Number, TensorType};
use crate::ops::registry;
use crate::policy::Reason;
use crate::region::{self, Cut, Source};
use crate::rewrite;
use crate::stablehlo;
use crate::trace::store::State;
use crate::trace::{Store, Trace};

/// A region that was met before: its program for one or more choices of constants.
#[derive(Default)]
pub(super) struct Region {
    variants: Vec<Variant>,
}

/// A program in which some numbers are constants and the rest are open.
struct Variant {
    /// Numbers that are passed at run time.
    open: Vec<bool>,
    /// The values of all numbers when the variant was made; binding where not open.
    numbers: Vec<Number>,
    program: Pending,
    sources: Vec<Source>,
    donate: Arc<[bool]>,
    /// For each result of the program (a region may only pass its inputs on, and have none): the
    /// input whose buffer it takes over.
    donors: Vec<Option<u32>>,
    about: Arc<dyn Fn() -> String + Send + Sync>,
}

impl Variant {
    fn accepts(&self, numbers: &[Number]) -> bool {
        let known = self.numbers.iter().zip(numbers);
        known.zip(&self.open).all(|((a, b), &open)| open || a == b)
    }
}

impl Engine {
    /// Sends everything pending to the executor.
    pub(super) fn flush_core(&self, core: &mut Core, executor: &Executor, reason: Reason) {
        if core.recorder.trace.steps.is_empty() {
            return;
        }
        let trace = std::mem::take(&mut core.recorder.trace);
        *core.stats.flushes.entry(reason).or_default() += 1;
        let store = &mut core.recorder.store;
        let cut = region::cut(&trace, store, |slot| !slot.shared.load(Relaxed));
        core.stats.ops_dead += (trace.steps.len() - cut.steps.len()) as u64;

        let slots = if cut.outputs.is_empty() {
            Vec::new()
        } else {
            let region = match core.regions.entry(cut.key.as_slice().into()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(Region::default()),
            };
            let variant = match region.variants.iter().position(|v| v.accepts(&cut.numbers)) {
                Some(i) => {
                    core.stats.cache_hits += 1;
                    i
                }
                None => {
                    core.stats.regions_compiled += 1;
                    core.stats.recompiled_for_number += u64::from(!region.variants.is_empty());
                    let variant = make(executor, &trace, &cut, store, &region.variants);
                    region.variants.push(variant);
                    region.variants.len() - 1
                }
            };
            let recorded_at = cut.steps.last().map(|&s| trace.steps[s as usize].location);
            let at = recorded_at.and_then(|id| self.location(id)).map(|l| l.to_string());
            send(executor, store, &cut, &region.variants[variant], at)
        };

        // Values that live on are ready now, in the sense of promised.
        for (&(value, ..), slot) in cut.outputs.iter().zip(slots) {
            store.value_mut(value).state = State::Ready(slot);
        }
        for step in &trace.steps {
            for &value in step.inputs.iter().chain(&step.outputs) {
                store.settle(value);
            }
        }
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

/// Builds the program of a cut and starts compiling it. Numbers that differ from what an earlier
/// variant had stay open: the second value of a learning rate is the last that compiles.
fn make(
    executor: &Executor,
    trace: &Trace,
    cut: &Cut,
    store: &Store<Arc<Slot>>,
    earlier: &[Variant],
) -> Variant {
    let mut open = cut.runtime.clone();
    if let Some(last) = earlier.last() {
        for (i, open) in open.iter_mut().enumerate() {
            *open |= last.open[i] || last.numbers[i] != cut.numbers[i];
        }
    }
    let inputs: Vec<TensorType> =
        cut.inputs.iter().map(|&v| store.value(v).ty.tensor_type().clone()).collect();
    let program = region::build(trace, cut, inputs, &open);
    let sources = program.sources.clone();
    let mut donors = vec![None; program.graph.outputs.len()];
    for (input, result) in program.donations.iter().enumerate() {
        if let Some(result) = result {
            donors[*result as usize] = Some(input as u32);
        }
    }
    let donate: Arc<[bool]> = program.donations.iter().map(Option::is_some).collect();
    let (float_slots, int_slots) = packed(&cut.numbers, &open);
    let compiled = executor.compile(cut.steps.len() == 1, move || {
        let graph = rewrite::optimise(program.graph);
        Ok(stablehlo::module(
            &graph,
            &stablehlo::Params {
                inputs: &program.inputs,
                aliases: &program.donations,
                float_slots: &float_slots,
                int_slots: &int_slots,
            },
        ))
    });
    let about = about(trace, cut);
    Variant {
        open,
        numbers: cut.numbers.clone(),
        program: compiled,
        sources,
        donate,
        donors,
        about,
    }
}

/// Slots of the open numbers that travel among the floats (a complex one takes two places) and of
/// those among the integers.
fn packed(numbers: &[Number], open: &[bool]) -> (Vec<u32>, Vec<u32>) {
    let (mut floats, mut ints) = (Vec::new(), Vec::new());
    for (slot, (number, _)) in numbers.iter().zip(open).enumerate().filter(|(_, (_, o))| **o) {
        match number.category() {
            Category::Bool | Category::Int => ints.push(slot as u32),
            Category::Float => floats.push(slot as u32),
            Category::Complex => floats.extend([slot as u32; 2]),
        }
    }
    (floats, ints)
}

/// A description of a region, made when it is asked for.
fn about(trace: &Trace, cut: &Cut) -> Arc<dyn Fn() -> String + Send + Sync> {
    let templates: Vec<_> =
        cut.steps.iter().map(|&s| trace.steps[s as usize].template.clone()).collect();
    Arc::new(move || {
        let one = |t: &crate::trace::Template| {
            let inputs: Vec<String> = t
                .graph
                .nodes()
                .iter()
                .filter(|n| matches!(n.prim, crate::ir::Prim::Input(_)))
                .map(|n| n.types[0].to_string())
                .collect();
            let made: Vec<String> =
                t.graph.outputs.iter().map(|&v| t.graph.ty(v).to_string()).collect();
            let op = registry().get(t.op).name;
            format!("{op}({}) -> {}", inputs.join(", "), made.join(", "))
        };
        match templates.as_slice() {
            [t] => one(t),
            many => {
                let shown: Vec<String> = many.iter().rev().take(4).rev().map(|t| one(t)).collect();
                format!("a region of {} ops that ends in {}", many.len(), shown.join(", "))
            }
        }
    })
}

/// Sends the call and returns the slot of each output.
fn send(
    executor: &Executor,
    store: &Store<Arc<Slot>>,
    cut: &Cut,
    variant: &Variant,
    recorded_at: Option<String>,
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
