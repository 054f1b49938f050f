//! Where to cut a trace that no read ends.
//!
//! A training loop that reads nothing is one endless trace. It is cut where a repetition comes
//! round: iteration n + 1 then ends in the same place as iteration n and finds its program. The
//! place is an [`Anchor`], a run of steps that is met once a period. An anchor is recognised by
//! these steps alone (content-defined chunking, as deduplicating backup does it), so it also
//! holds for iterations that differ elsewhere: a loop with an evaluation every tenth time, a loop
//! left and entered again.
//!
//! Only the templates of steps are looked at, so every rank and every run cuts alike. Looking for
//! a period costs nothing until a trace is [`CHECKPOINTS`] long, and then linear time.

use std::ops::Range;

use ahash::AHashMap;

use crate::trace::store::State;
use crate::trace::{Store, TemplateId, Trace, ValueId};

/// Pending steps at which a period is looked for. Geometric, so that all the looking together
/// costs a constant a step.
const CHECKPOINTS: [usize; 8] = [1_536, 2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384];

/// Steps that must have been met again, one period earlier, before a short period is believed.
/// More than the equal layers of common models have, which are no loop to be cut.
const EVIDENCE: usize = 1_024;

/// Steps that a region has at least: short iterations share one.
const REGION: usize = 256;

/// Steps by which an anchor is recognised.
const GRAM: usize = 32;

/// Anchors kept; the oldest goes.
const ANCHORS: usize = 32;

/// Steps before a cut, and how often the cut is made.
#[derive(Debug)]
struct Anchor {
    gram: Box<[TemplateId]>,
    /// Steps from one occurrence to the next, while the loop goes on.
    period: u64,
    /// Iterations that share a region.
    every: u32,
    /// Where it was met last, and how many times in a row at the distance of a period.
    met: u64,
    row: u32,
}

/// The anchors found so far, and the steps needed to recognise one.
#[derive(Debug, Default)]
pub struct Repetition {
    anchors: Vec<Anchor>,
    /// The last steps, across flushes; at least `GRAM` of them once there were as many.
    recent: Vec<TemplateId>,
    /// Steps seen.
    position: u64,
}

impl Repetition {
    /// Hears of the step just recorded; whether to cut after it.
    pub fn cuts_after(&mut self, template: TemplateId) -> bool {
        if self.recent.len() == GRAM * 64 {
            self.recent.drain(..GRAM * 63);
        }
        self.recent.push(template);
        self.position += 1;
        let mut cut = false;
        for anchor in &mut self.anchors {
            if anchor.gram.last() == Some(&template) && self.recent.ends_with(&anchor.gram) {
                cut |= anchor.meet(self.position);
            }
        }
        cut
    }

    /// Looks for a period in a trace of a length worth the look. Where one is found, returns the
    /// lengths of the prefixes of `trace` that end in its anchor; from now on `cuts_after` tells.
    pub fn find<B>(&mut self, trace: &Trace, store: &Store<B>) -> Vec<usize> {
        if CHECKPOINTS.binary_search(&trace.steps.len()).is_err() {
            return Vec::new();
        }
        let ids: Vec<TemplateId> = trace.steps.iter().map(|s| s.template.id).collect();
        let Some(period) = period(&ids) else { return Vec::new() };
        let Some(at) = phase(&ids, period, trace, store) else { return Vec::new() };
        let gram: Box<[TemplateId]> = ids[at - GRAM..at].into();
        if self.anchors.iter().any(|a| a.gram == gram) {
            // It comes round more rarely than it did: the loop is a longer one now.
            return Vec::new();
        }
        let every = REGION.div_ceil(period) as u32;
        let mut anchor = Anchor { gram, period: period as u64, every, met: 0, row: 0 };
        let start = self.position - ids.len() as u64;
        let mut cuts = Vec::new();
        for end in GRAM..=ids.len() {
            if ids[..end].ends_with(&anchor.gram) && anchor.meet(start + end as u64) {
                cuts.push(end);
            }
        }
        if self.anchors.len() == ANCHORS {
            self.anchors.remove(0);
        }
        self.anchors.push(anchor);
        cuts
    }
}

impl Anchor {
    /// Notes an occurrence that ends at `position`; whether to cut there. Counted from the first
    /// of a row, so that a loop is cut alike each time it is entered.
    fn meet(&mut self, position: u64) -> bool {
        let goes_on = self.met != 0 && position - self.met == self.period;
        self.row = if goes_on { self.row + 1 } else { 0 };
        self.met = position;
        self.row.is_multiple_of(self.every)
    }
}

/// The shortest period of the end of `ids` that enough of it bears out.
fn period(ids: &[TemplateId]) -> Option<usize> {
    let z = matches_from_the_end(ids);
    (1..ids.len()).find(|&p| z[p] >= p.max(EVIDENCE))
}

/// For each distance: how many steps, counted back from the last, equal the one at that distance
/// before them. (The Z function of the reversed sequence; Gusfield, "Algorithms on Strings, Trees
/// and Sequences", 1.3.)
fn matches_from_the_end(ids: &[TemplateId]) -> Vec<usize> {
    let n = ids.len();
    let at = |i: usize| ids[n - 1 - i];
    let mut z = vec![0; n];
    let (mut left, mut right) = (0, 0);
    for i in 1..n {
        let mut length = if i < right { z[i - left].min(right - i) } else { 0 };
        while i + length < n && at(length) == at(i + length) {
            length += 1;
        }
        if i + length > right {
            (left, right) = (i, i + length);
        }
        z[i] = length;
    }
    z
}

/// The best place for a cut within a period: where the fewest bytes are made before it and used
/// after it, among those that the steps before them tell from all others of the period.
fn phase<B>(ids: &[TemplateId], period: usize, trace: &Trace, store: &Store<B>) -> Option<usize> {
    // The last period but one: uses of what it makes have been recorded.
    let window = ids.len() - 2 * period..ids.len() - period;
    let window = window.start.max(GRAM)..window.end.max(GRAM);
    let mut met: AHashMap<&[TemplateId], u32> = AHashMap::new();
    for at in window.clone() {
        *met.entry(&ids[at - GRAM..at]).or_default() += 1;
    }
    let crossing = crossing_bytes(window.clone(), trace, store);
    window
        .clone()
        .filter(|&at| met[&ids[at - GRAM..at]] == 1)
        .min_by_key(|&at| (crossing[at - window.start], at))
}

/// For each place in `window`: bytes of the values that a cut there would have to hand on.
fn crossing_bytes<B>(window: Range<usize>, trace: &Trace, store: &Store<B>) -> Vec<u64> {
    let mut last_use: AHashMap<ValueId, usize> = AHashMap::new();
    for (at, step) in trace.steps.iter().enumerate() {
        for &input in &step.inputs {
            last_use.insert(input, at);
        }
    }
    // Made by step `made` and used last by step `used`: a cut after `made` steps or fewer, or
    // after more than `used`, doesn't part them.
    let mut change = vec![0i128; window.len() + 1];
    for (&value, &used) in &last_use {
        let value = store.value(value);
        let made = match value.state {
            State::Pending { step, .. } => step as usize,
            State::Ready(_) => continue,
        };
        let (from, to) = ((made + 1).max(window.start), (used + 1).min(window.end));
        if from < to {
            change[from - window.start] += i128::from(value.ty.bytes());
            change[to - window.start] -= i128::from(value.ty.bytes());
        }
    }
    let mut bytes = 0;
    change[..window.len()]
        .iter()
        .map(|change| {
            bytes += change;
            bytes as u64
        })
        .collect()
}

/// Where to cut a trace that grew to its limit and shows no period: after the steps of its second
/// half whose hash is the least. A loop too long to be seen is so cut in the same places each
/// time round.
pub fn landmark(trace: &Trace) -> usize {
    let n = trace.steps.len();
    if n < 2 * GRAM {
        return n;
    }
    let hasher = crate::ir::graph::seeded();
    let ids: Vec<TemplateId> = trace.steps.iter().map(|s| s.template.id).collect();
    (n.div_ceil(2).max(GRAM)..=n)
        .min_by_key(|&at| (hasher.hash_one(&ids[at - GRAM..at]), at))
        .unwrap_or(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Positions of the cuts that a known anchor makes in a stream.
    fn cuts(repetition: &mut Repetition, stream: impl IntoIterator<Item = u32>) -> Vec<u64> {
        let mut cuts = Vec::new();
        for id in stream {
            if repetition.cuts_after(id) {
                cuts.push(repetition.position);
            }
        }
        cuts
    }

    fn with_anchor(body: &[u32], every: u32) -> Repetition {
        let period = body.len() as u64;
        let gram: Vec<u32> = body.iter().copied().cycle().take(GRAM * body.len()).collect();
        let gram = gram[gram.len() - GRAM..].into();
        let anchor = Anchor { gram, period, every, met: 0, row: 0 };
        Repetition { anchors: vec![anchor], ..Repetition::default() }
    }

    #[test]
    fn the_shortest_borne_out_period_is_found() {
        let looped =
            |body: &[u32], n: usize| -> Vec<u32> { body.iter().copied().cycle().take(n).collect() };
        assert_eq!(period(&looped(&[1, 2, 3], 2_048)), Some(3));
        let long: Vec<u32> = (0..1_000).collect();
        assert_eq!(period(&looped(&long, 2_048)), Some(1_000));
        // Seen once and a half.
        assert_eq!(period(&looped(&long, 1_500)), None);
        // A few layers in a longer program.
        let mut layers: Vec<u32> = (0..1_000).collect();
        layers.extend(looped(&[7, 8, 9], 600));
        assert_eq!(period(&layers), None);
        // An inner loop of 4 within a body of 600: the last 1,024 steps repeat at 600 only.
        let mut body: Vec<u32> = (0..400).collect();
        body.extend(looped(&[1_000, 1_001, 1_002, 1_003], 200));
        assert_eq!(period(&looped(&body, 3_072)), Some(600));
    }

    #[test]
    fn matches_count_back_from_the_end() {
        assert_eq!(matches_from_the_end(&[1, 2, 1, 2, 1]), [0, 0, 3, 0, 1]);
    }

    #[test]
    fn an_anchor_cuts_once_a_period_wherever_the_loop_starts() {
        let body: Vec<u32> = (0..600).collect();
        let mut repetition = with_anchor(&body, 1);
        let turns = |n: usize| body.iter().copied().cycle().take(n * 600);
        assert_eq!(cuts(&mut repetition, turns(3)), [600, 1_200, 1_800]);
        // Something else in between, then the loop again.
        assert_eq!(cuts(&mut repetition, (0..50).map(|_| 9_999)), []);
        assert_eq!(cuts(&mut repetition, turns(2)), [2_450, 3_050]);
    }

    #[test]
    fn short_iterations_share_a_region_counted_from_the_first() {
        let mut repetition = with_anchor(&[1, 2], 4);
        let turns = |n: usize| [1, 2].into_iter().cycle().take(n * 2);
        // The first 32 steps are needed to know the anchor.
        assert_eq!(cuts(&mut repetition, turns(30)), [32, 40, 48, 56]);
        assert_eq!(cuts(&mut repetition, [9, 9, 9]), []);
        assert_eq!(cuts(&mut repetition, turns(30)), [63 + 32, 63 + 40, 63 + 48, 63 + 56]);
    }
}
