//! Pure: the reads of a batch.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use jiff::Timestamp;

use super::data::Reads;
use crate::input::{Content, Input, InputKind, StepMessage};
use crate::row::RowKey;
use crate::service::Service;
use crate::unit_of_work::{Rows, UnitOfWork};

/// Collects the reads of all inputs of a batch.
pub fn reads<S: Service>(service: &S, inputs: &[Input<S>]) -> Reads {
    let mut reads = Reads::default();
    for input in inputs {
        // A panic here repeats in the handler, which misses its rows, and dead-letters this one input.
        let rows = catch_unwind(AssertUnwindSafe(|| rows_of(service, input)));
        reads.rows.extend(rows.unwrap_or_default());
        match &input.kind {
            InputKind::Command { key, .. } => reads.keys.extend(key.iter().map(|key| key.key.clone())),
            InputKind::Message(delivered) => {
                reads.inbox.insert((delivered.step.name, delivered.inbox_id(input.id)));
                reads.dead_letters.extend(delivered.commanded());
            }
            InputKind::TaskResult { task, .. } => {
                reads.tasks.insert(task.id);
            }
            InputKind::Due { .. } => {}
        }
        reads.dead_letters.extend(input.replayed());
    }
    reads
}

/// Rows beyond `rows` that the messages of a batch need, because stored rows name them.
pub(super) fn additional_rows<S: Service>(
    service: &S,
    inputs: &[Input<S>],
    rows: &mut Rows,
    now: Timestamp,
    lost_before: Option<Timestamp>,
) -> BTreeSet<RowKey> {
    let mut named = BTreeSet::new();
    for input in inputs {
        let Some(message) = input.fact() else { continue };
        let mut work = UnitOfWork::new(rows, input.cause(now, lost_before));
        // As above: a panic repeats in the handler.
        let named_rows = catch_unwind(AssertUnwindSafe(|| service.additional_rows(message, &mut work)));
        named.extend(named_rows.unwrap_or_default());
    }
    named.retain(|key| !rows.contains_key(key));
    named
}

fn rows_of<S: Service>(service: &S, input: &Input<S>) -> Vec<RowKey> {
    match &input.kind {
        InputKind::Command { command, .. } => service.rows_of_command(command),
        InputKind::Message(StepMessage { content: Ok(Content::Fact(message)), .. }) => {
            service.rows_of_message(message)
        }
        InputKind::Message(_) => vec![],
        InputKind::TaskResult { task, answer } => service.rows_of_result(&task.result(answer)),
        InputKind::Due { key } => vec![key.clone()],
    }
}
