//! Pure: which traces are recorded although they were not to be, as something went wrong in them: asked at every span, so
//! that it waits for nobody.

use std::sync::atomic::{AtomicU64, Ordering};

use super::span_buffer::mixed;

/// Traces that are known, at most. One takes the slot of another that falls on it; what is forgotten is recorded again
/// when something else goes wrong in it, and what was stored and sent of it says by itself that it is.
const TRACES: usize = 1 << TRACE_BITS;
const TRACE_BITS: u32 = 14;

/// The traces that are known, each by a mark of its id.
#[derive(Debug)]
pub(super) struct TailSampled(Box<[AtomicU64]>);

impl Default for TailSampled {
    fn default() -> Self {
        Self((0..TRACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl TailSampled {
    /// From now on this trace is recorded.
    pub(super) fn insert(&self, trace_id: u128) {
        let (slot, mark) = self.slot(trace_id);
        slot.store(mark, Ordering::Relaxed);
    }

    /// Whether this trace is recorded. Of 2^49 others one might be taken for it, and recorded too.
    pub(super) fn contains(&self, trace_id: u128) -> bool {
        let (slot, mark) = self.slot(trace_id);
        slot.load(Ordering::Relaxed) == mark
    }

    /// Where a trace's mark stands, and the mark, which is not 0.
    fn slot(&self, trace_id: u128) -> (&AtomicU64, u64) {
        let mixed = mixed(trace_id);
        let slot = usize::try_from(mixed >> (u64::BITS - TRACE_BITS)).unwrap_or_default();
        (&self.0[slot], mixed | 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_known_from_when_it_is_kept() {
        let traces = TailSampled::default();
        assert!(!traces.contains(1) && !traces.contains(0));
        traces.insert(1);
        assert!(traces.contains(1) && !traces.contains(2) && !traces.contains(1 << 64));
    }

    #[test]
    fn what_is_known_is_bounded_and_the_latest_is_known_whatever_was_before() {
        let traces = TailSampled::default();
        for trace_id in 1..=10 * TRACES as u128 {
            traces.insert(trace_id);
            assert!(traces.contains(trace_id));
        }
        let known = (1..=10 * TRACES as u128).filter(|trace_id| traces.contains(*trace_id)).count();
        assert!((TRACES / 2..=TRACES).contains(&known), "{known}");
        let strangers = (1..=TRACES as u128).filter(|number| traces.contains(*number << 72)).count();
        assert_eq!(strangers, 0);
    }
}
