//! Shell: traces that are recorded because of a failure, announced to all processes.
//!
//! Each process that took part in such a trace holds unsampled spans of it, and may never hear of the trace again. So the
//! process that finds the failure publishes the trace's id to a stream, and all others read it there. The stream outlasts
//! a lost connection, and a process that announces goes on until the broker has stored its announcement.

use std::fmt::Write as _;
use std::time::Duration;

use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use saga_core::retry::error_chain;
use tracing::debug;

use super::connection::{BoxedError, BusFault, NatsBus};
use super::permissions::{TRACE_STREAM, kept_subject};
use crate::runtime::trace_queue::TraceQueue;
use crate::runtime::tracer::Tracer;

/// Interval between two looks at the stream.
const EVERY: Duration = Duration::from_secs(1);

/// Maximum number of traces in one message.
const TRACES: usize = 4_096;

/// Maximum number of messages that one round reads.
const MESSAGES: usize = 1_000;

/// Announces the traces that are kept here, and keeps those that others announce. Never returns.
pub async fn exchange_kept_traces(bus: &NatsBus, service: &str, tracer: &Tracer) {
    let Some(announcements) = tracer.announcements() else { return std::future::pending().await };
    let mut exchange = Exchange { bus, service, tracer, read_to: None };
    loop {
        tokio::time::sleep(EVERY).await;
        if bus.is_connected()
            && let Err(fault) = exchange.round(announcements).await
        {
            // The stream may be lost with the broker's disk.
            exchange.read_to = None;
            debug!("kept traces are not exchanged, retrying: {}", error_chain(&fault));
        }
    }
}

struct Exchange<'a> {
    bus: &'a NatsBus,
    service: &'a str,
    tracer: &'a Tracer,
    /// Sequence number up to which the stream was read; `None` before its end was looked up.
    read_to: Option<u64>,
}

impl Exchange<'_> {
    async fn round(&mut self, announcements: &TraceQueue) -> Result<(), BusFault> {
        let fault = |source| BusFault::Stream { stream: TRACE_STREAM.to_owned(), source };
        if self.read_to.is_none() {
            self.bus.ensure_trace_stream().await?;
        }
        let stream = self.bus.in_time(self.bus.jetstream.get_stream(TRACE_STREAM)).await.map_err(fault)?;
        let state = &stream.cached_info().state;
        // A recreated stream begins anew.
        let begin = state.first_sequence.saturating_sub(1);
        let read_to = self.read_to.filter(|read_to| *read_to <= state.last_sequence);
        self.read_to = Some(read_to.unwrap_or(begin));
        let traces = announcements.take(TRACES);
        if !traces.is_empty()
            && let Err(error) = self.announce(&traces).await
        {
            announcements.put_back(traces);
            return Err(fault(error));
        }
        self.read(&stream).await.map_err(fault)
    }

    async fn announce(&self, traces: &[u128]) -> Result<(), BoxedError> {
        let mut lines = String::with_capacity(traces.len() * 33);
        for trace_id in traces {
            // Infallible: writes to memory.
            let _ = writeln!(lines, "{trace_id:032x}");
        }
        let sent = async {
            let sent = self.bus.jetstream.publish(kept_subject(self.service), lines.into()).await?;
            sent.await.map(drop).map_err(BoxedError::from)
        };
        self.bus.in_time(sent).await
    }

    /// Reads what was announced since the last round.
    async fn read(&mut self, stream: &Stream) -> Result<(), BoxedError> {
        for _ in 0..MESSAGES {
            let next = self.read_to.unwrap_or_default().saturating_add(1);
            let message = async {
                match stream.get_first_raw_message_by_subject(">", next).await {
                    Ok(message) => Ok(Some(message)),
                    Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
                    Err(error) => Err(error),
                }
            };
            let Some(message) = self.bus.in_time(message).await? else { return Ok(()) };
            self.read_to = Some(message.sequence);
            let lines = String::from_utf8_lossy(&message.payload);
            let traces = lines.lines().filter_map(|line| u128::from_str_radix(line, 16).ok());
            traces.for_each(|trace_id| self.tracer.keep_announced(trace_id));
        }
        Ok(())
    }
}
