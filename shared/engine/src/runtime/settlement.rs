//! Shell: what has to be done once a batch is durable: who is answered, what is woken, told and measured.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use saga_core::decision::Writes;
use saga_core::input::{Input, InputKind, Outcome};
use saga_core::metric::Measurement;
use saga_core::row::RowKey;
use saga_core::service::Service;
use saga_core::waiting::Task;
use uuid::Uuid;

use super::log_line::{self, Change};
use crate::store::OutboxEntry;

/// What has to be done once a batch is durable.
pub(super) struct Settlement<S: Service> {
    pub(super) outcomes: Vec<Outcome<S>>,
    pub(super) changed: Vec<RowKey>,
    pub(super) tasks: Vec<Task>,
    /// Messages promised.
    pub(super) promised: usize,
    /// The same, for the relay.
    pub(super) promises: Vec<OutboxEntry>,
    /// Spans that promise something of a trace that is recorded.
    pub(super) promising: BTreeSet<u64>,
    pub(super) measured: Vec<(Uuid, Measurement)>,
    /// How long the commit took.
    pub(super) took: Duration,
    /// The events, for the log.
    pub(super) changes: Vec<Change>,
    /// The first thing of all that was written to come due.
    pub(super) next_due: Option<Timestamp>,
}

impl<S: Service> Settlement<S> {
    /// What follows from these inputs once `writes` are durable.
    pub(super) fn of(inputs: &[Input<S>], writes: &mut Writes, outcomes: Vec<Outcome<S>>) -> Self {
        // What nobody has claimed is for the timers.
        let (taken, left) = match writes.claim {
            Some(_) => (writes.tasks.clone(), &[][..]),
            None => (vec![], &writes.tasks[..]),
        };
        let looked_at: BTreeSet<&RowKey> = inputs.iter().filter_map(due_row).collect();
        // A row that is due although it has just been looked at waits for the next look, or there would be no pause.
        let is_still_due = |key, due| due <= writes.decided_at && looked_at.contains(key);
        let rows = writes.rows.iter().filter_map(|row| Some((&row.key, row.projected.due?)));
        let rows = rows.filter(|(key, due)| !is_still_due(*key, *due)).map(|(_, due)| due);
        let retries = writes.retries.iter().chain(&writes.retries_again).map(|retry| retry.next_attempt);
        let tasks = writes.tasks_again.iter().chain(left).map(|task| task.created_at);
        let task_retries = writes.task_retries.iter().map(|retry| retry.next_attempt);
        let next_due = rows.chain(retries).chain(tasks).chain(task_retries).min();
        Self {
            outcomes,
            changed: writes.rows.iter().map(|row| row.key.clone()).collect(),
            tasks: taken,
            promised: writes.outbox.len(),
            promises: vec![],
            promising: promising(writes),
            measured: std::mem::take(&mut writes.measured),
            took: Duration::ZERO,
            changes: log_line::changes(writes),
            next_due,
        }
    }

    /// That of an input which did nothing.
    pub(super) fn of_nothing(outcome: Outcome<S>) -> Self {
        Self {
            outcomes: vec![outcome],
            changed: vec![],
            tasks: vec![],
            promised: 0,
            promises: vec![],
            promising: BTreeSet::new(),
            measured: vec![],
            took: Duration::ZERO,
            changes: vec![],
            next_due: None,
        }
    }
}

/// Spans that promise something of a trace that is recorded: few, where few are.
fn promising(writes: &Writes) -> BTreeSet<u64> {
    let promised = writes.outbox.iter().filter_map(|entry| entry.trace).filter(|trace| trace.is_sampled);
    promised.map(|trace| trace.span_id).collect()
}

fn due_row<S: Service>(input: &Input<S>) -> Option<&RowKey> {
    match &input.kind {
        InputKind::Due { key } => Some(key),
        InputKind::Command { .. } | InputKind::Message(_) | InputKind::TaskResult { .. } => None,
    }
}
