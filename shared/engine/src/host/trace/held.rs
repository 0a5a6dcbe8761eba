//! Pure: spans of traces that are not to be recorded, held for a while in case something goes wrong in them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Spans that are held, some hundred bytes each: at 50 sagas a second what happened in the last two minutes, at 1,000 in
/// the last six seconds. Most trouble shows within a second.
const SPANS: usize = 20_000;
/// Traces that are known to be of trouble. One that is forgotten is recorded again from its next trouble on.
const KEPT: usize = 10_000;

/// What is held.
#[derive(Debug)]
pub(super) struct Held<S> {
    traces: BTreeMap<u128, OfATrace<S>>,
    /// Each trace with the number of its first span, oldest first; also of traces that are gone.
    order: VecDeque<(u64, u128)>,
    count: usize,
    next: u64,
    kept: BTreeSet<u128>,
    kept_order: VecDeque<u128>,
}

#[derive(Debug)]
struct OfATrace<S> {
    first: u64,
    spans: Vec<S>,
}

impl<S> Default for Held<S> {
    fn default() -> Self {
        let (order, kept_order) = (VecDeque::new(), VecDeque::new());
        Self { traces: BTreeMap::new(), order, count: 0, next: 0, kept: BTreeSet::new(), kept_order }
    }
}

impl<S> Held<S> {
    /// Takes a span, and answers those that are to be recorded now. One that comes recorded was found to be of trouble
    /// by somebody else: what is held of its trace belongs to it, and all that comes.
    pub(super) fn take(&mut self, trace_id: u128, span: S, is_sampled: bool) -> Vec<S> {
        if is_sampled && self.traces.contains_key(&trace_id) {
            self.remember(trace_id);
        }
        if is_sampled || self.has_kept(trace_id) {
            let mut spans = self.release(trace_id);
            spans.push(span);
            return spans;
        }
        self.hold(trace_id, span);
        Vec::new()
    }

    /// From now on a trace is recorded; what is held of it is let go.
    pub(super) fn keep(&mut self, trace_id: u128) -> Vec<S> {
        self.remember(trace_id);
        self.release(trace_id)
    }

    /// Whether a trace is recorded though it was not to be.
    pub(super) fn has_kept(&self, trace_id: u128) -> bool {
        self.kept.contains(&trace_id)
    }

    /// Holds a span. When there are too many, the oldest trace goes, whole: half of it explains nothing.
    fn hold(&mut self, trace_id: u128, span: S) {
        let (number, order) = (self.next, &mut self.order);
        let of_the_trace = self.traces.entry(trace_id).or_insert_with(|| {
            order.push_back((number, trace_id));
            OfATrace { first: number, spans: Vec::new() }
        });
        of_the_trace.spans.push(span);
        (self.next, self.count) = (self.next + 1, self.count + 1);
        while self.count > SPANS || self.order.len() > SPANS {
            let Some((first, oldest)) = self.order.pop_front() else { return };
            if self.traces.get(&oldest).is_some_and(|of_the_trace| of_the_trace.first == first) {
                self.release(oldest);
            }
        }
    }

    fn release(&mut self, trace_id: u128) -> Vec<S> {
        let spans = self.traces.remove(&trace_id).map(|of_the_trace| of_the_trace.spans).unwrap_or_default();
        self.count -= spans.len();
        spans
    }

    fn remember(&mut self, trace_id: u128) {
        if self.kept.insert(trace_id) {
            self.kept_order.push_back(trace_id);
        }
        if self.kept_order.len() > KEPT
            && let Some(oldest) = self.kept_order.pop_front()
        {
            self.kept.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_of_a_trace_is_let_go_once_it_went_wrong() {
        let mut held = Held::default();
        for (trace_id, span) in [(1, "a"), (2, "b"), (1, "c")] {
            assert!(held.take(trace_id, span, false).is_empty());
        }
        assert_eq!(held.keep(1), ["a", "c"]);
        assert_eq!(held.take(1, "d", false), ["d"], "and so is what comes");
        assert!(held.has_kept(1) && !held.has_kept(2));
        assert_eq!(held.take(2, "e", true), ["b", "e"], "somebody else found it to be of trouble");
        assert_eq!(held.take(2, "f", false), ["f"]);
        assert_eq!(held.take(3, "g", true), ["g"]);
        assert!(!held.has_kept(3), "it was to be recorded from the start");
    }

    #[test]
    fn there_is_an_end_to_what_is_held_and_the_oldest_goes_first() {
        let mut held = Held::default();
        for trace_id in 1..=SPANS as u128 + 1 {
            assert!(held.take(trace_id, "a", false).is_empty());
            assert!(held.keep(1_000_000 + trace_id).is_empty());
        }
        assert_eq!((held.traces.len(), held.order.len(), held.count), (SPANS, SPANS, SPANS));
        assert_eq!((held.kept.len(), held.kept_order.len()), (KEPT, KEPT));
        assert!(held.keep(1).is_empty());
        assert_eq!(held.keep(2), ["a"]);
        assert!(!held.has_kept(1_000_001) && held.has_kept(1_000_000 + SPANS as u128));
    }

    /// The place in the line of spans that are gone is not that of those that came later.
    #[test]
    fn a_trace_that_was_let_go_and_comes_again_is_as_young_as_it_is() {
        let mut held = Held::default();
        assert!(held.take(1, "old", false).is_empty());
        held.release(1);
        assert!(held.take(2, "a", false).is_empty() && held.take(1, "young", false).is_empty());
        for trace_id in 3..=SPANS as u128 {
            held.take(trace_id, "a", false);
        }
        assert_eq!(held.release(1), ["young"]);
    }
}
