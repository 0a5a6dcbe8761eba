//! Shell: a bounded queue of traces that others must learn of.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// Capacity. The oldest traces leave first: their spans are overwritten in the buffers of others by then.
const TRACES: usize = 16_384;

/// Queue of trace ids.
#[derive(Debug, Default)]
pub struct TraceQueue(Mutex<VecDeque<u128>>);

impl TraceQueue {
    /// Adds a trace.
    pub fn push(&self, trace_id: u128) {
        let mut traces = self.0.lock();
        traces.push_back(trace_id);
        if traces.len() > TRACES {
            traces.pop_front();
        }
    }

    /// Takes up to `count` traces, the oldest first.
    pub fn take(&self, count: usize) -> Vec<u128> {
        let mut traces = self.0.lock();
        let count = count.min(traces.len());
        traces.drain(..count).collect()
    }

    /// Returns traces that others did not learn of.
    pub fn put_back(&self, traces: Vec<u128>) {
        let mut queue = self.0.lock();
        traces.into_iter().rev().for_each(|trace_id| queue.push_front(trace_id));
        queue.truncate(TRACES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_is_bounded_and_takes_returned_traces_again() {
        let queue = TraceQueue::default();
        (0..=TRACES as u128).for_each(|trace_id| queue.push(trace_id));
        let taken = queue.take(2);
        assert_eq!(taken, [1, 2], "the oldest has left");
        queue.put_back(taken);
        assert_eq!(queue.take(usize::MAX).len(), TRACES);
        assert_eq!(queue.take(1), []);
    }
}
