//! Shell: outbox entries on SQLite: what the relay publishes and settles, and what operators read.
//!
//! Entries have a sequence. Those that are published in sequence have no status: a `publication` row says up to where the
//! sequence is published, so that settling writes nothing to the entries. An entry that cannot be published in its place
//! is out of sequence, and has a status.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use saga_core::service_stats::StoreStats;
use uuid::Uuid;

use super::values::{db_fault, limit_of, micros, timestamp, trace};
use super::write::add_to_message_counts;
use crate::store::{
    Lease, OutboxEntry, OutboxItem, PublishOutcome, PublishedRun, RELAY_LEASE, RepublishPage, StoreFault,
};

/// Position up to which the sequence is published.
const PUBLISHED_UP_TO: &str = "(SELECT coalesce(max(up_to), 0) FROM publication)";

/// Condition of an entry that waits behind a failed one of its saga.
const IS_BLOCKED: &str = "EXISTS (SELECT 1 FROM outbox AS blocking
     WHERE blocking.saga = outbox.saga AND blocking.status IN ('FAILED', 'BLOCKED'))";

/// Columns of an [`OutboxEntry`], in the order that [`entry`] reads.
const ENTRY: &str = "seq, id, saga, subject, payload, trace";

/// Entries to republish are at most this fraction of a batch, so that new entries do not wait for them.
const REPUBLISHED_FRACTION: usize = 4;

pub(super) fn pending_entries(conn: &Connection, limit: usize) -> Result<Vec<OutboxEntry>, StoreFault> {
    let read = || -> rusqlite::Result<Vec<OutboxEntry>> {
        // An entry to retry precedes all others of its saga.
        let mut all = entries(conn, "status = 'RETRY'", limit)?;
        let pending = format!("seq > {PUBLISHED_UP_TO} AND status IS NULL AND NOT {IS_BLOCKED}");
        all.append(&mut entries(conn, &pending, limit.saturating_sub(all.len()))?);
        all.append(&mut entries(conn, "status = 'REPUBLISH'", limit.div_ceil(REPUBLISHED_FRACTION))?);
        Ok(all)
    };
    read().map_err(db_fault("reading the outbox"))
}

fn entries(conn: &Connection, condition: &str, limit: usize) -> rusqlite::Result<Vec<OutboxEntry>> {
    conn.prepare_cached(&format!("SELECT {ENTRY} FROM outbox WHERE {condition} ORDER BY seq LIMIT ?1"))?
        .query_map([limit_of(limit)], entry)?
        .collect()
}

fn entry(row: &Row<'_>) -> rusqlite::Result<OutboxEntry> {
    let payload = row.get::<_, Vec<u8>>(4)?.into();
    Ok(OutboxEntry {
        seq: row.get(0)?,
        id: row.get(1)?,
        saga: row.get(2)?,
        subject: row.get(3)?,
        payload,
        trace: trace(row, 5)?,
    })
}

pub(super) fn entries_after(
    conn: &Connection,
    position: i64,
    limit: usize,
) -> Result<Option<Vec<OutboxEntry>>, StoreFault> {
    if sequence_end(conn)?.is_none() {
        return Ok(None);
    }
    conn.prepare_cached(&format!(
        "SELECT {ENTRY} FROM outbox WHERE seq > ?2 AND status IS NULL ORDER BY seq LIMIT ?1"
    ))
    .and_then(|mut select| select.query_map([limit_of(limit), position], entry)?.collect())
    .map(Some)
    .map_err(db_fault("reading the outbox"))
}

pub(super) fn sequence_end(conn: &Connection) -> Result<Option<i64>, StoreFault> {
    conn.prepare_cached(
        "SELECT last.seq FROM (SELECT coalesce(max(seq), 0) AS seq FROM outbox) AS last
         WHERE NOT EXISTS (SELECT 1 FROM outbox WHERE status IS NOT NULL)",
    )
    .and_then(|mut select| select.query_row([], |row| row.get(0)).optional())
    .map_err(db_fault("reading the end of the outbox"))
}

pub(super) fn settle(
    conn: &Connection,
    lease: &Lease,
    outcome: &PublishOutcome,
    now: Timestamp,
) -> Result<bool, StoreFault> {
    let settle = || -> rusqlite::Result<bool> {
        if !is_current(conn, lease)? {
            return Ok(false);
        }
        settle_unpublished(conn, outcome)?;
        let mut counts = BTreeMap::new();
        let published_up_to =
            conn.prepare_cached(&format!("SELECT {PUBLISHED_UP_TO}"))?.query_row([], |row| row.get(0))?;
        let (out_of_sequence, in_sequence): (Vec<i64>, Vec<i64>) =
            outcome.done.iter().copied().partition(|seq| *seq <= published_up_to);
        settle_out_of_sequence(conn, &out_of_sequence, now, &mut counts)?;
        settle_sequence(conn, &in_sequence.into_iter().collect(), published_up_to, now, &mut counts)?;
        add_to_message_counts(conn, "published", &counts)?;
        Ok(true)
    };
    settle().map_err(db_fault("settling published entries"))
}

/// Returns true if the relay still holds its lease.
fn is_current(conn: &Connection, lease: &Lease) -> rusqlite::Result<bool> {
    let fence: Option<i64> = conn
        .prepare_cached("SELECT fence FROM lease WHERE name = ?1")?
        .query_row([RELAY_LEASE], |row| row.get(0))
        .optional()?;
    Ok(fence == Some(lease.fence))
}

pub(super) fn settle_run(conn: &Connection, lease: &Lease, run: &PublishedRun) -> Result<bool, StoreFault> {
    let settle = || -> rusqlite::Result<bool> {
        if !is_current(conn, lease)? {
            return Ok(false);
        }
        let is_next: bool = conn
            .prepare_cached(&format!(
                "SELECT {PUBLISHED_UP_TO} < ?1 AND NOT EXISTS
                     (SELECT 1 FROM outbox WHERE seq > {PUBLISHED_UP_TO} AND seq < ?1 AND status IS NULL)"
            ))?
            .query_row([run.first], |row| row.get(0))?;
        if is_next {
            conn.prepare_cached("INSERT INTO publication (up_to, published_at) VALUES (?1, ?2)")?
                .execute([run.last, micros(run.at)])?;
            add_to_message_counts(conn, "published", &run.subjects)?;
        }
        Ok(is_next)
    };
    settle().map_err(db_fault("settling published entries"))
}

/// Takes rejected entries out of sequence. A delayed entry stays the first in sequence.
fn settle_unpublished(conn: &Connection, outcome: &PublishOutcome) -> rusqlite::Result<()> {
    for (seq, reason) in &outcome.refused {
        // The broker has the original of a republished message: only its repetition fails.
        conn.prepare_cached(
            "UPDATE outbox SET attempts = attempts + 1, last_error = ?2,
                 status = CASE status WHEN 'REPUBLISH' THEN NULL ELSE 'FAILED' END
             WHERE seq = ?1",
        )?
        .execute(params![seq, reason])?;
        // Entries that were to be retried behind the failed one are blocked again.
        conn.prepare_cached(
            "UPDATE outbox SET status = 'BLOCKED' WHERE status = 'RETRY'
             AND (saga, 'FAILED') = (SELECT saga, status FROM outbox WHERE seq = ?1) AND seq > ?1",
        )?
        .execute([seq])?;
    }
    if let Some((seq, reason)) = &outcome.delayed {
        conn.prepare_cached("UPDATE outbox SET attempts = attempts + 1, last_error = ?2 WHERE seq = ?1")?
            .execute(params![seq, reason])?;
    }
    Ok(())
}

/// Returns entries to the sequence, before the published position, each with its own time of publication.
fn settle_out_of_sequence(
    conn: &Connection,
    done: &[i64],
    now: Timestamp,
    counts: &mut BTreeMap<String, i64>,
) -> rusqlite::Result<()> {
    for seq in done {
        let waiting: Option<(String, String)> = conn
            .prepare_cached("SELECT status, subject FROM outbox WHERE seq = ?1 AND status IS NOT NULL")?
            .query_row([seq], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((status, subject)) = waiting else { continue };
        conn.prepare_cached(
            "UPDATE outbox SET status = NULL, last_error = NULL, published_at = ?2 WHERE seq = ?1",
        )?
        .execute([*seq, micros(now)])?;
        if status != "REPUBLISH" {
            *counts.entry(subject).or_default() += 1;
        }
    }
    Ok(())
}

/// Moves the published position past all entries that are published or blocked.
fn settle_sequence(
    conn: &Connection,
    done: &BTreeSet<i64>,
    published_up_to: i64,
    now: Timestamp,
    counts: &mut BTreeMap<String, i64>,
) -> rusqlite::Result<()> {
    let (mut up_to, mut blocked) = (published_up_to, Vec::new());
    {
        let mut select = conn.prepare_cached(&format!(
            "SELECT seq, subject, {IS_BLOCKED} FROM outbox WHERE seq > ?1 AND status IS NULL ORDER BY seq"
        ))?;
        let mut rows = select.query([published_up_to])?;
        while let Some(row) = rows.next()? {
            let seq: i64 = row.get(0)?;
            if done.contains(&seq) {
                *counts.entry(row.get(1)?).or_default() += 1;
            } else if row.get(2)? {
                blocked.push(seq);
            } else {
                break;
            }
            up_to = seq;
        }
    }
    for seq in blocked {
        conn.prepare_cached("UPDATE outbox SET status = 'BLOCKED' WHERE seq = ?1")?.execute([seq])?;
    }
    if up_to > published_up_to {
        conn.prepare_cached("INSERT INTO publication (up_to, published_at) VALUES (?1, ?2)")?
            .execute([up_to, micros(now)])?;
    }
    Ok(())
}

pub(super) fn retry_failed_entries(conn: &Connection, seq: Option<i64>) -> Result<u64, StoreFault> {
    let retry = || -> rusqlite::Result<usize> {
        let sagas: BTreeSet<Uuid> = conn
            .prepare("SELECT saga FROM outbox WHERE status = 'FAILED' AND (?1 IS NULL OR seq = ?1)")?
            .query_map([seq], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        let set = format!("status = CASE WHEN seq > {PUBLISHED_UP_TO} THEN NULL ELSE 'RETRY' END");
        let failed = format!(
            "UPDATE outbox SET {set} WHERE status = 'FAILED' AND saga = ?1 AND (?2 IS NULL OR seq = ?2)"
        );
        // Entries behind another failed one of the saga stay blocked.
        let blocked = format!(
            "UPDATE outbox SET {set} WHERE status = 'BLOCKED' AND saga = ?1 AND NOT EXISTS
             (SELECT 1 FROM outbox AS before WHERE before.saga = ?1 AND before.status IN ('FAILED', 'BLOCKED')
              AND before.status = 'FAILED' AND before.seq < outbox.seq)"
        );
        let mut count = 0;
        for saga in sagas {
            count += conn.prepare_cached(&failed)?.execute(params![saga, seq])?;
            conn.prepare_cached(&blocked)?.execute([saga])?;
        }
        Ok(count)
    };
    retry().map(|count| u64::try_from(count).unwrap_or(0)).map_err(db_fault("retrying failed entries"))
}

pub(super) fn republish(
    conn: &Connection,
    since: Timestamp,
    after: i64,
    limit: usize,
) -> Result<RepublishPage, StoreFault> {
    let sql = include_str!("sql/republish.sql").replace("{published_up_to}", PUBLISHED_UP_TO);
    let marked: rusqlite::Result<Vec<i64>> = conn.prepare_cached(&sql).and_then(|mut update| {
        update.query_map(params![micros(since), after, limit_of(limit)], |row| row.get(0))?.collect()
    });
    let marked = marked.map_err(db_fault("marking entries to republish"))?;
    Ok(RepublishPage { count: marked.len(), last: marked.into_iter().max() })
}

pub(super) fn kept_since(conn: &Connection) -> Result<Option<Timestamp>, StoreFault> {
    conn.prepare_cached(
        "SELECT published_at FROM publication WHERE up_to >=
             (SELECT seq FROM outbox WHERE status IS NULL AND published_at IS NULL ORDER BY seq LIMIT 1)
         ORDER BY up_to LIMIT 1",
    )
    .and_then(|mut select| select.query_row([], |row| row.get(0)).optional())
    .map(|since: Option<i64>| since.map(timestamp))
    .map_err(db_fault("reading since when entries are kept"))
}

/// Outbox part of the statistics.
pub(super) fn stats(conn: &Connection) -> rusqlite::Result<StoreStats> {
    let mut stats = StoreStats::default();
    let mut out_of_sequence =
        conn.prepare_cached("SELECT status, count(*) FROM outbox WHERE status IS NOT NULL GROUP BY status")?;
    let mut rows = out_of_sequence.query([])?;
    while let Some(row) = rows.next()? {
        let count = u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0);
        match row.get_ref(0)?.as_str()? {
            "RETRY" => stats.outbox_pending += count,
            "REPUBLISH" => stats.outbox_republishing += count,
            _ => stats.outbox_failed += count,
        }
    }
    let count = |sql: &str| -> rusqlite::Result<u64> {
        let count: i64 = conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        Ok(u64::try_from(count).unwrap_or(0))
    };
    // Counted by positions. Only published entries are deleted, from the oldest on, so that the sequence has no gaps, except
    // behind an old entry that was retried. Until that one is deleted, deleted entries behind it count as kept.
    stats.outbox_kept = count(&format!(
        "SELECT {PUBLISHED_UP_TO} + 1 - first.seq
             - (SELECT count(*) FROM outbox INDEXED BY outbox_out_of_sequence
                WHERE status IS NOT NULL AND status <> 'REPUBLISH' AND seq BETWEEN first.seq AND {PUBLISHED_UP_TO})
         FROM (SELECT coalesce(min(seq), {PUBLISHED_UP_TO} + 1) AS seq FROM outbox WHERE status IS NULL) AS first"
    ))?;
    stats.outbox_pending += count(&format!(
        "SELECT coalesce(max(seq), 0) - {PUBLISHED_UP_TO}
             - (SELECT count(*) FROM outbox INDEXED BY outbox_out_of_sequence
                WHERE status IS NOT NULL AND seq > {PUBLISHED_UP_TO})
         FROM outbox"
    ))?;
    stats.outbox_oldest = conn
        .prepare_cached(&format!(
            "SELECT min(created_at) FROM
             (SELECT created_at FROM (SELECT created_at FROM outbox
                  WHERE seq > {PUBLISHED_UP_TO} AND status IS NULL ORDER BY seq LIMIT 1)
              UNION ALL SELECT created_at FROM (SELECT created_at FROM outbox
                  WHERE status = 'RETRY' ORDER BY seq LIMIT 1))"
        ))?
        .query_row([], |row| row.get::<_, Option<i64>>(0))?
        .map(timestamp);
    Ok(stats)
}

pub(super) fn items(conn: &Connection, limit: usize) -> Result<Vec<OutboxItem>, StoreFault> {
    let columns =
        "SELECT seq, id, subject, coalesce(status, 'PENDING'), attempts, last_error, created_at FROM outbox";
    let item = |row: &Row<'_>| {
        Ok(OutboxItem {
            seq: row.get(0)?,
            id: row.get(1)?,
            subject: row.get(2)?,
            status: row.get(3)?,
            attempts: row.get(4)?,
            last_error: row.get(5)?,
            created_at: timestamp(row.get(6)?),
        })
    };
    conn.prepare_cached(&format!(
        "{columns} INDEXED BY outbox_out_of_sequence WHERE status IS NOT NULL
         UNION ALL {columns} WHERE status IS NULL AND seq > {PUBLISHED_UP_TO} ORDER BY seq LIMIT ?1"
    ))
    .and_then(|mut select| select.query_map([limit_of(limit)], item)?.collect())
    .map_err(db_fault("reading the outbox"))
}

/// Deletes entries that were published before `cutoff`, and publications whose entries are gone. Keeps the last publication,
/// which is the published position, and with it the last entry: positions are never assigned twice.
pub(super) fn trim(conn: &Connection, cutoff: Timestamp, limit: i64) -> rusqlite::Result<usize> {
    let entries =
        conn.prepare_cached(include_str!("sql/trim_outbox.sql"))?.execute([micros(cutoff), limit])?;
    let publications = conn.prepare_cached(include_str!("sql/trim_publications.sql"))?.execute([limit])?;
    Ok(entries.max(publications))
}

/// Deletes publications beyond the last entry, in case someone deleted the last entries by hand: their positions will be
/// assigned again.
pub(super) fn check_position(conn: &Connection) -> Result<(), StoreFault> {
    conn.execute("DELETE FROM publication WHERE up_to > (SELECT coalesce(max(seq), 0) FROM outbox)", [])
        .map(drop)
        .map_err(db_fault("checking the published position"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Database with so many published entries and three pending ones.
    fn outbox_with_published(count: i64) -> Connection {
        let conn = Connection::open_in_memory().expect("a database");
        super::super::schema::migrate(&conn).expect("its tables");
        let entries = "INSERT INTO outbox (seq, id, saga, subject, payload, created_at)
             WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < ?1 + 3)
             SELECT n, randomblob(16), randomblob(16), 'depot.stored', zeroblob(500), 0 FROM counted";
        conn.execute(entries, [count]).expect("entries");
        conn.execute("INSERT INTO publication VALUES (?1, 0)", [count]).expect("a publication");
        conn.execute("INSERT INTO lease VALUES ('relay', 'depot-1', 1, 9)", []).expect("a lease");
        conn
    }

    /// Cost of some work, in steps of SQLite's virtual machine.
    fn steps(conn: &mut Connection, work: impl FnOnce(&Connection)) -> u64 {
        let counted = Arc::new(AtomicU64::new(0));
        let counter = counted.clone();
        let count = move || {
            counter.fetch_add(1, Ordering::Relaxed);
            false
        };
        conn.progress_handler(1, Some(count)).expect("a counter");
        work(conn);
        conn.progress_handler(0, None::<fn() -> bool>).expect("no counter");
        counted.load(Ordering::Relaxed)
    }

    #[test]
    fn relay_and_readiness_cost_the_same_beside_many_published_entries() {
        let costs = |count: i64| {
            let mut conn = outbox_with_published(count);
            let lease = Lease { owner: "depot-1".to_owned(), fence: 1 };
            let outcome = PublishOutcome { done: vec![count + 1, count + 2], ..PublishOutcome::default() };
            [
                steps(&mut conn, |conn| assert_eq!(pending_entries(conn, 9).expect("entries").len(), 3)),
                steps(&mut conn, |conn| assert_eq!(stats(conn).expect("counts").outbox_pending, 3)),
                steps(&mut conn, |conn| assert_eq!(items(conn, 9).expect("items").len(), 3)),
                steps(&mut conn, |conn| {
                    assert!(settle(conn, &lease, &outcome, Timestamp::UNIX_EPOCH).expect("settled"));
                }),
                steps(&mut conn, |conn| assert_eq!(retry_failed_entries(conn, None).expect("none"), 0)),
            ]
        };
        let (few, many) = (costs(10), costs(5_000));
        for (few, many) in few.into_iter().zip(many) {
            assert!(many < few + 100, "{many} steps beside 5000 published entries, {few} beside ten");
        }
    }
}
