//! Pure: what a batch must read before it can be decided.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use jiff::Timestamp;

use super::data::Reads;
use crate::input::{Content, Delivered, Input, InputKind};
use crate::row::RowKey;
use crate::service::Service;
use crate::unit_of_work::{Rows, UnitOfWork};

/// What the inputs of a batch need to have read.
pub fn reads<S: Service>(service: &S, inputs: &[Input<S>]) -> Reads {
    let mut reads = Reads::default();
    for input in inputs {
        // A panic here shows again in the reaction, which misses its rows, and parks this one input.
        let rows = catch_unwind(AssertUnwindSafe(|| rows_of(service, input)));
        reads.rows.extend(rows.unwrap_or_default());
        match &input.kind {
            InputKind::Command { key, .. } => reads.keys.extend(key.iter().map(|key| key.key.clone())),
            InputKind::Message(delivered) => {
                reads.inbox.insert((delivered.step.name, delivered.known_as(input.id)));
                reads.dead_letters.extend(delivered.commanded());
            }
            InputKind::Called { task, .. } => {
                reads.tasks.insert(task.id);
            }
            InputKind::Due { .. } => {}
        }
        reads.dead_letters.extend(input.replayed());
    }
    reads
}

/// The rows that the messages of a batch need beside `rows`, since the service's own record names them.
pub(super) fn on_record<S: Service>(
    service: &S,
    inputs: &[Input<S>],
    rows: &mut Rows,
    now: Timestamp,
) -> BTreeSet<RowKey> {
    let mut named = BTreeSet::new();
    for input in inputs {
        let Some(message) = input.fact() else { continue };
        let mut work = UnitOfWork::new(rows, input.cause(now));
        // As above: a panic shows again in the reaction.
        let looked = catch_unwind(AssertUnwindSafe(|| service.additional_rows(message, &mut work)));
        named.extend(looked.unwrap_or_default());
    }
    named.retain(|key| !rows.contains_key(key));
    named
}

fn rows_of<S: Service>(service: &S, input: &Input<S>) -> Vec<RowKey> {
    match &input.kind {
        InputKind::Command { command, .. } => service.rows_of_command(command),
        InputKind::Message(Delivered { content: Ok(Content::Fact(message)), .. }) => {
            service.rows_of_message(message)
        }
        InputKind::Message(_) => vec![],
        InputKind::Called { task, answer } => service.rows_of_result(&task.result(answer)),
        InputKind::Due { key } => vec![key.clone()],
    }
}
