//! Pure: what a batch must know before it can be decided, and everything that it then writes.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use jiff::Timestamp;
use uuid::Uuid;

use crate::dead_letter::{DeadLettered, StoredDeadLetter};
use crate::metric::Measurement;
use crate::row::{Projected, RowKey, SearchedBy, StoredRow};
use crate::trace::TraceContext;
use crate::waiting::{Retry, Task};

/// What a batch must know before it can be decided.
#[derive(Debug, Clone, Default)]
pub struct Reads {
    /// Rows by key, sorted: the order of locking.
    pub rows: BTreeSet<RowKey>,
    /// (step, message id): what is known of it?
    pub inbox: BTreeSet<(&'static str, Uuid)>,
    /// Tasks whose results this batch brings: are they still open, and under which claim?
    pub tasks: BTreeSet<Uuid>,
    /// Idempotency keys: was there an answer already?
    pub keys: BTreeSet<String>,
    /// Dead letters that this batch replays, or that an operator's command is about.
    pub dead_letters: BTreeSet<Uuid>,
}

/// The answers to [`Reads`].
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// The rows that are there.
    pub rows: BTreeMap<RowKey, StoredRow>,
    /// The rows that were read because a decision [asked for them](Writes::to_read), whether or not they are there.
    pub also_read: BTreeSet<RowKey>,
    /// The messages that are known.
    pub inbox: BTreeMap<(&'static str, Uuid), InboxState>,
    /// The open tasks, each with its current claim.
    pub tasks: BTreeMap<Uuid, i64>,
    /// The answers given before.
    pub keys: BTreeMap<String, KeyedAnswer>,
    /// The dead letters that are there.
    pub dead_letters: BTreeMap<Uuid, StoredDeadLetter>,
    /// Finished rows of sagas with lower ids may have left.
    pub left_before: Option<Uuid>,
}

/// What a step knows of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboxState {
    /// Handled: the inbox has a mark.
    Handled,
    /// Failed before and waits for its next try.
    Waiting,
    /// Parked as a dead letter.
    Parked,
}

/// The answer that belongs to an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyedAnswer {
    /// Digest of the request that was answered.
    pub fingerprint: String,
    /// The reply as JSON.
    pub reply: String,
}

/// A changed row, guarded by the version it was read at.
#[derive(Debug, Clone)]
pub struct RowWrite {
    /// Which row it is; no other entry of the batch has the same.
    pub key: RowKey,
    /// Version it was read at: the guard. 0 inserts.
    pub read_version: i64,
    /// Version it has now.
    pub version: i64,
    /// What the row's table keeps of its state.
    pub projected: Projected,
    /// What the row was found by until now; `None` when that is not known. What has not changed need not be written.
    pub searched_by: Option<SearchedBy>,
}

/// A new event.
#[derive(Debug, Clone)]
pub struct EventWrite {
    /// The row to whose history it belongs.
    pub key: RowKey,
    /// The row's version after it.
    pub version: i64,
    /// Its name in the history ([`crate::decider::Decider::event_name`]).
    pub name: &'static str,
    /// The event as JSON, to be folded again.
    pub data: String,
    /// Input that caused it.
    pub causation_id: Uuid,
}

/// A promise to publish.
#[derive(Debug, Clone)]
pub struct OutboxWrite {
    /// Id of the message, derived: a decision that is repeated repeats it.
    pub id: Uuid,
    /// The saga it belongs to: promises of one saga are kept in their order.
    pub saga: Uuid,
    /// Subject to publish it to, e.g. `order.created`.
    pub subject: String,
    /// The envelope's bytes.
    pub payload: Bytes,
    /// Index in [`Writes::events`] of the event it tells.
    pub event: Option<usize>,
    /// Where the input that causes it stands in its trace.
    pub trace: Option<TraceContext>,
}

/// A failed try of a task.
#[derive(Debug, Clone)]
pub struct TaskRetry {
    /// Id of the task, which stays open.
    pub id: Uuid,
    /// Tries that failed, this one counted.
    pub attempts: u32,
    /// When to try again.
    pub next_attempt: Timestamp,
    /// What went wrong.
    pub last_error: String,
    /// Where the task stands in its trace, if that is recorded from now on.
    pub trace: Option<TraceContext>,
}

/// Everything that one transaction changes.
#[derive(Debug, Clone, Default)]
pub struct Writes {
    /// Rows that must be read too before this can be decided. Then nothing is written yet: in the same transaction
    /// the batch is decided again, with these beside the others ([`Loaded::also_read`]).
    pub to_read: BTreeSet<RowKey>,
    /// Changed rows, one entry a row.
    pub rows: Vec<RowWrite>,
    /// New events, in the order of decision.
    pub events: Vec<EventWrite>,
    /// Promises to publish, in the order of decision.
    pub outbox: Vec<OutboxWrite>,
    /// Inbox marks: (step, message id) of what needs no other try.
    pub inbox: Vec<(&'static str, Uuid)>,
    /// Retries to write or to overwrite.
    pub retries: Vec<Retry>,
    /// Retries that are to be in line; one that is there already, or that is written here anew, goes on as it is.
    pub retries_again: Vec<Retry>,
    /// Retries that were over before any of those above was written.
    pub retries_done: Vec<(&'static str, Uuid)>,
    /// New tasks, each claimed at once under [`Writes::claim`].
    pub tasks: Vec<Task>,
    /// Tasks that are to be open, claimed by nobody; one that is open already goes on as it is.
    pub tasks_again: Vec<Task>,
    /// Failed tries of tasks.
    pub task_retries: Vec<TaskRetry>,
    /// Tasks that were over before any of those above was written.
    pub tasks_done: Vec<Uuid>,
    /// New dead letters; each is also announced through `outbox`.
    pub parked: Vec<DeadLettered>,
    /// Dead letters that are there already and changed, in the order of their changes.
    pub dead_letters: Vec<StoredDeadLetter>,
    /// New idempotency keys with their answers.
    pub keys: Vec<(String, KeyedAnswer)>,
    /// What was measured, each with the id of the input that it belongs to, in the order of decision. Nothing is stored
    /// of it.
    pub measured: Vec<(Uuid, Measurement)>,
    /// When all this was decided.
    pub decided_at: Timestamp,
    /// Who claims the new tasks, and until when.
    pub claim: Option<(String, Timestamp)>,
}

impl Writes {
    /// Leaves the new tasks to whoever has room for them: nobody claims them.
    pub fn leave_tasks(&mut self) {
        self.claim = None;
        self.tasks.iter_mut().for_each(|task| task.claim = 0);
    }

    /// A retry is over, whatever was to become of it until now.
    pub(crate) fn end_retry(&mut self, place: (&'static str, Uuid)) {
        let is_it = |retry: &Retry| retry.step == place.0 && retry.message_id == place.1;
        self.retries.retain(|retry| !is_it(retry));
        self.retries_again.retain(|retry| !is_it(retry));
        self.retries_done.push(place);
    }

    /// A task is over, whatever was to become of it until now.
    pub(crate) fn end_task(&mut self, id: Uuid) {
        self.tasks.retain(|task| task.id != id);
        self.tasks_again.retain(|task| task.id != id);
        self.task_retries.retain(|retry| retry.id != id);
        self.tasks_done.push(id);
    }

    /// Whether there is anything to write.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
            && self.outbox.is_empty()
            && self.inbox.is_empty()
            && self.retries.is_empty()
            && self.retries_again.is_empty()
            && self.retries_done.is_empty()
            && self.tasks.is_empty()
            && self.tasks_again.is_empty()
            && self.task_retries.is_empty()
            && self.tasks_done.is_empty()
            && self.parked.is_empty()
            && self.dead_letters.is_empty()
            && self.keys.is_empty()
    }
}

/// Decides a batch on what was loaded. Pure; may be called again when the transaction has to be repeated, or when
/// it [asked for more rows](Writes::to_read), so only the answer of the last call counts.
pub type Decide = Box<dyn FnMut(Loaded) -> Writes + Send>;
