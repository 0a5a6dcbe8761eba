//! Pure: what a batch must read before it can be decided.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::data::Reads;
use crate::input::{Content, Delivered, Input, InputKind};
use crate::row::RowKey;
use crate::service::Service;

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
