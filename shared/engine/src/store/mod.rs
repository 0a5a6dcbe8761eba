//! Shell: what the engine, the relay and the timers ask of a database.
//!
//! One trait, implemented by [`sqlite::SqliteStore`] and [`postgres::PostgresStore`]. It speaks in whole batches (reads up front, writes as
//! lists), so that an implementation may answer each list with one set-based statement.

mod as_of;
mod checking;
mod leasing;
mod leaving;
mod migrating;
pub mod postgres;
pub mod sqlite;
mod units;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use saga_core::dead_letter::StoredDeadLetter;
use saga_core::decision::{Decide, Reads};
pub use saga_core::outbox::OutboxItem;
use saga_core::query::{FoundRow, Group, Join, Joined, Query};
use saga_core::row::{RowKey, StoredEvent};
use saga_core::service_stats::{MessageCounts, StoreStats};
use saga_core::trace::TraceContext;
use saga_core::waiting::{Retry, Task};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

pub use self::checking::{CheckedPage, CheckedRow, CheckedRows, FoldReport, Part};
pub use self::leasing::{Lease, RELAY};
pub use self::leaving::{Departures, Leaving, LeavingEvent, LeavingRow, Left, Snapshot};

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
    /// The database will never take this: something is in its way that is there already, or it cannot be read.
    #[error("database: {context}")]
    Refused {
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

impl StoreFault {
    /// Whether it is about what was to be stored, so that something else may be stored all the same.
    #[must_use]
    pub const fn is_of_the_batch(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::Conflict(_) | Self::Unusable(_) | Self::Panicked(_) => true,
            Self::Database { .. } | Self::Closed => false,
        }
    }
}

/// How a database is opened.
#[derive(Debug, Clone, Copy)]
pub struct Opening<'a> {
    /// Whose it must be; empty for whoever's.
    pub service: &'a str,
    /// Whether it must be there already.
    pub must_exist: bool,
    /// How long its pages may be checked.
    pub check_within: Duration,
    /// The name of a loss that is accepted, as the refusal gave it.
    pub accept_loss: &'a str,
    /// The name of this process among those that share the database; empty for none.
    pub instance: &'a str,
    /// Whether nobody else may have it open.
    pub alone: bool,
    /// How long a server that is away, or is starting, is waited for.
    pub wait: Duration,
}

impl Default for Opening<'_> {
    fn default() -> Self {
        Self {
            service: "",
            must_exist: false,
            check_within: Duration::from_secs(5),
            accept_loss: "",
            instance: "",
            alone: false,
            wait: Duration::ZERO,
        }
    }
}

/// An outbox entry that waits to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxEntry {
    /// Position: entries are published in this order.
    pub seq: i64,
    /// Id of the message: by it the broker and every inbox know a repetition.
    pub id: Uuid,
    /// Its saga: entries of one saga never overtake each other.
    pub saga: Uuid,
    /// Subject it is published to, e.g. `order.created`.
    pub subject: String,
    /// The envelope's bytes.
    pub payload: Bytes,
    /// Where whatever caused it stands in its trace.
    pub trace: Option<TraceContext>,
}

/// The outcome of publishing a batch, to be settled.
#[derive(Debug, Clone, Default)]
pub struct Published {
    /// Entries that the broker has.
    pub done: Vec<i64>,
    /// Entries that the broker will never take, with the reason: they become `FAILED`, and what their sagas promised
    /// after them is held.
    pub refused: Vec<(i64, String)>,
    /// Why the first of the rest was not published.
    pub delayed: Option<(i64, String)>,
}

/// Entries that follow each other in line, all of which the broker has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedRun {
    /// Position of the first.
    pub first: i64,
    /// Position of the last.
    pub last: i64,
    /// How many there are of each subject.
    pub subjects: BTreeMap<String, i64>,
    /// When the broker had them.
    pub at: Timestamp,
}

/// What is published again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Republished {
    /// Entries that were marked.
    pub count: usize,
    /// Position of the last of them.
    pub last: Option<i64>,
}

/// How to look for what is due.
#[derive(Debug, Clone)]
pub struct DueQuery {
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
    /// For how long the tasks are claimed. A claim that lasts longer than any can is void.
    pub lease: SignedDuration,
    /// The longest delay before another try. What waits longer than any can is due.
    pub longest_delay: SignedDuration,
    /// Claims of `owner` on tasks older than `now` are an earlier life's, and void.
    pub recover: bool,
}

/// What has come due.
#[derive(Debug, Clone, Default)]
pub struct Due {
    /// Rows, each with its due time.
    pub rows: Vec<(RowKey, Timestamp)>,
    /// Messages to try again, but for those of paused steps.
    pub retries: Vec<Retry>,
    /// Tasks, now claimed by the caller.
    pub tasks: Vec<Task>,
    /// When the next thing will come due.
    pub next: Option<Timestamp>,
}

/// What operators have the machinery do otherwise, as it was left last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overridden {
    /// Grows with each change.
    pub revision: i64,
    /// What it is, in whatever form it was left.
    pub text: String,
}

/// A task whose call was tried in vain, and will be tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingTask {
    /// The task.
    pub task: Task,
    /// When it is tried again.
    pub next_attempt: Timestamp,
    /// What the last try said.
    pub last_error: String,
}

/// Dead letters as a store finds them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoredDeadLetters {
    /// Newest first.
    pub readable: Vec<StoredDeadLetter>,
    /// Ids of those that cannot be read, the digits of an id that is none: one that is damaged hides no other.
    pub unreadable: Vec<String>,
}

/// The id of a row, and how it was at some time with its history up to then; `None` when that cannot be told any more.
pub type RowAsOf = (String, Option<(FoundRow, Vec<StoredEvent>)>);

/// Rows that have changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Their ids, in no order of meaning, each once.
    pub ids: Vec<String>,
    /// The position of the last event that was looked at; that of the look before when there was none.
    pub up_to: i64,
    /// Whether there was no more.
    pub is_over: bool,
}

/// How far a database has come: which one it is, and what it holds that only grows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The service that it belongs to.
    pub service: String,
    /// Its own id: another database of the same service has another.
    pub id: Uuid,
    /// Position of the last event.
    pub events: i64,
    /// Messages that were ever handled and published.
    pub messages: i64,
}

/// How long finished things are kept.
#[derive(Debug, Clone, Copy)]
pub struct Cutoffs {
    /// Inbox marks older than this go.
    pub inbox: Timestamp,
    /// Idempotency keys older than this go.
    pub keys: Timestamp,
    /// Outbox entries that were published before this go.
    pub published: Timestamp,
}

/// What another process has committed that shares the database: a hint, which may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// There is something to publish.
    Promised,
    /// Something comes due then.
    Due(Timestamp),
    /// Rows have changed.
    Changed(Vec<RowKey>),
    /// Operators have overridden something.
    Overridden,
    /// Perhaps any of these: what was said meanwhile was not heard.
    Anything,
}

/// The answer of a [`Store`].
pub type Answer<'a, T> = BoxFuture<'a, Result<T, StoreFault>>;

/// What lasts until it is dropped: a turn, a wait.
pub struct Guard(#[expect(dead_code, reason = "it is there to be dropped")] Box<dyn Send>);

impl Guard {
    /// One that is over when `held` is dropped.
    pub fn of(held: impl Send + 'static) -> Self {
        Self(Box::new(held))
    }
}

/// A database, as the rest of the crate sees it. A look-up of one row, the relay's look and the statistics wait
/// for no list, count or check; what is dropped before it is done is interrupted.
///
/// Several processes may share one, where the implementation allows it. Where two of them meet, this holds:
/// - Batches are committed one after the other, and positions of events and entries are given in the order of the commits.
/// - Two batches that change one row, or handle one message or key: one of them is decided on what the other has left.
/// - A task that is due is claimed by one; under a claim that was taken over a failure has no effect.
/// - A lease is one process's at a time. One relay has that of its name; what it settles once somebody else has it has no effect.
/// - A retry that is due is told to one of them, and to another when that one has done nothing about it for some seconds.
/// - Rows that are due are told to all; whoever decides second finds them looked at.
/// - What leaves or is trimmed is left alone while a batch has it in its hands.
pub trait Store: Send + Sync + 'static {
    /// Runs one batch as one transaction: loads `reads`, calls `decide`, writes what it returns, commits.
    /// When it answers `Ok`, everything is durable; otherwise nothing happened. After a [`StoreFault::Conflict`] the
    /// caller runs it again; after another fault [of the batch](StoreFault::is_of_the_batch), parts of it may work.
    ///
    /// Answers all that the batch has promised, as it stands in line now: whoever publishes that need not read it. Answers
    /// nothing when it does not know the places, or when anything stands out of line, which goes before.
    fn transact(&self, reads: Reads, decide: Decide) -> Answer<'_, Vec<OutboxEntry>>;

    /// Waits until it is this process's turn among those that share the database, a moment at most; `None` when it is not, or
    /// nobody else is there. Nothing but the pace depends on it: whoever begins a batch in its turn finds rows that nobody
    /// else is about to change, and while it waited, more has come that goes into the same batch.
    fn turn(&self) -> BoxFuture<'_, Option<Guard>> {
        Box::pin(std::future::ready(None))
    }

    /// Whether other processes may share it.
    fn is_shared(&self) -> bool {
        false
    }

    /// What other processes that share this database commit, to the first who asks; `None` where nobody shares it. Of rows
    /// only what is waited for ([`Store::wait_for`]), and nothing that comes due later than in a second, for which every
    /// process looks by itself.
    fn heard(&self) -> Option<mpsc::Receiver<Heard>> {
        None
    }

    /// Somebody here waits for changes of rows of this kind, until the answer is dropped: others tell theirs. They may not
    /// know it yet when it returns, so that whoever waits looks now and then.
    fn wait_for(&self, _kind: &'static str) -> Option<Guard> {
        None
    }

    /// Whether this process leads those that share the database: it has the lease of the relay, as far as it knows. `None`
    /// where nobody shares it.
    fn leads(&self) -> Option<watch::Receiver<bool>> {
        None
    }

    /// Takes or renews a lease of this name. `None` while somebody else holds it, for no longer than the same while.
    fn take_lease<'a>(
        &'a self,
        name: &'static str,
        held: Option<&'a Lease>,
        owner: &'a str,
        now: Timestamp,
        until: Timestamp,
    ) -> Answer<'a, Option<Lease>>;

    /// Gives back the lease of this name that `owner` has, if it does: others need not wait until it lapses. Nobody waits
    /// where nobody shares the database.
    fn give_back_lease<'a>(&'a self, name: &'static str, owner: &'a str) -> Answer<'a, ()> {
        let _ = (name, owner);
        Box::pin(std::future::ready(Ok(())))
    }

    /// What is to be published next, at most `limit`: what is tried again, what stands in line, and beside these a share
    /// of what is published again. None of it stands behind a failed entry of its saga.
    fn pending(&self, limit: usize) -> Answer<'_, Vec<OutboxEntry>>;

    /// What stands in line behind a position up to which all is published, at most `limit`; `None` when anything stands out of
    /// line, which goes before.
    fn behind(&self, position: i64, limit: usize) -> Answer<'_, Option<Vec<OutboxEntry>>>;

    /// The position of the last entry, when all entries stand in line: nothing was refused, or is published again.
    fn line_end(&self) -> Answer<'_, Option<i64>>;

    /// Writes down what became of entries that were published, up to the first in line that was not. `false` when the
    /// lease has lapsed: then nothing happened.
    fn settle(&self, lease: &Lease, published: Published, now: Timestamp) -> Answer<'_, bool>;

    /// The same of entries all of which the broker has. Nobody waits for it: it may be carried by another commit. `false`
    /// also when something stands in line before them; then nothing happened either.
    fn settle_run(&self, lease: &Lease, run: PublishedRun) -> Answer<'_, bool>;

    /// So far apart two of those should begin: what is published meanwhile goes into the next.
    fn settles_apart(&self) -> Duration {
        Duration::ZERO
    }

    /// Puts `FAILED` entries back, with what is held behind them; all of them, or one. Answers how many had failed.
    fn retry_failed(&self, seq: Option<i64>) -> Answer<'_, u64>;

    /// Has published again what was published since a time, as far as it is still kept: the next `limit` entries behind
    /// the position `after`, 0 at first.
    fn republish(&self, since: Timestamp, after: i64, limit: usize) -> Answer<'_, Republished>;

    /// What is due. The tasks among it are claimed.
    fn due(&self, query: DueQuery) -> Answer<'_, Due>;

    /// The row of this key; `None` when no event ever made it.
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

    /// Counts the rows that `query` finds by two of their fields and one of the row of another kind that each names;
    /// its limit does not matter.
    fn joined(&self, kind: &'static str, join: Join, query: Query) -> Answer<'_, Vec<Joined>>;

    /// A page of a row's history, oldest first: at most `limit` events behind the version `after`.
    fn events(&self, key: RowKey, after: i64, limit: usize) -> Answer<'_, Vec<StoredEvent>>;

    /// The whole histories of these rows, oldest event first, in the order of the ids. Not for rows whose history has no
    /// end: all of it is in memory.
    fn histories(&self, kind: &'static str, ids: Vec<String>) -> Answer<'_, Vec<Vec<StoredEvent>>>;

    /// These rows as they were when the event at position `seq` was the last, each with its history up to there; none of
    /// those that were not there yet, and nothing of one whose history is no longer whole.
    fn rows_as_of(&self, kind: &'static str, ids: Vec<String>, seq: i64) -> Answer<'_, Vec<RowAsOf>>;

    /// The rows of `kind` among the next `limit` events behind the position `after`.
    fn changes(&self, kind: &'static str, after: i64, limit: usize) -> Answer<'_, Changes>;

    /// What tells the event at a position from any other there; `None` when there is none.
    fn fingerprint(&self, seq: i64) -> Answer<'_, Option<String>>;

    /// How far it has come.
    fn mark(&self) -> Answer<'_, Mark>;

    /// When the oldest was published of what is kept in its place; `None` when nothing is. What was published out of
    /// line or once more does not count.
    fn kept_since(&self) -> Answer<'_, Option<Timestamp>>;

    /// The machinery's state.
    fn stats(&self) -> Answer<'_, StoreStats>;

    /// What was ever published and handled, and what waits or is parked.
    fn tallies(&self) -> Answer<'_, MessageCounts>;

    /// Outbox entries for the operator, oldest first.
    fn outbox(&self, limit: usize) -> Answer<'_, Vec<OutboxItem>>;

    /// Tasks that were tried in vain, for the operator, oldest first.
    fn failing_tasks(&self, limit: usize) -> Answer<'_, Vec<FailingTask>>;

    /// Dead letters for the operator, newest first.
    fn dead_letters(&self, limit: usize) -> Answer<'_, StoredDeadLetters>;

    /// Checks every row of every kind against the fold of its events.
    fn verify(&self) -> Answer<'_, FoldReport>;

    /// What [`verify`](Self::verify) checks, in parts. The store remembers how far one check has come; beside another one it
    /// may begin a kind anew, and ends all the same.
    fn verify_part(&self, part: Part) -> Answer<'_, FoldReport>;

    /// What [`verify`](Self::verify) checks, of the rows that have events among the next `events` behind the position
    /// `after`, but not of those whose history is longer than a look at what has changed should take;
    /// [`FoldReport::next`] is the position behind them.
    fn verify_changed(&self, after: i64, events: u64) -> Answer<'_, FoldReport>;

    /// A page of the rows of a kind, and the same check of them: of one moment, and read once.
    fn checked_rows(&self, kind: &'static str, page: CheckedPage) -> Answer<'_, CheckedRows>;

    /// Deletes the rows of `kind` and folds them anew from the events. Answers how many rows there are.
    fn rebuild(&self, kind: &'static str) -> Answer<'_, u64>;

    /// Brings back events of a kind that had left; those that are there already are left alone. Where all that a snapshot
    /// stands for is there again, it is forgotten. The rows of the kind are to be folded anew then. Answers how many events
    /// there are more.
    fn bring_back(&self, kind: &'static str, events: Vec<LeavingEvent>) -> Answer<'_, u64>;

    /// What may leave next: about `limit` events, and once there are none as many dead letters. Nothing has left yet.
    fn departures(&self, before: Departures, limit: usize) -> Answer<'_, Leaving>;

    /// What of the rows of a kind has left.
    fn left(&self, kind: &'static str) -> Answer<'_, Left>;

    /// Has it leave, but for what has changed meanwhile. Nobody waits for it: it may be carried by another commit.
    /// Answers how much has left.
    fn depart(&self, leaving: Leaving) -> Answer<'_, u64>;

    /// Deletes finished things older than the cutoffs, at most `limit` of each. Answers how many went.
    fn trim(&self, cutoffs: Cutoffs, limit: usize) -> Answer<'_, u64>;

    /// What operators have the machinery do otherwise.
    fn overrides(&self) -> Answer<'_, Overridden>;

    /// Leaves another text there, in place of the one of this revision. `false` when that is there no more: then nothing
    /// happened.
    fn override_with(&self, revision: i64, text: String) -> Answer<'_, bool>;
}
