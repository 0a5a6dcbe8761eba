//! Shell: roles of a store, a small trait each, so that a reader gets a trait that only reads.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use saga_core::decision::{Decide, Reads};
use saga_core::query::{FoundRow, Group, Join, Joined, Query};
use saga_core::row::{RowKey, StoredEvent};
use saga_core::service_stats::{MessageCounts, StoreStats};
use tokio::sync::{mpsc, watch};

use super::{
    Answer, Changes, DatabasePosition, Due, DueQuery, FailingTask, Guard, Lease, OutboxEntry, OutboxItem,
    PublishOutcome, PublishedRun, PurgeBatch, PurgedEvent, PurgedRows, ReplicaSignal, RepublishPage,
    RetentionCutoffs, RowAt, StoredDeadLetters, StoredOverrides, TrimCutoffs, VerificationPart,
    VerificationReport, VerifiedPage, VerifiedRows,
};

/// Executes batches, each in one transaction.
pub trait Transactions: Send + Sync {
    /// Runs one batch in one transaction: loads `reads`, calls `decide`, writes the result, commits.
    ///
    /// `Ok` means that everything is durable; a fault means that nothing happened. After a
    /// [`Conflict`](super::StoreFault::Conflict) the caller runs the batch again. After another fault
    /// [of the batch](super::StoreFault::is_caused_by_batch), parts of it may succeed.
    ///
    /// Returns the outbox entries of the batch with their positions, so that the relay need not read them. Returns none if
    /// the positions are unknown, or if an entry out of sequence must be published first.
    fn transact(&self, reads: Reads, decide: Decide) -> Answer<'_, Vec<OutboxEntry>>;

    /// Waits for this replica's turn to begin a batch, for a short time at most. `None` if it got no turn, or needs none.
    ///
    /// Turns only affect throughput. A batch that begins in its turn finds rows that no other replica is changing, and
    /// gathers more inputs while it waits.
    fn wait_for_turn(&self) -> BoxFuture<'_, Option<Guard>> {
        Box::pin(std::future::ready(None))
    }
}

/// Coordinates the replicas that share a database. The defaults suit a database of one process.
pub trait Replicas: Send + Sync {
    /// True if other processes may share the database.
    fn is_shared(&self) -> bool {
        false
    }

    /// Signals about commits of other replicas, for the first caller; `None` if the database is not shared.
    ///
    /// Rows are signalled only for [watched kinds](Replicas::watch_kind). Due times are signalled only within the next
    /// second: later ones are found by polling.
    fn signals(&self) -> Option<mpsc::Receiver<ReplicaSignal>> {
        None
    }

    /// Asks other replicas to signal changed rows of this kind until the guard is dropped. They learn it with a delay, so
    /// that the caller polls as well.
    fn watch_kind(&self, _kind: &'static str) -> Option<Guard> {
        None
    }

    /// True while this replica holds the relay's lease, as far as it knows; `None` if the database is not shared.
    fn leadership(&self) -> Option<watch::Receiver<bool>> {
        None
    }
}

/// Grants exclusive leases to one replica at a time.
pub trait Leases: Send + Sync {
    /// Acquires or renews the lease of this name until `until`; `None` while another owner holds it.
    fn acquire_lease<'a>(
        &'a self,
        name: &'static str,
        held: Option<&'a Lease>,
        owner: &'a str,
        now: Timestamp,
        until: Timestamp,
    ) -> Answer<'a, Option<Lease>>;

    /// Releases the lease of this name, if `owner` holds it, so that others need not wait for its end.
    fn release_lease<'a>(&'a self, name: &'static str, owner: &'a str) -> Answer<'a, ()>;
}

/// Hands outbox entries to the relay, and settles them.
pub trait Outbox: Send + Sync {
    /// Entries to publish next, at most `limit`: first those to retry, then pending ones in sequence, then a share of those
    /// to republish. Skips entries behind a failed one of their saga.
    fn pending_entries(&self, limit: usize) -> Answer<'_, Vec<OutboxEntry>>;

    /// Pending entries after a position up to which everything is published, at most `limit`; `None` while any entry is out
    /// of sequence, which must be published first.
    fn entries_after(&self, position: i64, limit: usize) -> Answer<'_, Option<Vec<OutboxEntry>>>;

    /// Position of the last entry; `None` while any entry is out of sequence.
    fn sequence_end(&self) -> Answer<'_, Option<i64>>;

    /// Settles published entries, up to the first one in sequence that was not published. Returns `false`, and changes
    /// nothing, if the lease is outdated.
    fn settle(&self, lease: &Lease, outcome: PublishOutcome, now: Timestamp) -> Answer<'_, bool>;

    /// Settles consecutive entries that were all published. The store may delay it until its next commit.
    ///
    /// Returns `false`, and changes nothing, if the lease is outdated or an earlier entry is pending.
    fn settle_run(&self, lease: &Lease, run: PublishedRun) -> Answer<'_, bool>;

    /// Minimum interval between calls of [`settle_run`](Outbox::settle_run), where each costs a commit of its own.
    fn min_settle_interval(&self) -> Duration {
        Duration::ZERO
    }

    /// Makes failed entries pending again, with the blocked ones behind them: all, or the one at position `seq`. Returns
    /// the number of failed ones.
    fn retry_failed_entries(&self, seq: Option<i64>) -> Answer<'_, u64>;

    /// Marks entries that were published since a time to be published again: the next `limit` after position `after`.
    fn republish(&self, since: Timestamp, after: i64, limit: usize) -> Answer<'_, RepublishPage>;

    /// Publication time of the oldest entry that is still kept; `None` if none is. Ignores entries published out of
    /// sequence.
    fn kept_since(&self) -> Answer<'_, Option<Timestamp>>;
}

/// Finds and claims work that is due.
pub trait DueWork: Send + Sync {
    /// Finds due rows, retries and tasks, and claims the tasks.
    fn claim_due(&self, query: DueQuery) -> Answer<'_, Due>;
}

/// Reads rows and their events.
pub trait Queries: Send + Sync {
    /// Reads the row of this key; `None` if it does not exist.
    fn row(&self, key: RowKey) -> Answer<'_, Option<FoundRow>>;

    /// Finds rows of a kind.
    fn find(&self, kind: &'static str, query: Query) -> Answer<'_, Vec<FoundRow>>;

    /// Counts the rows that `query` finds by the value of field `by`; rows without a value count as the empty text.
    fn counts(&self, kind: &'static str, by: &'static str, query: Query)
    -> Answer<'_, BTreeMap<String, u64>>;

    /// Counts like [`counts`](Queries::counts), with the first and last time of each group by the field `times`. The
    /// largest group comes first; `query.limit` bounds the groups. Slower than `counts`.
    fn groups(
        &self,
        kind: &'static str,
        by: &'static str,
        times: &'static str,
        query: Query,
    ) -> Answer<'_, Vec<Group>>;

    /// Counts the rows that `query` finds by two of their fields and one of a related row. Ignores the query's limit.
    fn joined(&self, kind: &'static str, join: Join, query: Query) -> Answer<'_, Vec<Joined>>;

    /// A page of a row's history, oldest first: at most `limit` events after version `after`.
    fn events(&self, key: RowKey, after: i64, limit: usize) -> Answer<'_, Vec<StoredEvent>>;

    /// Whole histories of these rows, in the order of the ids, all in memory. Unsuitable for rows with unbounded history.
    fn histories(&self, kind: &'static str, ids: Vec<String>) -> Answer<'_, Vec<Vec<StoredEvent>>>;
}

/// Reads past states, and what changed since.
pub trait History: Send + Sync {
    /// Reads these rows as of the event at position `seq`, each with its history until then. Omits rows that did not exist yet.
    fn rows_at(&self, kind: &'static str, ids: Vec<String>, seq: i64) -> Answer<'_, Vec<RowAt>>;

    /// Rows of `kind` among the next `limit` events after position `after`.
    fn changed_rows(&self, kind: &'static str, after: i64, limit: usize) -> Answer<'_, Changes>;

    /// Hash that distinguishes the event at a position from any other; `None` if there is no event.
    fn event_fingerprint(&self, seq: i64) -> Answer<'_, Option<String>>;

    /// Identity and progress of the database. Fails if it is below a position that this process has seen before.
    fn position(&self) -> Answer<'_, DatabasePosition>;

    /// Fails, from now on with every other operation, if the database is below a position that was recorded elsewhere.
    fn check_position(&self, recorded: DatabasePosition) -> Answer<'_, ()>;

    /// Records that an operator accepted the loss of this name, once per name.
    fn accept_loss(&self, name: String, now: Timestamp) -> Answer<'_, ()>;

    /// Time of the last accepted loss; `None` if there was none.
    fn lost_before(&self) -> Answer<'_, Option<Timestamp>>;
}

/// Verifies rows against their events, and rebuilds them.
pub trait Verification: Send + Sync {
    /// Verifies every row of every kind against the fold of its events.
    fn verify(&self) -> Answer<'_, VerificationReport>;

    /// Verifies a part of all rows. The store keeps progress in memory for one verification at a time. A second one beside it
    /// may have to restart a kind, and still ends.
    fn verify_part(&self, part: VerificationPart) -> Answer<'_, VerificationReport>;

    /// Verifies the rows that changed in the next `events` events after position `after`. Skips rows with a long history.
    /// [`VerificationReport::next`] is the position to continue from.
    fn verify_changed(&self, after: i64, events: u64) -> Answer<'_, VerificationReport>;

    /// Reads a page of rows of a kind and verifies them, in one snapshot.
    fn verified_rows(&self, kind: &'static str, page: VerifiedPage) -> Answer<'_, VerifiedRows>;

    /// Deletes the rows of `kind` and folds them again from their events. Returns the number of rows.
    fn rebuild(&self, kind: &'static str) -> Answer<'_, u64>;
}

/// Purges old history and trims finished entries.
pub trait Retention: Send + Sync {
    /// Finds what may be purged next: about `limit` events, and after the last of them dead letters. Purges nothing.
    fn find_purgeable(&self, before: RetentionCutoffs, limit: usize) -> Answer<'_, PurgeBatch>;

    /// Purges a batch, except for what has changed since it was found. The store may delay it until its next commit.
    /// Returns the number of purged events and dead letters.
    fn purge(&self, batch: PurgeBatch) -> Answer<'_, u64>;

    /// Summary of the purged rows of a kind.
    fn purged_rows(&self, kind: &'static str) -> Answer<'_, PurgedRows>;

    /// Restores purged events of a kind; skips those that exist. The caller rebuilds the kind afterwards. Returns the number
    /// of restored events.
    fn restore_events(&self, kind: &'static str, events: Vec<PurgedEvent>) -> Answer<'_, u64>;

    /// Deletes inbox ids, idempotency keys and published entries older than the cutoffs, at most `limit` of each. Returns
    /// the number of deleted ones.
    fn trim(&self, cutoffs: TrimCutoffs, limit: usize) -> Answer<'_, u64>;
}

/// Reads what operators and metrics show.
pub trait Monitoring: Send + Sync {
    /// Numbers of waiting entries, retries, tasks and dead letters.
    fn stats(&self) -> Answer<'_, StoreStats>;

    /// Reason why a write would fail now; `None` if it would succeed, as far as is known.
    fn write_problem(&self) -> Option<String> {
        None
    }

    /// Writes something that changes nothing, if no other write has shown for a while that the database takes writes.
    fn probe_write(&self) -> Answer<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Time of the database server; `None` if the database has no clock of its own.
    fn clock(&self) -> Answer<'_, Option<Timestamp>>;

    /// Numbers of messages published, processed, waiting and dead-lettered in the lifetime of the database.
    fn message_counts(&self) -> Answer<'_, MessageCounts>;

    /// Outbox entries that are not published, oldest first.
    fn outbox_items(&self, limit: usize) -> Answer<'_, Vec<OutboxItem>>;

    /// Tasks whose last attempt failed, oldest first.
    fn failing_tasks(&self, limit: usize) -> Answer<'_, Vec<FailingTask>>;

    /// Dead letters for operators, newest first.
    fn dead_letters(&self, limit: usize) -> Answer<'_, StoredDeadLetters>;
}

/// Keeps the overrides by operators.
pub trait Overrides: Send + Sync {
    /// Overrides that are stored now.
    fn overrides(&self) -> Answer<'_, StoredOverrides>;

    /// Replaces the overrides of this revision. Returns `false`, and changes nothing, if the revision is outdated.
    fn replace_overrides(&self, revision: i64, text: String) -> Answer<'_, bool>;
}
