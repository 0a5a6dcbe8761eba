//! Shell: the log line of a processed input, at `info` if it changed something and the service is not too busy.

use saga_core::decision::Writes;
use saga_core::input::{CommandOutcome, DueOutcome, Input, MessageOutcome, Outcome};
use saga_core::service::Service;
use tracing::{debug, error, info, warn};
use uuid::Uuid;

/// Log target of these lines, for `log.filter`: `info,saga::step=warn`.
pub const TARGET: &str = "saga::step";

/// Event that an input caused.
pub(super) struct Change {
    by: Uuid,
    row: &'static str,
    event: &'static str,
}

/// Lists the events of a batch in the order of its decisions.
pub(super) fn changes(writes: &Writes) -> Vec<Change> {
    let change = |event: &saga_core::decision::EventWrite| Change {
        by: event.causation_id,
        row: event.key.kind,
        event: event.name,
    };
    writes.events.iter().map(change).collect()
}

/// Splits the events of one input off the front of those of its batch.
pub(super) fn changes_of<'a>(id: Uuid, changes: &mut &'a [Change]) -> &'a [Change] {
    let count = changes.iter().take_while(|change| change.by == id).count();
    let (own, rest) = changes.split_at(count);
    *changes = rest;
    own
}

/// Logs the outcome of an input. In a busy service, success is logged at `debug`.
pub(super) fn log<S: Service>(input: &Input<S>, outcome: &Outcome<S>, changes: &[Change], is_busy: bool) {
    let (correlation_id, message_id, step) = (input.correlation_id, input.id, input.source());
    let (causation_id, attempt) = (input.causation_id().map(tracing::field::display), input.attempt());
    let trace_id = input.trace.map(|trace| tracing::field::display(trace.written_id()));
    // A macro, as the level of a log line must be constant.
    macro_rules! line {
        ($level:ident, $($text:tt)+) => {
            $level!(target: TARGET, %correlation_id, %message_id, causation_id, step, attempt, trace_id, $($text)+)
        };
    }
    match outcome {
        Outcome::Command(CommandOutcome::Done(_))
        | Outcome::Message(MessageOutcome::Done)
        | Outcome::Due(DueOutcome::Done) => match changes {
            [] => line!(debug, "nothing changed"),
            [..] if is_busy => line!(debug, "{}", summary(changes)),
            [..] => line!(info, "{}", summary(changes)),
        },
        Outcome::Command(CommandOutcome::Replayed(_) | CommandOutcome::KeyReused)
        | Outcome::Message(MessageOutcome::Duplicate) => {
            line!(debug, "nothing changed: {}", outcome.name());
        }
        Outcome::Command(CommandOutcome::Rejected(rejection))
        | Outcome::Message(MessageOutcome::Rejected(rejection))
        | Outcome::Due(DueOutcome::Rejected(rejection)) => line!(debug, "rejected: {rejection}"),
        Outcome::Message(MessageOutcome::TaskNeeded) => line!(debug, "task is still needed"),
        Outcome::Message(MessageOutcome::Retried(reason)) => line!(warn, "failed, will be retried: {reason}"),
        Outcome::Message(MessageOutcome::Dead(reason)) => {
            line!(error, "dead-lettered: {reason}");
        }
        Outcome::Command(CommandOutcome::Faulted(reason)) | Outcome::Due(DueOutcome::Faulted(reason)) => {
            line!(error, "failed: {reason}");
        }
    }
}

/// Counts events by row kind and name: `product Reserved (3), reservation Held`.
fn summary(changes: &[Change]) -> String {
    let mut counted: Vec<(&Change, usize)> = Vec::new();
    for change in changes {
        let same =
            |(other, _): &&mut (&Change, usize)| (other.row, other.event) == (change.row, change.event);
        match counted.iter_mut().find(same) {
            Some((_, count)) => *count += 1,
            None => counted.push((change, 1)),
        }
    }
    let words = counted.iter().map(|(Change { row, event, .. }, count)| match count {
        1 => format!("{row} {event}"),
        _ => format!("{row} {event} ({count})"),
    });
    words.collect::<Vec<_>>().join(", ")
}
