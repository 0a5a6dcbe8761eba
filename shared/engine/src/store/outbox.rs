//! Shell: outbox entries on their way to the broker.
//!
//! Entries have a sequence. Those that are published in sequence have no status: a `publication` row says up to where the
//! sequence is published, so that settling writes nothing to the entries. An entry that cannot be published in sequence has a
//! status. A transaction that takes entries out of sequence, or back, locks the log, so that no batch interferes.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use saga_core::trace::TraceContext;
use uuid::Uuid;

use super::backend::{Backend, Lane, Urgency};
use super::encoding::{micros, timestamp};
use super::leases::Lease;
use super::replicas::ReplicaSignal;
use super::roles::Outbox;
use super::settle::{IS_BLOCKED, PUBLISHED_UP_TO, PublishOutcome, PublishedRun, settle, settle_run};
use super::sql::{Row, Sql, limit_of};
use super::sql_error::{SqlError, db_fault};
use super::{Answer, OutboxItem};

/// Columns of an [`OutboxEntry`], in the order that [`entry`] reads.
const ENTRY: &str = "seq, id, saga, subject, payload, trace";

/// Entries to republish are at most a fourth of a batch, so that new entries do not wait for them.
const REPUBLISH_DIVISOR: i64 = 4;

const READING: &str = "reading the outbox";
const SETTLEMENT: &str = "settling published entries";

/// Outbox entry to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxEntry {
    /// Position: entries are published in this order.
    pub seq: i64,
    /// Message id, by which the broker and every inbox recognise duplicates.
    pub id: Uuid,
    /// Saga of the message. Entries of one saga never overtake each other.
    pub saga: Uuid,
    /// Subject to publish to, e.g. `order.created`.
    pub subject: String,
    /// Bytes of the envelope to publish.
    pub payload: Bytes,
    /// Trace context of the input that caused the message.
    pub trace: Option<TraceContext>,
    /// True if an operator has it published again. The broker must not drop it as a duplicate: a service that lost its data
    /// waits for it. Inboxes recognise it.
    pub is_repetition: bool,
}

/// Page of entries that were marked to be published again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepublishPage {
    /// Number of entries that were marked.
    pub count: usize,
    /// Position of the last marked entry.
    pub last: Option<i64>,
}

impl OutboxEntry {
    /// Trace context to send with the message: that of its publish.
    pub(crate) fn sent_context(&self) -> Option<TraceContext> {
        self.trace.map(|cause| cause.of_publish(self.id))
    }
}

impl<B: Backend> Outbox for B {
    fn pending_entries(&self, limit: usize) -> Answer<'_, Vec<OutboxEntry>> {
        self.snapshot(Lane::Relay, limit_of(limit), |db, limit| {
            Box::pin(async move { pending_entries(db, *limit).await.map_err(db_fault(READING)) })
        })
    }

    fn entries_after(&self, position: i64, limit: usize) -> Answer<'_, Option<Vec<OutboxEntry>>> {
        self.snapshot(Lane::Relay, (position, limit_of(limit)), |db, (position, limit)| {
            Box::pin(async move { entries_after(db, *position, *limit).await.map_err(db_fault(READING)) })
        })
    }

    fn sequence_end(&self) -> Answer<'_, Option<i64>> {
        self.read(Lane::Relay, (), |db, ()| {
            Box::pin(async move { sequence_end(db).await.map_err(db_fault("reading the end of the outbox")) })
        })
    }

    fn settle(&self, lease: &Lease, outcome: PublishOutcome, now: Timestamp) -> Answer<'_, bool> {
        let args = (lease.clone(), outcome, now);
        self.write(Urgency::Immediate, args, |db, (lease, outcome, now)| {
            Box::pin(async move { settle(db, lease, outcome, *now).await.map_err(db_fault(SETTLEMENT)) })
        })
    }

    fn settle_run(&self, lease: &Lease, run: PublishedRun) -> Answer<'_, bool> {
        self.write(Urgency::Deferrable, (lease.clone(), run), |db, (lease, run)| {
            Box::pin(async move { settle_run(db, lease, run).await.map_err(db_fault(SETTLEMENT)) })
        })
    }

    fn min_settle_interval(&self) -> Duration {
        B::MIN_SETTLE_INTERVAL
    }

    fn retry_failed_entries(&self, seq: Option<i64>) -> Answer<'_, u64> {
        self.write_and_notify(ReplicaSignal::EntriesStored, seq, |db, seq| {
            Box::pin(async move {
                retry_failed_entries(db, *seq).await.map_err(db_fault("retrying failed entries"))
            })
        })
    }

    fn republish(&self, since: Timestamp, after: i64, limit: usize) -> Answer<'_, RepublishPage> {
        let args = (micros(since), after, limit_of(limit));
        self.write_and_notify(ReplicaSignal::EntriesStored, args, |db, args| {
            Box::pin(
                async move { republish(db, *args).await.map_err(db_fault("marking entries to republish")) },
            )
        })
    }

    fn kept_since(&self) -> Answer<'_, Option<Timestamp>> {
        self.read(Lane::Health, (), |db, ()| {
            Box::pin(async move {
                let since = db.query_opt(include_str!("sql/kept_since.sql"), &[], |row| row.time(0)).await;
                since.map_err(db_fault("reading since when entries are kept"))
            })
        })
    }
}

async fn pending_entries<S: Sql>(db: &S, limit: i64) -> Result<Vec<OutboxEntry>, SqlError> {
    // An entry to retry precedes all others of its saga.
    let mut all = entries(db, "status = 'RETRY'", limit).await?;
    let pending = format!("seq > {PUBLISHED_UP_TO} AND status IS NULL AND NOT {IS_BLOCKED}");
    all.append(&mut entries(db, &pending, limit - limit_of(all.len())).await?);
    let republished = limit.saturating_add(REPUBLISH_DIVISOR - 1) / REPUBLISH_DIVISOR;
    let repetitions = entries(db, "status = 'REPUBLISH'", republished).await?;
    all.extend(repetitions.into_iter().map(|entry| OutboxEntry { is_repetition: true, ..entry }));
    Ok(all)
}

async fn entries<S: Sql>(db: &S, condition: &str, limit: i64) -> Result<Vec<OutboxEntry>, SqlError> {
    let sql = format!("SELECT {ENTRY} FROM outbox WHERE {condition} ORDER BY seq LIMIT $1");
    db.query(&sql, &[&limit], entry).await
}

fn entry(row: &Row<'_>) -> Result<OutboxEntry, SqlError> {
    Ok(OutboxEntry {
        seq: row.get(0)?,
        id: row.get(1)?,
        saga: row.get(2)?,
        subject: row.get(3)?,
        payload: row.get::<Vec<u8>>(4)?.into(),
        trace: row.trace(5)?,
        is_repetition: false,
    })
}

async fn entries_after<S: Sql>(
    db: &S,
    position: i64,
    limit: i64,
) -> Result<Option<Vec<OutboxEntry>>, SqlError> {
    if sequence_end(db).await?.is_none() {
        return Ok(None);
    }
    let sql = format!("SELECT {ENTRY} FROM outbox WHERE seq > $2 AND status IS NULL ORDER BY seq LIMIT $1");
    db.query(&sql, &[&limit, &position], entry).await.map(Some)
}

async fn sequence_end<S: Sql>(db: &S) -> Result<Option<i64>, SqlError> {
    let sql =
        format!("SELECT {} WHERE NOT EXISTS (SELECT 1 FROM outbox WHERE status IS NOT NULL)", S::LAST_ENTRY);
    db.query_opt(&sql, &[], |row| row.get(0)).await
}

async fn retry_failed_entries<S: Sql>(db: &S, seq: Option<i64>) -> Result<u64, SqlError> {
    db.lock_log().await?;
    let set = format!("status = CASE WHEN seq > {PUBLISHED_UP_TO} THEN NULL ELSE 'RETRY' END");
    let failed =
        format!("UPDATE outbox SET {set} WHERE status = 'FAILED' AND ($1::bigint IS NULL OR seq = $1)");
    let count = db.execute(&failed, &[&seq]).await?;
    if count > 0 {
        let sql = include_str!("sql/unblock_entries.sql").replace("{set}", &set);
        db.execute(&sql, &[&seq]).await?;
    }
    Ok(count)
}

async fn republish<S: Sql>(
    db: &S,
    (since, after, limit): (i64, i64, i64),
) -> Result<RepublishPage, SqlError> {
    db.lock_log().await?;
    let sql = include_str!("sql/republish.sql")
        .replace("{published_up_to}", PUBLISHED_UP_TO)
        .replace("{by_publication}", S::BY_PUBLICATION);
    let marked: Vec<i64> = db.query(&sql, &[&since, &after, &limit], |row| row.get(0)).await?;
    Ok(RepublishPage { count: marked.len(), last: marked.into_iter().max() })
}

/// Entries that are not published, for operators.
pub(super) async fn outbox_items<S: Sql>(db: &S, limit: i64) -> Result<Vec<OutboxItem>, SqlError> {
    let sql = include_str!("sql/outbox_items.sql")
        .replace("{published_up_to}", PUBLISHED_UP_TO)
        .replace("{by_status}", S::BY_STATUS);
    let item = |row: &Row<'_>| {
        Ok(OutboxItem {
            seq: row.get(0)?,
            id: row.get(1)?,
            subject: row.get(2)?,
            status: row.get(3)?,
            attempts: row.attempts(4)?,
            last_error: row.get(5)?,
            created_at: timestamp(row.get(6)?),
        })
    };
    db.query(&sql, &[&limit], item).await
}
