//! Pure: ring buffer of spans that were not sampled, in case their trace fails.
//!
//! Spans come by the thousand, and nearly all are overwritten. Each points at the previous span of its hash bucket, so
//! that the spans of one trace are found quickly.

/// Capacity in spans of some hundred bytes: two minutes at 50 sagas per second, six seconds at 1,000. Most failures
/// show within a second.
const SPANS: usize = 20_000;
const BUCKETS: usize = 1 << BUCKET_BITS;
const BUCKET_BITS: u32 = 15;

/// Ring buffer of spans, indexed by trace.
#[derive(Debug)]
pub(super) struct SpanBuffer<S> {
    /// Slots of the ring. The span of number N is in slot N modulo their count.
    slots: Vec<Slot<S>>,
    /// Number of the newest span of each bucket; 0 for an empty bucket.
    newest: Vec<u64>,
    /// Number of the newest span.
    last: u64,
}

#[derive(Debug)]
struct Slot<S> {
    trace_id: u128,
    /// Number of the previous span of the bucket; 0 for the first.
    before: u64,
    /// Buffered span; `None` once taken.
    span: Option<S>,
}

impl<S> Default for SpanBuffer<S> {
    fn default() -> Self {
        Self { slots: Vec::with_capacity(SPANS), newest: vec![0; BUCKETS], last: 0 }
    }
}

impl<S> SpanBuffer<S> {
    /// Adds a span, and returns the oldest when the buffer is full.
    pub(super) fn push(&mut self, trace_id: u128, span: S) -> Option<S> {
        self.last += 1;
        let before = std::mem::replace(&mut self.newest[bucket(trace_id)], self.last);
        let slot = Slot { trace_id, before, span: Some(span) };
        match self.slots.get_mut(index(self.last)) {
            Some(oldest) => std::mem::replace(oldest, slot).span,
            None => {
                self.slots.push(slot);
                None
            }
        }
    }

    /// Removes the spans of a trace, and returns them in their order.
    pub(super) fn take_trace(&mut self, trace_id: u128) -> Vec<S> {
        let bucket = bucket(trace_id);
        let (mut spans, mut number, mut next) = (Vec::new(), self.newest[bucket], None);
        // Older spans are overwritten, and so are all that they point at.
        while number > 0 && number + SPANS as u64 > self.last {
            let slot = &mut self.slots[index(number)];
            let before = slot.before;
            if slot.trace_id == trace_id {
                spans.extend(slot.span.take());
                match next {
                    Some(next) => self.slots[index(next)].before = before,
                    None => self.newest[bucket] = before,
                }
            } else {
                next = Some(number);
            }
            number = before;
        }
        spans.reverse();
        spans
    }
}

fn index(number: u64) -> usize {
    usize::try_from((number - 1) % SPANS as u64).unwrap_or_default()
}

fn bucket(trace_id: u128) -> usize {
    usize::try_from(mixed(trace_id) >> (u64::BITS - BUCKET_BITS)).unwrap_or_default()
}

/// Mixes the bits of a trace id, so that consecutive ids fall into different buckets.
pub(super) const fn mixed(trace_id: u128) -> u64 {
    // 2^64 by the golden ratio, as in Fibonacci hashing.
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let (upper, lower) = ((trace_id >> 64) as u64, trace_id as u64);
    (upper.wrapping_mul(FACTOR).rotate_left(32) ^ lower).wrapping_mul(FACTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_trace_are_taken_once_and_in_order() {
        let mut buffer = SpanBuffer::default();
        for (trace_id, span) in [(1, "a"), (2, "b"), (1, "c"), (1 << 64, "d"), (1, "e")] {
            assert_eq!(buffer.push(trace_id, span), None);
        }
        assert_eq!(buffer.take_trace(1), ["a", "c", "e"]);
        assert_eq!(buffer.take_trace(1), [""; 0], "each once");
        assert_eq!(buffer.newest[bucket(1)], 0, "taken spans leave the chain of their bucket");
        buffer.push(1, "f");
        assert_eq!(
            (buffer.take_trace(1), buffer.take_trace(2), buffer.take_trace(1 << 64)),
            (vec!["f"], vec!["b"], vec!["d"])
        );
    }

    #[test]
    fn full_buffer_returns_oldest_span() {
        let mut buffer = SpanBuffer::default();
        let (count, rounds) = (SPANS as u128, 3);
        for number in 1..=rounds * count {
            let gone = (number > count).then(|| number - count);
            assert_eq!(buffer.push(number, number), gone);
        }
        assert_eq!((buffer.slots.len(), buffer.slots.capacity()), (SPANS, SPANS));
        let oldest = (rounds - 1) * count;
        assert_eq!(buffer.take_trace(oldest), [0; 0]);
        for number in [oldest + 1, oldest + 2, rounds * count] {
            assert_eq!(buffer.take_trace(number), [number]);
        }
    }

    /// Buckets hold spans of many traces here.
    #[test]
    fn traces_in_one_bucket_keep_their_own_spans() {
        let mut buffer = SpanBuffer::default();
        let traces = || (1..=7_000_u128).map(|trace| trace << 40 | trace);
        for part in 0..3 {
            for trace in traces() {
                buffer.push(trace, (trace, part));
            }
        }
        // 21,000 spans were added, of which the first 1,000 are overwritten.
        for (slot, trace) in traces().enumerate() {
            let parts = if slot < 1_000 { 1..3 } else { 0..3 };
            assert_eq!(
                buffer.take_trace(trace),
                parts.map(|part| (trace, part)).collect::<Vec<_>>(),
                "{slot}"
            );
        }
    }

    #[test]
    fn ids_of_every_pattern_spread_over_buckets() {
        let spread = |id: fn(u128) -> u128| {
            let used: std::collections::BTreeSet<_> =
                (1..=BUCKETS as u128).map(|number| bucket(id(number))).collect();
            used.len()
        };
        // Random ids would use 1 - 1/e of them.
        for used in
            [spread(|number| number), spread(|number| number << 64), spread(|number| number << 80 | number)]
        {
            assert!(used > BUCKETS / 2, "{used}");
        }
    }
}
