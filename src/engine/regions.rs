//! The programs of the regions met so far.

use std::collections::HashMap;
use std::sync::Arc;

use ahash::RandomState;

use super::compile::Pending;
use super::executor::{Executor, Slot};
use crate::ir::dtype::Category;
use crate::ir::{Number, TensorType};
use crate::ops::registry;
use crate::region::{self, Cut, Source};
use crate::rewrite;
use crate::stablehlo;
use crate::trace::{Store, Trace};

/// Programs kept. Each takes about three memory mappings, of which Linux gives a process 65,530.
const PROGRAMS: usize = 8_192;

/// How a cut was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Met {
    Again,
    New,
    /// The region is known, but no program of it is for these numbers.
    OtherNumbers,
}

/// Programs by region, the least recently used of which are dropped.
#[derive(Default)]
pub(super) struct Regions {
    /// By the key of the cut: a program for one or more choices of constants.
    known: HashMap<Box<[u64]>, Vec<Variant>, RandomState>,
    programs: usize,
    /// Counts the lookups.
    clock: u64,
}

impl Regions {
    /// The program for a cut, and whether it was there. If none fits, `make` makes one, knowing
    /// the region's earlier ones.
    pub fn find(&mut self, cut: &Cut, make: impl FnOnce(&[Variant]) -> Variant) -> (&Variant, Met) {
        self.clock += 1;
        if self.programs >= PROGRAMS {
            self.forget_half();
        }
        let key = cut.key.as_slice();
        let mut met = Met::OtherNumbers;
        if !self.known.contains_key(key) {
            self.known.insert(key.into(), Vec::new());
            met = Met::New;
        }
        let Some(variants) = self.known.get_mut(key) else { unreachable!("it was just put there") };
        let fits = variants.iter().position(|v| v.accepts(&cut.numbers));
        let i = fits.unwrap_or_else(|| {
            variants.push(make(variants));
            self.programs += 1;
            variants.len() - 1
        });
        let variant = &mut variants[i];
        variant.used = self.clock;
        (variant, if fits.is_some() { Met::Again } else { met })
    }

    fn forget_half(&mut self) {
        let mut used: Vec<u64> = self.known.values().flatten().map(|v| v.used).collect();
        let middle = used.len() / 2;
        let (_, &mut median, _) = used.select_nth_unstable(middle);
        for variants in self.known.values_mut() {
            variants.retain(|v| v.used > median);
        }
        self.known.retain(|_, variants| !variants.is_empty());
        self.programs = self.known.values().map(Vec::len).sum();
    }
}

/// A program in which some numbers are constants and the rest are open.
pub(super) struct Variant {
    /// Numbers that are passed at run time.
    pub open: Vec<bool>,
    /// The values of all numbers when the variant was made; binding where not open.
    numbers: Vec<Number>,
    pub program: Pending,
    pub sources: Vec<Source>,
    pub donate: Arc<[bool]>,
    /// For each result of the program (a region may only pass its inputs on, and have none): the
    /// input whose buffer it takes over.
    pub donors: Vec<Option<u32>>,
    /// When it was found last, by the clock of `Regions`.
    used: u64,
    pub about: Arc<dyn Fn() -> String + Send + Sync>,
}

impl Variant {
    fn accepts(&self, numbers: &[Number]) -> bool {
        let known = self.numbers.iter().zip(numbers);
        known.zip(&self.open).all(|((a, b), &open)| open || a == b)
    }

    /// Builds the program of a cut and starts compiling it. Numbers that differ from what an earlier
    /// variant had stay open: the second value of a learning rate is the last that compiles. So
    /// do numbers that a program computed, such as Adam's bias corrections: they will change.
    pub fn new(
        executor: &Executor,
        trace: &Trace,
        cut: &Cut,
        store: &Store<Arc<Slot>>,
        earlier: &[Variant],
    ) -> Variant {
        let mut open: Vec<bool> =
            cut.runtime.iter().zip(&cut.numbers).map(|(&r, n)| r || !n.is_plain()).collect();
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
            used: 0,
            open,
            numbers: cut.numbers.clone(),
            program: compiled,
            sources,
            donate,
            donors,
            about,
        }
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
