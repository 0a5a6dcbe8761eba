//! Shell: outbox entries on PostgreSQL: what the relay publishes and settles, and what operators read. The sequence works as
//! on SQLite. A transaction that takes entries out of sequence, or back, locks the head, so that no batch interferes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use saga_core::service_stats::StoreStats;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use super::commit_order::lock_head;
use super::pool::Connection;
use super::values::{
    count_of, db_fault, execute, limit_of, micros, query, query_one, query_opt, timestamp, trace, without_nul,
};
use crate::store::{
    Lease, OutboxEntry, OutboxItem, PublishOutcome, PublishedRun, RELAY_LEASE, RepublishPage, StoreFault,
};

/// Position up to which the sequence is published.
const PUBLISHED_UP_TO: &str = "(SELECT coalesce(max(up_to), 0) FROM publication)";

/// Condition of an entry that waits behind a failed one of its saga.
const IS_BLOCKED: &str = "EXISTS (SELECT FROM outbox AS blocking
     WHERE blocking.saga = outbox.saga AND blocking.status IN ('FAILED', 'BLOCKED'))";

/// Entries to republish are at most this fraction of a batch, so that new entries do not wait for them.
const REPUBLISHED_FRACTION: usize = 4;

pub(super) async fn pending_entries(conn: &Connection, limit: usize) -> Result<Vec<OutboxEntry>, StoreFault> {
    let entries = async |conditions: String, limit: usize| -> Result<Vec<OutboxEntry>, StoreFault> {
        let sql = format!(
            "SELECT seq, id, saga, subject, payload, trace FROM outbox WHERE {conditions} ORDER BY seq LIMIT $1"
        );
        let found = query(conn, &sql, &[&limit_of(limit)]).await.map_err(db_fault("reading the outbox"))?;
        Ok(found.iter().map(entry).collect())
    };
    // An entry to retry precedes all others of its saga.
    let mut all = entries("status = 'RETRY'".to_owned(), limit).await?;
    let pending = format!("seq > {PUBLISHED_UP_TO} AND status IS NULL AND NOT {IS_BLOCKED}");
    all.append(&mut entries(pending, limit.saturating_sub(all.len())).await?);
    let republished = "status = 'REPUBLISH'".to_owned();
    all.append(&mut entries(republished, limit.div_ceil(REPUBLISHED_FRACTION)).await?);
    Ok(all)
}

pub(super) async fn entries_after(
    conn: &Connection,
    position: i64,
    limit: usize,
) -> Result<Option<Vec<OutboxEntry>>, StoreFault> {
    if sequence_end(conn).await?.is_none() {
        return Ok(None);
    }
    let sql = "SELECT seq, id, saga, subject, payload, trace FROM outbox
         WHERE seq > $1 AND status IS NULL ORDER BY seq LIMIT $2";
    let found =
        query(conn, sql, &[&position, &limit_of(limit)]).await.map_err(db_fault("reading the outbox"))?;
    Ok(Some(found.iter().map(entry).collect()))
}

fn entry(row: &Row) -> OutboxEntry {
    OutboxEntry {
        seq: row.get(0),
        id: row.get(1),
        saga: row.get(2),
        subject: row.get(3),
        payload: row.get::<_, Vec<u8>>(4).into(),
        trace: trace(row.get(5)),
    }
}

pub(super) async fn sequence_end(conn: &Connection) -> Result<Option<i64>, StoreFault> {
    let sql = "SELECT outbox FROM head WHERE NOT EXISTS (SELECT FROM outbox WHERE status IS NOT NULL)";
    let end = query_opt(conn, sql, &[]).await.map_err(db_fault("reading the end of the outbox"))?;
    Ok(end.map(|row| row.get(0)))
}

pub(super) async fn settle(
    conn: &Connection,
    lease: &Lease,
    outcome: &PublishOutcome,
    now: Timestamp,
) -> Result<bool, StoreFault> {
    let context = "settling published entries";
    if !is_current(conn, lease).await.map_err(db_fault(context))? {
        return Ok(false);
    }
    let settled = async {
        lock_head(conn).await?;
        settle_unpublished(conn, outcome).await?;
        let mut counts = BTreeMap::new();
        let published_up_to = query_one(conn, &format!("SELECT {PUBLISHED_UP_TO}"), &[]).await?.get(0);
        let (out_of_sequence, in_sequence): (Vec<i64>, Vec<i64>) =
            outcome.done.iter().copied().partition(|seq| *seq <= published_up_to);
        settle_out_of_sequence(conn, &out_of_sequence, now, &mut counts).await?;
        let in_sequence = in_sequence.into_iter().collect();
        settle_sequence(conn, &in_sequence, published_up_to, now, &mut counts).await?;
        add_to_message_counts(conn, "published", &counts).await
    };
    settled.await.map_err(db_fault(context))?;
    Ok(true)
}

/// Returns true if the relay still holds its lease, and keeps it until the end of the transaction.
async fn is_current(conn: &Connection, lease: &Lease) -> Result<bool, Error> {
    let fence = query_opt(conn, "SELECT fence FROM lease WHERE name = $1 FOR SHARE", &[&RELAY_LEASE]).await?;
    Ok(fence.is_some_and(|row| row.get::<_, i64>(0) == lease.fence))
}

pub(super) async fn settle_run(
    conn: &Connection,
    lease: &Lease,
    run: &PublishedRun,
) -> Result<bool, StoreFault> {
    let settled = async {
        if !is_current(conn, lease).await? {
            return Ok(false);
        }
        let is_next = format!(
            "INSERT INTO publication (up_to, published_at)
             SELECT $2::bigint, $3::bigint WHERE {PUBLISHED_UP_TO} < $1 AND NOT EXISTS
                 (SELECT FROM outbox WHERE seq > {PUBLISHED_UP_TO} AND seq < $1 AND status IS NULL)"
        );
        let is_next = execute(conn, &is_next, &[&run.first, &run.last, &micros(run.at)]).await? > 0;
        if is_next {
            add_to_message_counts(conn, "published", &run.subjects).await?;
        }
        Ok(is_next)
    };
    settled.await.map_err(db_fault("settling published entries"))
}

/// Adds to the lifetime counts of messages.
pub(super) async fn add_to_message_counts(
    conn: &Connection,
    outcome: &str,
    counts: &BTreeMap<String, i64>,
) -> Result<(), Error> {
    if counts.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = counts.keys().map(String::as_str).collect();
    let counts: Vec<i64> = counts.values().copied().collect();
    let sql = "INSERT INTO message_count (outcome, name, count)
         SELECT $1::text, name, count FROM unnest($2::text[], $3::bigint[]) AS made (name, count)
         ON CONFLICT (outcome, name) DO UPDATE SET count = message_count.count + excluded.count";
    execute(conn, sql, &[&outcome, &names, &counts]).await.map(drop)
}

/// Takes rejected entries out of sequence. A delayed entry stays the first in sequence.
async fn settle_unpublished(conn: &Connection, outcome: &PublishOutcome) -> Result<(), Error> {
    for (seq, reason) in &outcome.refused {
        // The broker has the original of a republished message: only its repetition fails.
        let refused = "UPDATE outbox SET attempts = attempts + 1, last_error = $2,
                 status = CASE status WHEN 'REPUBLISH' THEN NULL ELSE 'FAILED' END
             WHERE seq = $1";
        execute(conn, refused, &[seq, &without_nul(reason)]).await?;
        // Entries that were to be retried behind the failed one are blocked again.
        let blocked = "UPDATE outbox SET status = 'BLOCKED' WHERE status = 'RETRY' AND seq > $1
             AND saga = (SELECT saga FROM outbox WHERE seq = $1 AND status = 'FAILED')";
        execute(conn, blocked, &[seq]).await?;
    }
    if let Some((seq, reason)) = &outcome.delayed {
        let delayed = "UPDATE outbox SET attempts = attempts + 1, last_error = $2 WHERE seq = $1";
        execute(conn, delayed, &[seq, &without_nul(reason)]).await?;
    }
    Ok(())
}

/// Returns entries to the sequence, before the published position, each with its own time of publication.
async fn settle_out_of_sequence(
    conn: &Connection,
    done: &[i64],
    now: Timestamp,
    counts: &mut BTreeMap<String, i64>,
) -> Result<(), Error> {
    if done.is_empty() {
        return Ok(());
    }
    let waiting = "SELECT seq, status, subject FROM outbox WHERE seq = ANY ($1) AND status IS NOT NULL";
    let waiting = query(conn, waiting, &[&done]).await?;
    let settled: Vec<i64> = waiting.iter().map(|row| row.get(0)).collect();
    let settle = "UPDATE outbox SET status = NULL, last_error = NULL, published_at = $2 WHERE seq = ANY ($1)";
    execute(conn, settle, &[&settled, &micros(now)]).await?;
    for row in waiting.iter().filter(|row| row.get::<_, &str>(1) != "REPUBLISH") {
        *counts.entry(row.get(2)).or_default() += 1;
    }
    Ok(())
}

/// Number of entries that are read at once.
const READ_AT_ONCE: i64 = 1_000;

/// Moves the published position past all entries that are published or blocked.
async fn settle_sequence(
    conn: &Connection,
    done: &BTreeSet<i64>,
    published_up_to: i64,
    now: Timestamp,
    counts: &mut BTreeMap<String, i64>,
) -> Result<(), Error> {
    let (mut up_to, mut blocked) = (published_up_to, Vec::new());
    let sql = format!(
        "SELECT seq, subject, {IS_BLOCKED} FROM outbox WHERE seq > $1 AND status IS NULL ORDER BY seq LIMIT $2"
    );
    'sequence: loop {
        let entries = query(conn, &sql, &[&up_to, &READ_AT_ONCE]).await?;
        for row in &entries {
            let seq: i64 = row.get(0);
            if done.contains(&seq) {
                *counts.entry(row.get(1)).or_default() += 1;
            } else if row.get(2) {
                blocked.push(seq);
            } else {
                break 'sequence;
            }
            up_to = seq;
        }
        if limit_of(entries.len()) < READ_AT_ONCE {
            break;
        }
    }
    if !blocked.is_empty() {
        let sql = "UPDATE outbox SET status = 'BLOCKED' WHERE seq = ANY ($1)";
        execute(conn, sql, &[&blocked]).await?;
    }
    if up_to > published_up_to {
        let published = "INSERT INTO publication (up_to, published_at) VALUES ($1, $2)";
        execute(conn, published, &[&up_to, &micros(now)]).await?;
    }
    Ok(())
}

pub(super) async fn retry_failed_entries(conn: &Connection, seq: Option<i64>) -> Result<u64, StoreFault> {
    let retried = async {
        lock_head(conn).await?;
        let failed = "SELECT DISTINCT saga FROM outbox
             WHERE status = 'FAILED' AND ($1::bigint IS NULL OR seq = $1)";
        let sagas: Vec<Uuid> = query(conn, failed, &[&seq]).await?.iter().map(|row| row.get(0)).collect();
        let set = format!("status = CASE WHEN seq > {PUBLISHED_UP_TO} THEN NULL ELSE 'RETRY' END");
        let failed = format!(
            "UPDATE outbox SET {set} WHERE status IN ('FAILED', 'BLOCKED') AND status = 'FAILED' AND saga = ANY ($1)
             AND ($2::bigint IS NULL OR seq = $2)"
        );
        let count = execute(conn, &failed, &[&sagas, &seq]).await?;
        // Entries behind another failed one of the saga stay blocked.
        let blocked = format!(
            "UPDATE outbox SET {set} WHERE status IN ('FAILED', 'BLOCKED') AND status = 'BLOCKED' AND saga = ANY ($1)
             AND NOT EXISTS
             (SELECT FROM outbox AS before WHERE before.saga = outbox.saga AND before.status IN ('FAILED', 'BLOCKED')
              AND before.status = 'FAILED' AND before.seq < outbox.seq)"
        );
        execute(conn, &blocked, &[&sagas]).await?;
        Ok(count)
    };
    retried.await.map_err(db_fault("retrying failed entries"))
}

pub(super) async fn republish(
    conn: &Connection,
    since: Timestamp,
    after: i64,
    limit: usize,
) -> Result<RepublishPage, StoreFault> {
    let sql = include_str!("sql/republish.sql").replace("{published_up_to}", PUBLISHED_UP_TO);
    let context = "marking entries to republish";
    lock_head(conn).await.map_err(db_fault(context))?;
    let marked =
        query(conn, &sql, &[&micros(since), &after, &limit_of(limit)]).await.map_err(db_fault(context))?;
    Ok(RepublishPage { count: marked.len(), last: marked.iter().map(|row| row.get(0)).max() })
}

pub(super) async fn kept_since(conn: &Connection) -> Result<Option<Timestamp>, StoreFault> {
    let sql = "SELECT published_at FROM publication WHERE up_to >=
             (SELECT seq FROM outbox WHERE status IS NULL AND published_at IS NULL ORDER BY seq LIMIT 1)
         ORDER BY up_to LIMIT 1";
    let since = query_opt(conn, sql, &[]).await.map_err(db_fault("reading since when entries are kept"))?;
    Ok(since.map(|row| timestamp(row.get(0))))
}

/// Columns and tables of [`stats`].
///
/// Entries are counted by positions. Only published ones are deleted, from the oldest on, so that the sequence has no gaps,
/// except behind an old entry that was retried. Until that one is deleted, deleted entries behind it count as kept.
pub(super) fn stats_sql() -> (String, String) {
    let columns = format!(
        "out.retried, out.republished, out.failed,
         {PUBLISHED_UP_TO} + 1 - first.seq
             - (SELECT count(*) FROM outbox
                WHERE status IS NOT NULL AND status <> 'REPUBLISH' AND seq BETWEEN first.seq AND {PUBLISHED_UP_TO}),
         head.outbox - {PUBLISHED_UP_TO} - (SELECT count(*) FROM outbox WHERE status IS NOT NULL AND seq > {PUBLISHED_UP_TO}),
         (SELECT min(created_at) FROM
             ((SELECT created_at FROM outbox WHERE seq > {PUBLISHED_UP_TO} AND status IS NULL ORDER BY seq LIMIT 1)
              UNION ALL (SELECT created_at FROM outbox WHERE status = 'RETRY' ORDER BY seq LIMIT 1))
             AS oldest)"
    );
    let from = format!(
        "head, (SELECT coalesce(min(seq), {PUBLISHED_UP_TO} + 1) AS seq FROM outbox WHERE status IS NULL) AS first,
         (SELECT count(*) FILTER (WHERE status = 'RETRY') AS retried,
                 count(*) FILTER (WHERE status = 'REPUBLISH') AS republished,
                 count(*) FILTER (WHERE status NOT IN ('RETRY', 'REPUBLISH')) AS failed
          FROM outbox WHERE status IS NOT NULL) AS out"
    );
    (columns, from)
}

/// Outbox part of the statistics, from the first columns of a row.
pub(super) fn stats(row: &Row) -> StoreStats {
    StoreStats {
        outbox_pending: count_of(row.get(0)) + count_of(row.get(4)),
        outbox_republishing: count_of(row.get(1)),
        outbox_failed: count_of(row.get(2)),
        outbox_kept: count_of(row.get(3)),
        outbox_oldest: row.get::<_, Option<i64>>(5).map(timestamp),
        ..StoreStats::default()
    }
}

pub(super) async fn items(conn: &Connection, limit: usize) -> Result<Vec<OutboxItem>, StoreFault> {
    let columns =
        "SELECT seq, id, subject, coalesce(status, 'PENDING'), attempts, last_error, created_at FROM outbox";
    let sql = format!(
        "(({columns} WHERE status IS NOT NULL ORDER BY seq LIMIT $1)
          UNION ALL ({columns} WHERE status IS NULL AND seq > {PUBLISHED_UP_TO} ORDER BY seq LIMIT $1)) ORDER BY seq LIMIT $1"
    );
    let item = |row: &Row| OutboxItem {
        seq: row.get(0),
        id: row.get(1),
        subject: row.get(2),
        status: row.get(3),
        attempts: u32::try_from(row.get::<_, i64>(4)).unwrap_or(0),
        last_error: row.get(5),
        created_at: timestamp(row.get(6)),
    };
    let found = query(conn, &sql, &[&limit_of(limit)]).await.map_err(db_fault("reading the outbox"))?;
    Ok(found.iter().map(item).collect())
}

/// Deletes entries that were published before `cutoff`, and publications whose entries are gone. Keeps the last publication,
/// which is the published position, and with it the last entry.
pub(super) async fn trim(conn: &Connection, cutoff: Timestamp, limit: i64) -> Result<u64, Error> {
    // Keys are selected as an array: the server might repeat a subquery for each row, and lock other rows.
    let entries = execute(conn, include_str!("sql/trim_outbox.sql"), &[&micros(cutoff), &limit]).await?;
    let publications = execute(conn, include_str!("sql/trim_publications.sql"), &[&limit]).await?;
    Ok(entries.max(publications))
}
