//! Shell: what the engine, the relay and the timers ask of a database.
//!
//! One trait, implemented by [`sqlite::SqliteStore`]. It speaks in whole batches (reads up front, writes as
//! lists), so that an implementation may answer each list with one set-based statement.

pub mod sqlite;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use crate::contract::{DeadLettered, Delivery};
use crate::decider::FieldValue;
use crate::row::{Projected, RowKey, StoredEvent, StoredRow};

/// Why the store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreFault {
    /// The database said no.
    #[error("database: {context}")]
    Database {
        /// What was being done.
        context: &'static str,
        /// What the driver said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A row changed under a transaction. The batch is run again from its reads.
    #[error("row {0:?} was changed by someone else")]
    Conflict(RowKey),
    /// The file cannot be used: the sentence says why and what to do.
    #[error("{0}")]
    Unusable(String),
    /// What the store was asked to run panicked. A bug, but of this one request.
    #[error("panicked: {0}")]
    Panicked(String),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

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
    /// Dead letters that this batch replays, or that an operator wants something of.
    pub letters: BTreeSet<Uuid>,
}

/// The answers to [`Reads`].
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// The rows that are there.
    pub rows: BTreeMap<RowKey, StoredRow>,
    /// The messages that are known.
    pub inbox: BTreeMap<(&'static str, Uuid), Known>,
    /// The open tasks, each with its current claim.
    pub tasks: BTreeMap<Uuid, i64>,
    /// The answers given before.
    pub keys: BTreeMap<String, KeyedAnswer>,
    /// The dead letters that are there.
    pub letters: BTreeMap<Uuid, StoredLetter>,
}

/// A dead letter as the service that parked it keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLetter {
    /// The dead letter.
    pub letter: DeadLettered,
    /// What becomes of it.
    pub status: LetterStatus,
    /// The last request of an operator that had an effect.
    pub revision: u64,
    /// The id under which the step knows the message, whatever became of it since.
    pub known_as: Uuid,
}

/// What becomes of a dead letter.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, serde::Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum LetterStatus {
    /// It waits for a human.
    Pending,
    /// It was handed back, and is being handled.
    Replaying,
    /// It was handled.
    Resolved,
    /// It was given up.
    Discarded,
}

impl LetterStatus {
    /// Every status there is.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Replaying, Self::Resolved, Self::Discarded];

    /// The name in tables and in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Replaying => "REPLAYING",
            Self::Resolved => "RESOLVED",
            Self::Discarded => "DISCARDED",
        }
    }

    /// The status with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }
}

/// What a step knows of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
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

/// A changed row.
#[derive(Debug, Clone)]
pub struct RowWrite {
    /// Which.
    pub key: RowKey,
    /// Version it was read at: the guard. 0 inserts.
    pub read_version: i64,
    /// Version it has now.
    pub version: i64,
    /// What the table keeps.
    pub projected: Projected,
}

/// A new event.
#[derive(Debug, Clone)]
pub struct EventWrite {
    /// Its row.
    pub key: RowKey,
    /// The row's version after it.
    pub version: i64,
    /// Name.
    pub name: &'static str,
    /// JSON.
    pub data: String,
    /// Input that caused it.
    pub causation_id: Uuid,
}

/// A promise to publish.
#[derive(Debug, Clone)]
pub struct OutboxWrite {
    /// Message id.
    pub id: Uuid,
    /// Subject.
    pub subject: String,
    /// The envelope's bytes.
    pub payload: Bytes,
    /// Index in [`Writes::events`] of the event it tells.
    pub event: Option<usize>,
}

/// A new task, claimed at once by the process that writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Derived id; the `Idempotency-Key` of the call.
    pub id: Uuid,
    /// What kind of call.
    pub kind: String,
    /// The saga.
    pub correlation_id: Uuid,
    /// What the call needs, as JSON.
    pub payload: String,
    /// Tries that failed.
    pub attempts: u32,
    /// Grows with each claim: a lapsed owner's failure has no effect.
    pub claim: i64,
    /// When it was written.
    pub created_at: Timestamp,
    /// The dead letter that is being replayed.
    pub letter: Option<Uuid>,
}

/// A failed try of a task.
#[derive(Debug, Clone)]
pub struct TaskRetry {
    /// Which.
    pub id: Uuid,
    /// Tries that failed, this one counted.
    pub attempts: u32,
    /// When to try again.
    pub next_attempt: Timestamp,
    /// What went wrong.
    pub last_error: String,
}

/// A message that will be tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// The step.
    pub step: String,
    /// The message.
    pub message_id: Uuid,
    /// Its payload.
    pub payload: Bytes,
    /// Tries that failed.
    pub attempts: u32,
    /// When to try again.
    pub next_attempt: Timestamp,
    /// When the first try failed.
    pub first_failed_at: Timestamp,
    /// What went wrong last.
    pub last_error: String,
    /// Where the broker had it.
    pub delivery: Option<Delivery>,
    /// The dead letter that is being replayed.
    pub letter: Option<Uuid>,
}

/// Everything that one transaction changes.
#[derive(Debug, Clone, Default)]
pub struct Writes {
    /// Changed rows, one entry a row.
    pub rows: Vec<RowWrite>,
    /// New events, in the order of decision.
    pub events: Vec<EventWrite>,
    /// Promises to publish, in the order of decision.
    pub outbox: Vec<OutboxWrite>,
    /// Inbox marks.
    pub inbox: Vec<(&'static str, Uuid)>,
    /// Retries to write or to overwrite.
    pub retries: Vec<Retry>,
    /// Retries that are over.
    pub retries_done: Vec<(&'static str, Uuid)>,
    /// New tasks.
    pub tasks: Vec<Task>,
    /// Tasks that are taken up again, claimed by nobody.
    pub tasks_again: Vec<Task>,
    /// Failed tries of tasks.
    pub task_retries: Vec<TaskRetry>,
    /// Tasks that are over.
    pub tasks_done: Vec<Uuid>,
    /// New dead letters; each is also announced through `outbox`.
    pub dead_letters: Vec<DeadLettered>,
    /// Dead letters that are there already and changed, in the order of their changes.
    pub letters: Vec<StoredLetter>,
    /// New idempotency keys with their answers.
    pub keys: Vec<(String, KeyedAnswer)>,
    /// When all this was decided.
    pub decided_at: Timestamp,
    /// Who claims the new tasks, and until when.
    pub claim: Option<(String, Timestamp)>,
}

impl Writes {
    /// Whether there is anything to write.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
            && self.outbox.is_empty()
            && self.inbox.is_empty()
            && self.retries.is_empty()
            && self.retries_done.is_empty()
            && self.tasks.is_empty()
            && self.tasks_again.is_empty()
            && self.task_retries.is_empty()
            && self.tasks_done.is_empty()
            && self.dead_letters.is_empty()
            && self.letters.is_empty()
            && self.keys.is_empty()
    }
}

/// Decides a batch on what was loaded. Pure; may be called again when the transaction has to be repeated,
/// so only the answer of the last call counts.
pub type Decide = Box<dyn FnMut(Loaded) -> Writes + Send>;

/// An outbox entry that waits to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxEntry {
    /// Position: entries are published in this order.
    pub seq: i64,
    /// Message id.
    pub id: Uuid,
    /// Subject.
    pub subject: String,
    /// The envelope's bytes.
    pub payload: Bytes,
}

/// The outcome of publishing a batch, to be settled.
#[derive(Debug, Clone, Default)]
pub struct Published {
    /// Entries that the broker has.
    pub done: Vec<i64>,
    /// Entries that the broker will never take, with the reason: they become `FAILED`.
    pub refused: Vec<(i64, String)>,
    /// Why the first of the rest was not published.
    pub delayed: Option<(i64, String)>,
}

/// Permission to publish, until a time, under a fencing token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it.
    pub owner: String,
    /// Grows with each taking: a settlement under an older one has no effect.
    pub fence: i64,
}

/// How to look for what is due.
#[derive(Debug, Clone)]
pub struct Look {
    /// Due until when.
    pub now: Timestamp,
    /// At most this many rows of a kind, and retries.
    pub limit: usize,
    /// At most this many tasks.
    pub tasks: usize,
    /// Steps whose retries stay where they are.
    pub paused: Vec<String>,
    /// Who claims the tasks.
    pub owner: String,
    /// Until when.
    pub until: Timestamp,
    /// Claims of `owner` on tasks older than `now` are an earlier life's, and void.
    pub recover: bool,
}

/// What has come due.
#[derive(Debug, Clone, Default)]
pub struct Due {
    /// Rows, each with its due time.
    pub rows: Vec<(RowKey, Timestamp)>,
    /// Retries.
    pub retries: Vec<Retry>,
    /// Tasks, now claimed by the caller.
    pub tasks: Vec<Task>,
    /// When the next thing will come due.
    pub next: Option<Timestamp>,
}

/// How to look rows up.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Field equals value; the special field `id` too.
    pub equals: Vec<(&'static str, FieldValue)>,
    /// Field is less than value.
    pub below: Vec<(&'static str, FieldValue)>,
    /// Field is value or more.
    pub from: Vec<(&'static str, FieldValue)>,
    /// Field is one of the values.
    pub one_of: Vec<(&'static str, Vec<FieldValue>)>,
    /// The state as JSON contains this text.
    pub text: Option<String>,
    /// Sorts by a field first, then by id; by id alone without it.
    pub order: Option<Order>,
    /// Start behind this id.
    pub after: Option<String>,
    /// Highest first (newest first, where ids are UUIDv7).
    pub descending: bool,
    /// At most this many.
    pub limit: usize,
}

/// How rows are sorted.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    /// A field that holds a number or a time in every row.
    pub field: &'static str,
    /// Its value in the row that [`Query::after`] names.
    pub after: Option<i64>,
}

/// Rows of a kind that have the same value in a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The value.
    pub value: String,
    /// How many rows have it.
    pub count: u64,
    /// The least value of the field of times among them.
    pub first: i64,
    /// The greatest.
    pub last: i64,
    /// Id of the one with the greatest.
    pub latest: String,
}

/// A row that a query found.
#[derive(Debug, Clone)]
pub struct FoundRow {
    /// Id.
    pub id: String,
    /// Version.
    pub version: i64,
    /// State as JSON.
    pub state: String,
    /// First written.
    pub created_at: Timestamp,
    /// Last written.
    pub updated_at: Timestamp,
}

/// The state of the machinery, for health, metrics and the operator.
#[derive(Debug, Clone, Default, Serialize, serde::Deserialize)]
pub struct Stats {
    /// Entries that wait to be published.
    pub outbox_pending: u64,
    /// Entries that the broker refused for good.
    pub outbox_failed: u64,
    /// When the oldest waiting entry was written.
    pub outbox_oldest: Option<Timestamp>,
    /// Retries that wait.
    pub retries: u64,
    /// Open tasks.
    pub tasks: u64,
    /// When the oldest open task was written: one that is never answered shows here.
    #[serde(default)]
    pub task_oldest: Option<Timestamp>,
    /// Dead letters that wait for a human or are being replayed.
    pub dead_letters: u64,
}

/// Counts by subject and by step, for the books.
#[derive(Debug, Clone, Default, Serialize, serde::Deserialize)]
pub struct Tallies {
    /// Distinct facts published, by subject.
    pub published: BTreeMap<String, u64>,
    /// Messages handled, by step.
    pub handled: BTreeMap<String, u64>,
    /// Messages that wait for another try, by step.
    pub retrying: BTreeMap<String, u64>,
    /// Messages that are parked or given up, by step.
    pub dead: BTreeMap<String, u64>,
}

/// An outbox entry as the operator sees it.
#[derive(Debug, Clone, Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct OutboxItem {
    /// Position.
    pub seq: i64,
    /// Message id.
    pub id: Uuid,
    /// Subject.
    pub subject: String,
    /// `PENDING` or `FAILED`.
    pub status: String,
    /// Tries.
    pub attempts: u32,
    /// What the last try said.
    pub last_error: Option<String>,
    /// When it was written.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// What a check of all rows against their events found.
#[derive(Debug, Clone, Default, Serialize, serde::Deserialize, PartialEq, Eq)]
pub struct FoldReport {
    /// Rows looked at.
    pub rows: u64,
    /// Events folded.
    pub events: u64,
    /// Rows that differ from the fold of their events, as `kind/id`; at most 100.
    pub differing: Vec<String>,
    /// Digest over all rows, so that two states of a table can be told apart.
    pub digest: String,
}

/// How long finished things are kept.
#[derive(Debug, Clone, Copy)]
pub struct Cutoffs {
    /// Inbox marks older than this go.
    pub inbox: Timestamp,
    /// Idempotency keys older than this go.
    pub keys: Timestamp,
}

/// The answer of a [`Store`].
pub type Answer<'a, T> = BoxFuture<'a, Result<T, StoreFault>>;

/// A database, as the rest of the crate sees it.
pub trait Store: Send + Sync + 'static {
    /// Runs one batch as one transaction: loads `reads`, calls `decide`, writes what it returns, commits.
    /// When it answers `Ok`, everything is durable; otherwise nothing happened.
    fn transact(&self, reads: Reads, decide: Decide) -> Answer<'_, ()>;

    /// Takes or renews the relay's lease. `None` while somebody else holds it.
    fn take_lease<'a>(
        &'a self,
        held: Option<&'a Lease>,
        owner: &'a str,
        now: Timestamp,
        until: Timestamp,
    ) -> Answer<'a, Option<Lease>>;

    /// The oldest entries that wait and may be tried at `now`, in order.
    fn pending(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<OutboxEntry>>;

    /// Ends the claim on published entries. `false` when the lease has lapsed: then nothing happened.
    fn settle(&self, lease: &Lease, published: Published, now: Timestamp) -> Answer<'_, bool>;

    /// Puts `FAILED` entries back in line; all of them, or one. Answers how many.
    fn retry_failed(&self, seq: Option<i64>) -> Answer<'_, u64>;

    /// What is due. The tasks among it are claimed.
    fn due(&self, look: Look) -> Answer<'_, Due>;

    /// One row.
    fn row(&self, key: RowKey) -> Answer<'_, Option<FoundRow>>;

    /// Rows of a kind.
    fn find(&self, kind: &'static str, query: Query) -> Answer<'_, Vec<FoundRow>>;

    /// Counts the rows that `query` finds, by the value of the field `by`; empty for rows without one.
    fn counts(&self, kind: &'static str, by: &'static str, query: Query)
    -> Answer<'_, BTreeMap<String, u64>>;

    /// The same with more, which takes longer: when the first and the last of each group were, by `times`, a field
    /// of times. Largest group first; `query.limit` bounds the groups.
    fn groups(
        &self,
        kind: &'static str,
        by: &'static str,
        times: &'static str,
        query: Query,
    ) -> Answer<'_, Vec<Group>>;

    /// A row's history, oldest first.
    fn events(&self, key: RowKey) -> Answer<'_, Vec<StoredEvent>>;

    /// The machinery's state.
    fn stats(&self) -> Answer<'_, Stats>;

    /// What was ever published and handled, and what waits or is parked.
    fn tallies(&self) -> Answer<'_, Tallies>;

    /// Outbox entries for the operator, oldest first.
    fn outbox(&self, limit: usize) -> Answer<'_, Vec<OutboxItem>>;

    /// Dead letters for the operator, newest first.
    fn dead_letters(&self, limit: usize) -> Answer<'_, Vec<StoredLetter>>;

    /// Checks every row of every kind against the fold of its events.
    fn verify(&self) -> Answer<'_, FoldReport>;

    /// Deletes the rows of `kind` and folds them anew from the events. Answers how many rows there are.
    fn rebuild(&self, kind: &'static str) -> Answer<'_, u64>;

    /// Deletes finished things older than the cutoffs, at most `limit` of each. Answers how many went.
    fn trim(&self, cutoffs: Cutoffs, limit: usize) -> Answer<'_, u64>;
}
