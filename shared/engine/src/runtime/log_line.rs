//! Shell: what the log says of an input once it is settled: one line, at `info` when it changed something and there are
//! not too many of them to be read.

use saga_core::decision::Writes;
use saga_core::input::{CommandOutcome, DueOutcome, Input, MessageOutcome, Outcome};
use saga_core::service::Service;
use tracing::{debug, error, info, warn};
use uuid::Uuid;

/// The target of these lines, by which `log.filter` knows them: `info,saga::step=warn`.
pub const TARGET: &str = "saga::step";

/// An event that an input caused.
pub(super) struct Change {
    by: Uuid,
    row: &'static str,
    event: &'static str,
}

/// What these inputs changed, in the order of their decisions.
pub(super) fn changes(writes: &Writes) -> Vec<Change> {
    let change = |event: &saga_core::decision::EventWrite| Change {
        by: event.causation_id,
        row: event.key.kind,
        event: event.name,
    };
    writes.events.iter().map(change).collect()
}

/// Takes those of an input off the front of all that its batch changed.
pub(super) fn changes_of<'a>(id: Uuid, changes: &mut &'a [Change]) -> &'a [Change] {
    let count = changes.iter().take_while(|change| change.by == id).count();
    let (own, rest) = changes.split_at(count);
    *changes = rest;
    own
}

/// Says what became of an input that changed this; in a busy service at `debug` when it went well.
pub(super) fn say<S: Service>(input: &Input<S>, outcome: &Outcome<S>, changes: &[Change], is_busy: bool) {
    let (correlation_id, message_id, step) = (input.correlation_id, input.id, input.source());
    let (causation_id, attempt) = (input.causation_id().map(tracing::field::display), input.attempt());
    let trace_id = input.trace.map(|trace| tracing::field::display(trace.written_id()));
    // A macro, because the level of a line is fixed where it stands.
    macro_rules! line {
        ($level:ident, $($said:tt)+) => {
            $level!(target: TARGET, %correlation_id, %message_id, causation_id, step, attempt, trace_id, $($said)+)
        };
    }
    match outcome {
        Outcome::Command(CommandOutcome::Done(_))
        | Outcome::Message(MessageOutcome::Done)
        | Outcome::Due(DueOutcome::Done) => match changes {
            [] => line!(debug, "changes nothing"),
            [..] if is_busy => line!(debug, "{}", in_words(changes)),
            [..] => line!(info, "{}", in_words(changes)),
        },
        Outcome::Command(CommandOutcome::Replayed(_) | CommandOutcome::KeyReused)
        | Outcome::Message(MessageOutcome::Duplicate) => {
            line!(debug, "changes nothing: {}", outcome.name());
        }
        Outcome::Command(CommandOutcome::Rejected(rejection))
        | Outcome::Message(MessageOutcome::Rejected(rejection))
        | Outcome::Due(DueOutcome::Rejected(rejection)) => line!(debug, "rejected: {rejection}"),
        Outcome::Message(MessageOutcome::TaskNeeded) => line!(debug, "to be called"),
        Outcome::Message(MessageOutcome::Retried(reason)) => line!(warn, "will be tried again: {reason}"),
        Outcome::Message(MessageOutcome::Dead(reason)) => {
            line!(error, "parked as a dead letter: {reason}");
        }
        Outcome::Command(CommandOutcome::Faulted(reason)) | Outcome::Due(DueOutcome::Faulted(reason)) => {
            line!(error, "broke: {reason}");
        }
    }
}

/// `order Placed`, or `product Reserved (3), reservation Held` when three products were.
fn in_words(changes: &[Change]) -> String {
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
