//! Shell: work that follows the commit of a batch: answers, wake-ups, tasks, measurements and log lines.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use saga_core::decision::{ReplayTrace, Writes};
use saga_core::input::{Input, InputKind, Outcome};
use saga_core::metric::Measurement;
use saga_core::row::RowKey;
use saga_core::service::Service;
use saga_core::waiting::Task;
use uuid::Uuid;

use super::log_line::{self, Change};
use crate::store::OutboxEntry;

/// Work to do once a batch is durable.
pub(super) struct AfterCommit<S: Service> {
    pub(super) outcomes: Vec<Outcome<S>>,
    pub(super) changed: Vec<RowKey>,
    pub(super) tasks: Vec<Task>,
    /// Number of outbox entries written.
    pub(super) outbox_count: usize,
    /// The same entries with their positions, for the relay; empty if the store does not return them.
    pub(super) outbox: Vec<OutboxEntry>,
    /// Ids of spans that wrote an outbox entry of a recorded trace.
    pub(super) publishing_spans: BTreeSet<u64>,
    pub(super) measured: Vec<(Uuid, Measurement)>,
    /// Reasons of the failures that inputs report, for their spans.
    pub(super) failure_reasons: Vec<(Uuid, &'static str)>,
    /// Earlier attempts of replayed inputs, for their spans.
    pub(super) replays: Vec<(Uuid, ReplayTrace)>,
    pub(super) took: Duration,
    /// Events in the order of their inputs, for the log.
    pub(super) changes: Vec<Change>,
    /// Earliest due time among all that was written.
    pub(super) next_due: Option<Timestamp>,
}

impl<S: Service> AfterCommit<S> {
    /// Collects the work that follows from `inputs` once `writes` are durable.
    pub(super) fn of(inputs: &[Input<S>], writes: &mut Writes, outcomes: Vec<Outcome<S>>) -> Self {
        // The timers take up tasks that nobody has claimed.
        let (claimed, unclaimed) = match writes.claim {
            Some(_) => (writes.tasks.clone(), &[][..]),
            None => (vec![], &writes.tasks[..]),
        };
        let just_fired: BTreeSet<&RowKey> = inputs.iter().filter_map(due_row).collect();
        // A row may be due again at once. It waits for the next scan, or the timers would never pause.
        let is_still_due = |key, due| due <= writes.decided_at && just_fired.contains(key);
        let rows = writes.rows.iter().filter_map(|row| Some((&row.key, row.projected.due?)));
        let rows = rows.filter(|(key, due)| !is_still_due(*key, *due)).map(|(_, due)| due);
        let retries = writes.retries.iter().chain(&writes.retries_again).map(|retry| retry.next_attempt);
        let tasks = writes.tasks_again.iter().chain(unclaimed).map(|task| task.created_at);
        let task_retries = writes.task_retries.iter().map(|retry| retry.next_attempt);
        let next_due = rows.chain(retries).chain(tasks).chain(task_retries).min();
        Self {
            outcomes,
            changed: writes.rows.iter().map(|row| row.key.clone()).collect(),
            tasks: claimed,
            outbox_count: writes.outbox.len(),
            outbox: vec![],
            publishing_spans: publishing_spans(writes),
            measured: std::mem::take(&mut writes.measured),
            failure_reasons: std::mem::take(&mut writes.failure_reasons),
            replays: std::mem::take(&mut writes.replays),
            took: Duration::ZERO,
            changes: log_line::changes(writes),
            next_due,
        }
    }

    /// Answer of an input that changed nothing.
    pub(super) fn unchanged(outcome: Outcome<S>) -> Self {
        Self {
            outcomes: vec![outcome],
            changed: vec![],
            tasks: vec![],
            outbox_count: 0,
            outbox: vec![],
            publishing_spans: BTreeSet::new(),
            measured: vec![],
            failure_reasons: vec![],
            replays: vec![],
            took: Duration::ZERO,
            changes: vec![],
            next_due: None,
        }
    }
}

fn publishing_spans(writes: &Writes) -> BTreeSet<u64> {
    let recorded = writes.outbox.iter().filter_map(|entry| entry.trace).filter(|trace| trace.is_sampled);
    recorded.map(|trace| trace.span_id).collect()
}

fn due_row<S: Service>(input: &Input<S>) -> Option<&RowKey> {
    match &input.kind {
        InputKind::Due { key } => Some(key),
        InputKind::Command { .. } | InputKind::Message(_) | InputKind::TaskResult { .. } => None,
    }
}
