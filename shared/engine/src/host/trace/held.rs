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
    spans: BTreeMap<u128, Vec<S>>,
    /// The trace of each span that was held, oldest first; those of spans that are gone included.
    order: VecDeque<u128>,
    kept: BTreeSet<u128>,
    kept_order: VecDeque<u128>,
}

impl<S> Default for Held<S> {
    fn default() -> Self {
        let (order, kept_order) = (VecDeque::new(), VecDeque::new());
        Self { spans: BTreeMap::new(), order, kept: BTreeSet::new(), kept_order }
    }
}

impl<S> Held<S> {
    /// Holds a span of a trace, in the place of the oldest when there are too many.
    pub(super) fn hold(&mut self, trace_id: u128, span: S) {
        self.spans.entry(trace_id).or_default().push(span);
        self.order.push_back(trace_id);
        if self.order.len() > SPANS
            && let Some(oldest) = self.order.pop_front()
        {
            // Of one trace all go at once: half of it explains nothing.
            self.spans.remove(&oldest);
        }
    }

    /// Lets go of what is held of a trace.
    pub(super) fn release(&mut self, trace_id: u128) -> Vec<S> {
        self.spans.remove(&trace_id).unwrap_or_default()
    }

    /// From now on a trace is recorded; what is held of it is let go.
    pub(super) fn keep(&mut self, trace_id: u128) -> Vec<S> {
        if self.kept.insert(trace_id) {
            self.kept_order.push_back(trace_id);
        }
        if self.kept_order.len() > KEPT
            && let Some(oldest) = self.kept_order.pop_front()
        {
            self.kept.remove(&oldest);
        }
        self.release(trace_id)
    }

    /// Whether a trace is recorded though it was not to be.
    pub(super) fn has_kept(&self, trace_id: u128) -> bool {
        self.kept.contains(&trace_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_of_a_trace_is_let_go_once_it_is_of_trouble() {
        let mut held = Held::default();
        for (trace_id, span) in [(1, "a"), (2, "b"), (1, "c")] {
            held.hold(trace_id, span);
        }
        assert_eq!(held.keep(1), ["a", "c"]);
        assert!(held.has_kept(1) && !held.has_kept(2));
        assert!(held.keep(1).is_empty());
        assert_eq!(held.release(2), ["b"]);
    }

    #[test]
    fn there_is_an_end_to_what_is_held_and_the_oldest_goes_first() {
        let mut held = Held::default();
        for trace_id in 1..=SPANS as u128 + 1 {
            held.hold(trace_id, "a");
            held.keep(1_000_000 + trace_id);
        }
        assert_eq!((held.spans.len(), held.order.len()), (SPANS, SPANS));
        assert_eq!((held.kept.len(), held.kept_order.len()), (KEPT, KEPT));
        assert!(held.release(1).is_empty());
        assert_eq!(held.release(2), ["a"]);
        assert!(!held.has_kept(1_000_001) && held.has_kept(1_000_000 + SPANS as u128));
    }
}
