//! Shell: what the relay asks: entries to publish, settlement; and what operators ask of the outbox.
//!
//! The outbox is a line. What stands in it is published in order, and stays for a while: a publication says up to where
//! the line is published, so that nothing has to be written per entry. What cannot be published in its place steps out
//! of the line, and says so in its status.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use saga_core::service_stats::StoreStats;
use uuid::Uuid;

use super::values::{micros, oops, timestamp, trace};
use crate::store::{Lease, OutboxEntry, OutboxItem, Published, PublishedRun, RELAY, Republished, StoreFault};

/// Where the line is published up to.
const POSITION: &str = "(SELECT coalesce(max(up_to), 0) FROM publication)";

/// Whether an entry has to wait because an earlier one of its saga does.
const IS_BLOCKED: &str = "EXISTS (SELECT 1 FROM outbox AS blocking
     WHERE blocking.saga = outbox.saga AND blocking.status IN ('FAILED', 'BLOCKED'))";

/// Said beside each status that stands out of line, or SQLite does not see that the index of these few rows holds it.
const OUT_OF_LINE: &str = "status IS NOT NULL";

/// So much of what is published at once may be repetition: what is new shall not wait for it.
const REPUBLISHED_SHARE: usize = 4;

pub(super) fn pending(conn: &Connection, limit: usize) -> Result<Vec<OutboxEntry>, StoreFault> {
    let all = || -> rusqlite::Result<Vec<OutboxEntry>> {
        // What is tried again stands before everything else of its saga.
        let mut all = entries(conn, &format!("{OUT_OF_LINE} AND status = 'RETRY'"), limit)?;
        let in_line = format!("seq > {POSITION} AND status IS NULL AND NOT {IS_BLOCKED}");
        all.append(&mut entries(conn, &in_line, limit.saturating_sub(all.len()))?);
        let again = format!("{OUT_OF_LINE} AND status = 'REPUBLISH'");
        all.append(&mut entries(conn, &again, limit.div_ceil(REPUBLISHED_SHARE))?);
        Ok(all)
    };
    all().map_err(oops("reading the outbox"))
}

/// The first of those entries.
fn entries(conn: &Connection, conditions: &str, limit: usize) -> rusqlite::Result<Vec<OutboxEntry>> {
    conn.prepare_cached(&format!(
        "SELECT seq, id, saga, subject, payload, trace FROM outbox WHERE {conditions} ORDER BY seq LIMIT ?1"
    ))?
    .query_map([i64::try_from(limit).unwrap_or(i64::MAX)], entry)?
    .collect()
}

/// An entry of these columns.
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

pub(super) fn behind(
    conn: &Connection,
    position: i64,
    limit: usize,
) -> Result<Option<Vec<OutboxEntry>>, StoreFault> {
    if line_end(conn)?.is_none() {
        return Ok(None);
    }
    let sql = "SELECT seq, id, saga, subject, payload, trace FROM outbox
         WHERE seq > ?2 AND status IS NULL ORDER BY seq LIMIT ?1";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    conn.prepare_cached(sql)
        .and_then(|mut select| select.query_map([limit, position], entry)?.collect())
        .map(Some)
        .map_err(oops("reading the outbox"))
}

pub(super) fn line_end(conn: &Connection) -> Result<Option<i64>, StoreFault> {
    conn.prepare_cached(&format!(
        "SELECT line.seq FROM (SELECT coalesce(max(seq), 0) AS seq FROM outbox) AS line
         WHERE NOT EXISTS (SELECT 1 FROM outbox WHERE {OUT_OF_LINE})"
    ))
    .and_then(|mut select| select.query_row([], |row| row.get(0)).optional())
    .map_err(oops("looking where the outbox ends"))
}

pub(super) fn settle(
    conn: &Connection,
    lease: &Lease,
    published: &Published,
    now: Timestamp,
) -> Result<bool, StoreFault> {
    let context = "settling published entries";
    if !holds(conn, lease).map_err(oops(context))? {
        return Ok(false);
    }
    let settled = || -> rusqlite::Result<()> {
        settle_failed(conn, published)?;
        let mut counts = BTreeMap::new();
        let position = conn.prepare_cached(&format!("SELECT {POSITION}"))?.query_row([], |row| row.get(0))?;
        let (out_of_line, in_line): (Vec<i64>, Vec<i64>) =
            published.done.iter().copied().partition(|seq| *seq <= position);
        settle_out_of_line(conn, &out_of_line, now, &mut counts)?;
        settle_line(conn, &in_line.into_iter().collect(), position, now, &mut counts)?;
        let counts = counts.iter().map(|(subject, count)| (subject.as_str(), *count)).collect();
        super::write::tally(conn, "published", &counts)
    };
    settled().map_err(oops(context))?;
    Ok(true)
}

/// Whether a relay still holds its lease.
fn holds(conn: &Connection, lease: &Lease) -> rusqlite::Result<bool> {
    let fence: Option<i64> = conn
        .prepare_cached("SELECT fence FROM lease WHERE name = ?1")?
        .query_row([RELAY], |row| row.get(0))
        .optional()?;
    Ok(fence == Some(lease.fence))
}

pub(super) fn settle_run(conn: &Connection, lease: &Lease, run: &PublishedRun) -> Result<bool, StoreFault> {
    let settled = || -> rusqlite::Result<bool> {
        if !holds(conn, lease)? {
            return Ok(false);
        }
        let is_next: bool = conn
            .prepare_cached(&format!(
                "SELECT {POSITION} < ?1 AND NOT EXISTS
                     (SELECT 1 FROM outbox WHERE seq > {POSITION} AND seq < ?1 AND status IS NULL)"
            ))?
            .query_row([run.first], |row| row.get(0))?;
        if is_next {
            conn.prepare_cached("INSERT INTO publication (up_to, published_at) VALUES (?1, ?2)")?
                .execute([run.last, micros(run.at)])?;
            let counts = run.subjects.iter().map(|(subject, count)| (subject.as_str(), *count)).collect();
            super::write::tally(conn, "published", &counts)?;
        }
        Ok(is_next)
    };
    settled().map_err(oops("settling published entries"))
}

/// What was refused steps out of the line; what was only delayed stays first in it.
fn settle_failed(conn: &Connection, published: &Published) -> rusqlite::Result<()> {
    for (seq, reason) in &published.refused {
        // One that the broker had before is not missing: it is only not published again.
        conn.prepare_cached(
            "UPDATE outbox SET attempts = attempts + 1, last_error = ?2,
                 status = CASE status WHEN 'REPUBLISH' THEN NULL ELSE 'FAILED' END
             WHERE seq = ?1",
        )?
        .execute(params![seq, reason])?;
        // What was let go with it, when it was to be tried again, has been held up by it once more.
        conn.prepare_cached(&format!(
            "UPDATE outbox SET status = 'BLOCKED' WHERE {OUT_OF_LINE} AND status = 'RETRY'
             AND (saga, 'FAILED') = (SELECT saga, status FROM outbox WHERE seq = ?1) AND seq > ?1"
        ))?
        .execute([seq])?;
    }
    if let Some((seq, reason)) = &published.delayed {
        conn.prepare_cached("UPDATE outbox SET attempts = attempts + 1, last_error = ?2 WHERE seq = ?1")?
            .execute(params![seq, reason])?;
    }
    Ok(())
}

/// Behind the position, `PENDING` says published; when, if not with its neighbours, is said beside it.
fn settle_out_of_line(
    conn: &Connection,
    done: &[i64],
    now: Timestamp,
    counts: &mut BTreeMap<String, i64>,
) -> rusqlite::Result<()> {
    for seq in done {
        let waited: Option<(String, String)> = conn
            .prepare_cached("SELECT status, subject FROM outbox WHERE seq = ?1 AND status IS NOT NULL")?
            .query_row([seq], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((status, subject)) = waited else { continue };
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

/// Moves the position past everything that is done, or held.
fn settle_line(
    conn: &Connection,
    done: &BTreeSet<i64>,
    position: i64,
    now: Timestamp,
    counts: &mut BTreeMap<String, i64>,
) -> rusqlite::Result<()> {
    let (mut up_to, mut held) = (position, Vec::new());
    {
        let mut select = conn.prepare_cached(&format!(
            "SELECT seq, subject, {IS_BLOCKED} FROM outbox WHERE seq > ?1 AND status IS NULL ORDER BY seq"
        ))?;
        let mut rows = select.query([position])?;
        while let Some(row) = rows.next()? {
            let seq: i64 = row.get(0)?;
            if done.contains(&seq) {
                *counts.entry(row.get(1)?).or_default() += 1;
            } else if row.get(2)? {
                held.push(seq);
            } else {
                break;
            }
            up_to = seq;
        }
    }
    for seq in held {
        conn.prepare_cached("UPDATE outbox SET status = 'BLOCKED' WHERE seq = ?1")?.execute([seq])?;
    }
    if up_to > position {
        conn.prepare_cached("INSERT INTO publication (up_to, published_at) VALUES (?1, ?2)")?
            .execute([up_to, micros(now)])?;
    }
    Ok(())
}

/// A failed entry goes back, and with it what its saga held behind it.
pub(super) fn retry_failed(conn: &Connection, seq: Option<i64>) -> Result<u64, StoreFault> {
    let retried = || -> rusqlite::Result<usize> {
        let sagas: BTreeSet<Uuid> = conn
            .prepare(&format!(
                "SELECT saga FROM outbox WHERE {OUT_OF_LINE} AND status = 'FAILED' AND (?1 IS NULL OR seq = ?1)"
            ))?
            .query_map([seq], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        let back = format!("status = CASE WHEN seq > {POSITION} THEN NULL ELSE 'RETRY' END");
        let sql = format!(
            "UPDATE outbox SET {back} WHERE {OUT_OF_LINE} AND status = 'FAILED' AND saga = ?1
             AND (?2 IS NULL OR seq = ?2)"
        );
        let mut count = 0;
        for saga in sagas {
            count += conn.prepare_cached(&sql)?.execute(params![saga, seq])?;
            // What is held behind another failed one of the saga goes on being held.
            conn.prepare_cached(&format!(
                "UPDATE outbox SET {back} WHERE {OUT_OF_LINE} AND status = 'BLOCKED' AND saga = ?1 AND NOT EXISTS
                 (SELECT 1 FROM outbox AS before WHERE before.saga = ?1 AND before.status IN ('FAILED', 'BLOCKED')
                  AND before.status = 'FAILED' AND before.seq < outbox.seq)"
            ))?
            .execute([saga])?;
        }
        Ok(count)
    };
    retried()
        .map(|count| u64::try_from(count).unwrap_or(0))
        .map_err(oops("putting failed entries back in line"))
}

/// Marks what was published since then, and stands behind `after`, to be published again.
pub(super) fn republish(
    conn: &Connection,
    since: Timestamp,
    after: i64,
    limit: usize,
) -> Result<Republished, StoreFault> {
    // From the first publication of that time on: clocks may have been put back meanwhile. And what was published then
    // out of line.
    let published = format!("status IS NULL AND seq > ?2 AND seq <= {POSITION}");
    let sql = format!(
        "UPDATE outbox SET status = 'REPUBLISH' WHERE seq IN
         (SELECT seq FROM (SELECT seq FROM outbox WHERE {published} AND seq >
              (SELECT coalesce(max(before.up_to), 0) FROM publication AS before WHERE before.up_to <
                   (SELECT min(up_to) FROM publication WHERE published_at >= ?1))
              AND EXISTS (SELECT 1 FROM publication WHERE published_at >= ?1) ORDER BY seq LIMIT ?3)
          UNION SELECT seq FROM (SELECT seq FROM outbox INDEXED BY outbox_published_out_of_sequence
              WHERE published_at >= ?1 AND {published} ORDER BY seq LIMIT ?3)
          ORDER BY seq LIMIT ?3)
         RETURNING seq"
    );
    let marked: rusqlite::Result<Vec<i64>> = conn.prepare_cached(&sql).and_then(|mut update| {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        update.query_map(params![micros(since), after, limit], |row| row.get(0))?.collect()
    });
    let marked = marked.map_err(oops("marking what is to be published again"))?;
    Ok(Republished { count: marked.len(), last: marked.into_iter().max() })
}

/// When the oldest was published of what is kept in its place.
pub(super) fn kept_since(conn: &Connection) -> Result<Option<Timestamp>, StoreFault> {
    conn.prepare_cached(
        "SELECT published_at FROM publication WHERE up_to >=
             (SELECT seq FROM outbox WHERE status IS NULL AND published_at IS NULL ORDER BY seq LIMIT 1)
         ORDER BY up_to LIMIT 1",
    )
    .and_then(|mut select| select.query_row([], |row| row.get(0)).optional())
    .map(|since: Option<i64>| since.map(timestamp))
    .map_err(oops("looking for what is kept as published"))
}

/// How much waits in the outbox; of the rest nothing.
pub(super) fn waiting(conn: &Connection) -> rusqlite::Result<StoreStats> {
    let mut waiting = StoreStats::default();
    let mut out_of_line = conn.prepare_cached(&format!(
        "SELECT status, count(*) FROM outbox WHERE {OUT_OF_LINE} GROUP BY status"
    ))?;
    let mut rows = out_of_line.query([])?;
    while let Some(row) = rows.next()? {
        let count = u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0);
        match row.get_ref(0)?.as_str()? {
            "RETRY" => waiting.outbox_pending += count,
            "REPUBLISH" => waiting.outbox_republishing += count,
            _ => waiting.outbox_failed += count,
        }
    }
    // Only published entries are deleted, and from the oldest on: there are no gaps among the others, but behind an old
    // one that was tried again. Until that one is trimmed, what is gone behind it counts as kept.
    let kept: i64 = conn
        .prepare_cached(&format!(
            "SELECT {POSITION} + 1 - first.seq
                 - (SELECT count(*) FROM outbox INDEXED BY outbox_out_of_sequence
                    WHERE {OUT_OF_LINE} AND status <> 'REPUBLISH' AND seq BETWEEN first.seq AND {POSITION})
             FROM (SELECT coalesce(min(seq), {POSITION} + 1) AS seq FROM outbox WHERE status IS NULL) AS first"
        ))?
        .query_row([], |row| row.get(0))?;
    waiting.outbox_kept = u64::try_from(kept).unwrap_or(0);
    let in_line: i64 = conn
        .prepare_cached(&format!(
            "SELECT coalesce(max(seq), 0) - {POSITION}
                 - (SELECT count(*) FROM outbox INDEXED BY outbox_out_of_sequence WHERE {OUT_OF_LINE} AND seq > {POSITION})
             FROM outbox"
        ))?
        .query_row([], |row| row.get(0))?;
    waiting.outbox_pending += u64::try_from(in_line).unwrap_or(0);
    waiting.outbox_oldest = conn
        .prepare_cached(&format!(
            "SELECT min(created_at) FROM
             (SELECT created_at FROM (SELECT created_at FROM outbox
                  WHERE seq > {POSITION} AND status IS NULL ORDER BY seq LIMIT 1)
              UNION ALL SELECT created_at FROM (SELECT created_at FROM outbox
                  WHERE {OUT_OF_LINE} AND status = 'RETRY' ORDER BY seq LIMIT 1))"
        ))?
        .query_row([], |row| row.get::<_, Option<i64>>(0))?
        .map(timestamp);
    Ok(waiting)
}

/// What is not published, and what is to be published again.
pub(super) fn items(conn: &Connection, limit: usize) -> Result<Vec<OutboxItem>, StoreFault> {
    let columns =
        "SELECT seq, id, subject, coalesce(status, 'PENDING'), attempts, last_error, created_at FROM outbox";
    conn.prepare_cached(&format!(
        "{columns} INDEXED BY outbox_out_of_sequence WHERE {OUT_OF_LINE}
         UNION ALL {columns} WHERE status IS NULL AND seq > {POSITION} ORDER BY seq LIMIT ?1"
    ))
    .and_then(|mut select| {
        let read = |row: &Row<'_>| {
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
        select.query_map([i64::try_from(limit).unwrap_or(i64::MAX)], read)?.collect()
    })
    .map_err(oops("reading the outbox"))
}

/// Deletes what was published before `cutoff`. The last entry stays: positions are never given twice.
pub(super) fn trim(conn: &Connection, cutoff: Timestamp, limit: i64) -> rusqlite::Result<usize> {
    let gone = conn
        .prepare_cached(
            "DELETE FROM outbox WHERE seq IN
             (SELECT seq FROM outbox WHERE status IS NULL AND seq <=
                  (SELECT max(up_to) FROM publication WHERE up_to < coalesce(
                       (SELECT min(up_to) FROM publication WHERE published_at >= ?1),
                       (SELECT max(up_to) FROM publication)))
                  AND (published_at IS NULL OR published_at < ?1)
              ORDER BY seq LIMIT ?2)",
        )?
        .execute([micros(cutoff), limit])?;
    // A publication goes when the entries of which it tells are gone. The last one stays: it is where the line is.
    let told = conn
        .prepare_cached(
            "DELETE FROM publication WHERE up_to IN
             (SELECT up_to FROM publication
              WHERE up_to < (SELECT min(seq) FROM outbox WHERE status IS NULL)
                  AND up_to < (SELECT max(up_to) FROM publication) ORDER BY up_to LIMIT ?1)",
        )?
        .execute([limit])?;
    Ok(gone.max(told))
}

/// Takes back what is said of entries that are gone, should somebody have deleted the last ones by hand: their
/// positions are given again.
pub(super) fn check_position(conn: &Connection) -> Result<(), StoreFault> {
    conn.execute("DELETE FROM publication WHERE up_to > (SELECT coalesce(max(seq), 0) FROM outbox)", [])
        .map(drop)
        .map_err(oops("checking how far the outbox is published"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A database whose outbox keeps so many published entries, and three that wait.
    fn kept(count: i64) -> Connection {
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

    /// What some work costs, in steps of SQLite's machine.
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

    /// What is kept for later is in nobody's way.
    #[test]
    fn what_is_published_costs_the_relay_and_readiness_nothing() {
        let costs = |count: i64| {
            let mut conn = kept(count);
            let lease = Lease { owner: "depot-1".to_owned(), fence: 1 };
            let published = Published { done: vec![count + 1, count + 2], ..Published::default() };
            [
                steps(&mut conn, |conn| assert_eq!(pending(conn, 9).expect("entries").len(), 3)),
                steps(&mut conn, |conn| assert_eq!(waiting(conn).expect("counts").outbox_pending, 3)),
                steps(&mut conn, |conn| assert_eq!(items(conn, 9).expect("items").len(), 3)),
                steps(&mut conn, |conn| {
                    assert!(settle(conn, &lease, &published, Timestamp::UNIX_EPOCH).expect("settled"));
                }),
                steps(&mut conn, |conn| assert_eq!(retry_failed(conn, None).expect("none"), 0)),
            ]
        };
        let (few, many) = (costs(10), costs(5_000));
        for (few, many) in few.into_iter().zip(many) {
            assert!(many < few + 100, "{many} steps beside 5000 published entries, {few} beside ten");
        }
    }
}
