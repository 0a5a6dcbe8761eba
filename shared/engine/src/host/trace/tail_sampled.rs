//! Pure: lock-free set of the traces that are recorded because of a failure.

use std::sync::atomic::{AtomicU64, Ordering};

use super::span_buffer::mixed;

/// Capacity of the set. A colliding trace replaces another. A forgotten trace is added again at its next failure; its
/// stored and sent contexts say that it is recorded.
const TRACES: usize = 1 << TRACE_BITS;
const TRACE_BITS: u32 = 14;

/// Set of recorded traces, each as a fingerprint of its id.
#[derive(Debug)]
pub(super) struct TailSampled(Box<[AtomicU64]>);

impl Default for TailSampled {
    fn default() -> Self {
        Self((0..TRACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl TailSampled {
    /// Adds a trace to the set.
    pub(super) fn insert(&self, trace_id: u128) {
        let (slot, fingerprint) = self.slot(trace_id);
        slot.store(fingerprint, Ordering::Relaxed);
    }

    /// True if the set has this trace. One of 2^49 other traces might be mistaken for it.
    pub(super) fn contains(&self, trace_id: u128) -> bool {
        let (slot, fingerprint) = self.slot(trace_id);
        slot.load(Ordering::Relaxed) == fingerprint
    }

    /// Returns the slot of a trace, and its fingerprint, which is not 0.
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
    fn set_contains_trace_after_insert() {
        let traces = TailSampled::default();
        assert!(!traces.contains(1) && !traces.contains(0));
        traces.insert(1);
        assert!(traces.contains(1) && !traces.contains(2) && !traces.contains(1 << 64));
    }

    #[test]
    fn set_is_bounded_and_contains_latest_trace() {
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
