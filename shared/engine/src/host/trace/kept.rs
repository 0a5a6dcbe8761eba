//! Pure: which traces are recorded although they were not to be, as something went wrong in them: asked at every span, so
//! that it waits for nobody.

use std::sync::atomic::{AtomicU64, Ordering};

use super::held::mixed;

/// Traces that are known, at most. One takes the place of another that falls on it; what is forgotten is recorded again
/// when something else goes wrong in it, and what was stored and sent of it says by itself that it is.
const TRACES: usize = 1 << TRACE_BITS;
const TRACE_BITS: u32 = 14;

/// The traces that are known, each by a mark of its id.
#[derive(Debug)]
pub(super) struct KeptTraces(Box<[AtomicU64]>);

impl Default for KeptTraces {
    fn default() -> Self {
        Self((0..TRACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl KeptTraces {
    /// From now on this trace is recorded.
    pub(super) fn keep(&self, trace_id: u128) {
        let (place, mark) = self.place(trace_id);
        place.store(mark, Ordering::Relaxed);
    }

    /// Whether this trace is recorded. Of 2^49 others one might be taken for it, and recorded too.
    pub(super) fn has(&self, trace_id: u128) -> bool {
        let (place, mark) = self.place(trace_id);
        place.load(Ordering::Relaxed) == mark
    }

    /// Where a trace's mark stands, and the mark, which is not 0.
    fn place(&self, trace_id: u128) -> (&AtomicU64, u64) {
        let mixed = mixed(trace_id);
        let place = usize::try_from(mixed >> (u64::BITS - TRACE_BITS)).unwrap_or_default();
        (&self.0[place], mixed | 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_known_from_when_it_is_kept() {
        let kept = KeptTraces::default();
        assert!(!kept.has(1) && !kept.has(0));
        kept.keep(1);
        assert!(kept.has(1) && !kept.has(2) && !kept.has(1 << 64));
    }

    #[test]
    fn what_is_known_is_bounded_and_the_latest_is_known_whatever_was_before() {
        let kept = KeptTraces::default();
        for trace_id in 1..=10 * TRACES as u128 {
            kept.keep(trace_id);
            assert!(kept.has(trace_id));
        }
        let known = (1..=10 * TRACES as u128).filter(|trace_id| kept.has(*trace_id)).count();
        assert!((TRACES / 2..=TRACES).contains(&known), "{known}");
        let strangers = (1..=TRACES as u128).filter(|number| kept.has(*number << 72)).count();
        assert_eq!(strangers, 0);
    }
}
