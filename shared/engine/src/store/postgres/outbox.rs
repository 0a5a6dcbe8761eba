//! Shell: what the relay asks: lease, entries to publish, settlement; and what operators ask of the outbox. The line is that
//! of the store on SQLite; whoever moves entries out of it, or back, has the head of the database, so that no batch comes in
//! between.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use saga_core::service_stats::StoreStats;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use super::pool::Connection;
use super::values::{
    count_of, execute, limit_of, micros, oops, query, query_one, query_opt, timestamp, trace, without_nul,
};
use crate::store::{Lease, OutboxEntry, OutboxItem, Published, PublishedRun, RELAY, Republished, StoreFault};

/// Where the line is published up to.
const POSITION: &str = "(SELECT coalesce(max(up_to), 0) FROM publication)";

/// Whether an entry has to wait because an earlier one of its saga does.
const IS_BLOCKED: &str = "EXISTS (SELECT FROM outbox AS blocking
     WHERE blocking.saga = outbox.saga AND blocking.status IN ('FAILED', 'BLOCKED'))";

/// Said beside each status that stands out of line: it is the condition of the index of these few rows.
const OUT_OF_LINE: &str = "status IS NOT NULL";

/// So much of what is published at once may be repetition: what is new shall not wait for it.
const REPUBLISHED_SHARE: usize = 4;

/// Has the others' batches wait, and those that were before them be seen.
pub(super) async fn take_turn(conn: &Connection) -> Result<(), Error> {
    execute(conn, "UPDATE head SET generation = generation + 1", &[]).await.map(drop)
}

pub(super) async fn pending(conn: &Connection, limit: usize) -> Result<Vec<OutboxEntry>, StoreFault> {
    let entries = async |conditions: String, limit: usize| -> Result<Vec<OutboxEntry>, StoreFault> {
        let sql = format!(
            "SELECT seq, id, saga, subject, payload, trace FROM outbox WHERE {conditions} ORDER BY seq LIMIT $1"
        );
        let found = query(conn, &sql, &[&limit_of(limit)]).await.map_err(oops("reading the outbox"))?;
        Ok(found.iter().map(entry).collect())
    };
    // What is tried again stands before everything else of its saga.
    let mut all = entries(format!("{OUT_OF_LINE} AND status = 'RETRY'"), limit).await?;
    let in_line = format!("seq > {POSITION} AND status IS NULL AND NOT {IS_BLOCKED}");
    all.append(&mut entries(in_line, limit.saturating_sub(all.len())).await?);
    let again = format!("{OUT_OF_LINE} AND status = 'REPUBLISH'");
    all.append(&mut entries(again, limit.div_ceil(REPUBLISHED_SHARE)).await?);
    Ok(all)
}

pub(super) async fn behind(
    conn: &Connection,
    position: i64,
    limit: usize,
) -> Result<Option<Vec<OutboxEntry>>, StoreFault> {
    if line_end(conn).await?.is_none() {
        return Ok(None);
    }
    let sql = "SELECT seq, id, saga, subject, payload, trace FROM outbox
         WHERE seq > $1 AND status IS NULL ORDER BY seq LIMIT $2";
    let found = query(conn, sql, &[&position, &limit_of(limit)]).await.map_err(oops("reading the outbox"))?;
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

pub(super) async fn line_end(conn: &Connection) -> Result<Option<i64>, StoreFault> {
    let sql = format!("SELECT outbox FROM head WHERE NOT EXISTS (SELECT FROM outbox WHERE {OUT_OF_LINE})");
    let end = query_opt(conn, &sql, &[]).await.map_err(oops("looking where the outbox ends"))?;
    Ok(end.map(|row| row.get(0)))
}

pub(super) async fn settle(
    conn: &Connection,
    lease: &Lease,
    published: &Published,
    now: Timestamp,
) -> Result<bool, StoreFault> {
    let context = "settling published entries";
    if !holds(conn, lease).await.map_err(oops(context))? {
        return Ok(false);
    }
    let settled = async {
        take_turn(conn).await?;
        settle_failed(conn, published).await?;
        let mut counts = BTreeMap::new();
        let position = query_one(conn, &format!("SELECT {POSITION}"), &[]).await?.get(0);
        let (out_of_line, in_line): (Vec<i64>, Vec<i64>) =
            published.done.iter().copied().partition(|seq| *seq <= position);
        settle_out_of_line(conn, &out_of_line, now, &mut counts).await?;
        settle_line(conn, &in_line.into_iter().collect(), position, now, &mut counts).await?;
        tally(conn, "published", &counts).await
    };
    settled.await.map_err(oops(context))?;
    Ok(true)
}

/// Whether a relay still holds its lease, which nobody takes until the end of the transaction.
async fn holds(conn: &Connection, lease: &Lease) -> Result<bool, Error> {
    let fence = query_opt(conn, "SELECT fence FROM lease WHERE name = $1 FOR SHARE", &[&RELAY]).await?;
    Ok(fence.is_some_and(|row| row.get::<_, i64>(0) == lease.fence))
}

pub(super) async fn settle_run(
    conn: &Connection,
    lease: &Lease,
    run: &PublishedRun,
) -> Result<bool, StoreFault> {
    let settled = async {
        if !holds(conn, lease).await? {
            return Ok(false);
        }
        let is_next = format!(
            "INSERT INTO publication (up_to, published_at)
             SELECT $2::bigint, $3::bigint WHERE {POSITION} < $1 AND NOT EXISTS
                 (SELECT FROM outbox WHERE seq > {POSITION} AND seq < $1 AND status IS NULL)"
        );
        let is_next = execute(conn, &is_next, &[&run.first, &run.last, &micros(run.at)]).await? > 0;
        if is_next {
            tally(conn, "published", &run.subjects).await?;
        }
        Ok(is_next)
    };
    settled.await.map_err(oops("settling published entries"))
}

/// Adds to the counts that outlive trimming.
pub(super) async fn tally(
    conn: &Connection,
    what: &str,
    counts: &BTreeMap<String, i64>,
) -> Result<(), Error> {
    if counts.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = counts.keys().map(String::as_str).collect();
    let counts: Vec<i64> = counts.values().copied().collect();
    let sql = "INSERT INTO message_count (outcome, name, count) SELECT $1::text, name, count FROM unnest($2::text[], $3::bigint[]) AS made (name, count)
         ON CONFLICT (outcome, name) DO UPDATE SET count = message_count.count + excluded.count";
    execute(conn, sql, &[&what, &names, &counts]).await.map(drop)
}

/// What was refused steps out of the line; what was only delayed stays first in it.
async fn settle_failed(conn: &Connection, published: &Published) -> Result<(), Error> {
    for (seq, reason) in &published.refused {
        // One that the broker had before is not missing: it is only not published again.
        let refused = "UPDATE outbox SET attempts = attempts + 1, last_error = $2,
                 status = CASE status WHEN 'REPUBLISH' THEN NULL ELSE 'FAILED' END
             WHERE seq = $1";
        execute(conn, refused, &[seq, &without_nul(reason)]).await?;
        // What was let go with it, when it was to be tried again, has been held up by it once more.
        let held = format!(
            "UPDATE outbox SET status = 'BLOCKED' WHERE {OUT_OF_LINE} AND status = 'RETRY' AND seq > $1
             AND saga = (SELECT saga FROM outbox WHERE seq = $1 AND status = 'FAILED')"
        );
        execute(conn, &held, &[seq]).await?;
    }
    if let Some((seq, reason)) = &published.delayed {
        let delayed = "UPDATE outbox SET attempts = attempts + 1, last_error = $2 WHERE seq = $1";
        execute(conn, delayed, &[seq, &without_nul(reason)]).await?;
    }
    Ok(())
}

/// Behind the position, `PENDING` says published; when, if not with its neighbours, is said beside it.
async fn settle_out_of_line(
    conn: &Connection,
    done: &[i64],
    now: Timestamp,
    counts: &mut BTreeMap<String, i64>,
) -> Result<(), Error> {
    if done.is_empty() {
        return Ok(());
    }
    let waited = "SELECT seq, status, subject FROM outbox WHERE seq = ANY ($1) AND status IS NOT NULL";
    let waited = query(conn, waited, &[&done]).await?;
    let settled: Vec<i64> = waited.iter().map(|row| row.get(0)).collect();
    let settle = "UPDATE outbox SET status = NULL, last_error = NULL, published_at = $2 WHERE seq = ANY ($1)";
    execute(conn, settle, &[&settled, &micros(now)]).await?;
    for row in waited.iter().filter(|row| row.get::<_, &str>(1) != "REPUBLISH") {
        *counts.entry(row.get(2)).or_default() += 1;
    }
    Ok(())
}

/// Entries of the line that are looked at together.
const LOOKED_AT: i64 = 1_000;

/// Moves the position past everything that is done, or held.
async fn settle_line(
    conn: &Connection,
    done: &BTreeSet<i64>,
    position: i64,
    now: Timestamp,
    counts: &mut BTreeMap<String, i64>,
) -> Result<(), Error> {
    let (mut up_to, mut held) = (position, Vec::new());
    let sql = format!(
        "SELECT seq, subject, {IS_BLOCKED} FROM outbox WHERE seq > $1 AND status IS NULL ORDER BY seq LIMIT $2"
    );
    'line: loop {
        let entries = query(conn, &sql, &[&up_to, &LOOKED_AT]).await?;
        for row in &entries {
            let seq: i64 = row.get(0);
            if done.contains(&seq) {
                *counts.entry(row.get(1)).or_default() += 1;
            } else if row.get(2) {
                held.push(seq);
            } else {
                break 'line;
            }
            up_to = seq;
        }
        if limit_of(entries.len()) < LOOKED_AT {
            break;
        }
    }
    if !held.is_empty() {
        execute(conn, "UPDATE outbox SET status = 'BLOCKED' WHERE seq = ANY ($1)", &[&held]).await?;
    }
    if up_to > position {
        let published = "INSERT INTO publication (up_to, published_at) VALUES ($1, $2)";
        execute(conn, published, &[&up_to, &micros(now)]).await?;
    }
    Ok(())
}

/// A failed entry goes back, and with it what its saga held behind it.
pub(super) async fn retry_failed(conn: &Connection, seq: Option<i64>) -> Result<u64, StoreFault> {
    let retried = async {
        take_turn(conn).await?;
        let failed = format!(
            "SELECT DISTINCT saga FROM outbox WHERE {OUT_OF_LINE} AND status = 'FAILED' AND ($1::bigint IS NULL OR seq = $1)"
        );
        let sagas: Vec<Uuid> = query(conn, &failed, &[&seq]).await?.iter().map(|row| row.get(0)).collect();
        let back = format!("status = CASE WHEN seq > {POSITION} THEN NULL ELSE 'RETRY' END");
        let put_back = format!(
            "UPDATE outbox SET {back} WHERE status IN ('FAILED', 'BLOCKED') AND status = 'FAILED' AND saga = ANY ($1)
             AND ($2::bigint IS NULL OR seq = $2)"
        );
        let count = execute(conn, &put_back, &[&sagas, &seq]).await?;
        // What is held behind another failed one of the saga goes on being held.
        let let_go = format!(
            "UPDATE outbox SET {back} WHERE status IN ('FAILED', 'BLOCKED') AND status = 'BLOCKED' AND saga = ANY ($1)
             AND NOT EXISTS
             (SELECT FROM outbox AS before WHERE before.saga = outbox.saga AND before.status IN ('FAILED', 'BLOCKED')
              AND before.status = 'FAILED' AND before.seq < outbox.seq)"
        );
        execute(conn, &let_go, &[&sagas]).await?;
        Ok(count)
    };
    retried.await.map_err(oops("putting failed entries back in line"))
}

/// Marks what was published since then, and stands behind `after`, to be published again.
pub(super) async fn republish(
    conn: &Connection,
    since: Timestamp,
    after: i64,
    limit: usize,
) -> Result<Republished, StoreFault> {
    // From the first publication of that time on: clocks may have been put back meanwhile. And what was published then
    // out of line.
    let published = format!("status IS NULL AND seq > $2 AND seq <= {POSITION}");
    let sql = format!(
        "WITH marked AS (
             (SELECT seq FROM outbox WHERE {published} AND seq >
                  (SELECT coalesce(max(before.up_to), 0) FROM publication AS before WHERE before.up_to <
                       (SELECT min(up_to) FROM publication WHERE published_at >= $1))
                  AND EXISTS (SELECT FROM publication WHERE published_at >= $1) ORDER BY seq LIMIT $3)
             UNION (SELECT seq FROM outbox WHERE published_at >= $1 AND {published} ORDER BY seq LIMIT $3)
             ORDER BY seq LIMIT $3)
         UPDATE outbox SET status = 'REPUBLISH' FROM marked WHERE outbox.seq = marked.seq RETURNING outbox.seq"
    );
    let context = "marking what is to be published again";
    take_turn(conn).await.map_err(oops(context))?;
    let marked =
        query(conn, &sql, &[&micros(since), &after, &limit_of(limit)]).await.map_err(oops(context))?;
    Ok(Republished { count: marked.len(), last: marked.iter().map(|row| row.get(0)).max() })
}

/// When the oldest was published of what is kept in its place.
pub(super) async fn kept_since(conn: &Connection) -> Result<Option<Timestamp>, StoreFault> {
    let sql = "SELECT published_at FROM publication WHERE up_to >=
             (SELECT seq FROM outbox WHERE status IS NULL AND published_at IS NULL ORDER BY seq LIMIT 1)
         ORDER BY up_to LIMIT 1";
    let since = query_opt(conn, sql, &[]).await.map_err(oops("looking for what is kept as published"))?;
    Ok(since.map(|row| timestamp(row.get(0))))
}

/// The columns of [`waiting`], and what they are selected from.
///
/// Places are given without a gap, and only published entries are deleted, from the oldest on: counts are differences. Behind
/// an old one that was tried again there are gaps; until it is trimmed, what is gone behind it counts as kept.
pub(super) fn waiting_from() -> (String, String) {
    let columns = format!(
        "out.retried, out.republished, out.failed,
         {POSITION} + 1 - first.seq
             - (SELECT count(*) FROM outbox
                WHERE {OUT_OF_LINE} AND status <> 'REPUBLISH' AND seq BETWEEN first.seq AND {POSITION}),
         head.outbox - {POSITION} - (SELECT count(*) FROM outbox WHERE {OUT_OF_LINE} AND seq > {POSITION}),
         (SELECT min(created_at) FROM
             ((SELECT created_at FROM outbox WHERE seq > {POSITION} AND status IS NULL ORDER BY seq LIMIT 1)
              UNION ALL (SELECT created_at FROM outbox WHERE {OUT_OF_LINE} AND status = 'RETRY' ORDER BY seq LIMIT 1))
             AS oldest)"
    );
    let from = format!(
        "head, (SELECT coalesce(min(seq), {POSITION} + 1) AS seq FROM outbox WHERE status IS NULL) AS first,
         (SELECT count(*) FILTER (WHERE status = 'RETRY') AS retried,
                 count(*) FILTER (WHERE status = 'REPUBLISH') AS republished,
                 count(*) FILTER (WHERE status NOT IN ('RETRY', 'REPUBLISH')) AS failed
          FROM outbox WHERE {OUT_OF_LINE}) AS out"
    );
    (columns, from)
}

/// How much waits in the outbox, from the first columns of a row; of the rest nothing.
pub(super) fn waiting(row: &Row) -> StoreStats {
    StoreStats {
        outbox_pending: count_of(row.get(0)) + count_of(row.get(4)),
        outbox_republishing: count_of(row.get(1)),
        outbox_failed: count_of(row.get(2)),
        outbox_kept: count_of(row.get(3)),
        outbox_oldest: row.get::<_, Option<i64>>(5).map(timestamp),
        ..StoreStats::default()
    }
}

/// What is not published, and what is to be published again.
pub(super) async fn items(conn: &Connection, limit: usize) -> Result<Vec<OutboxItem>, StoreFault> {
    let columns =
        "SELECT seq, id, subject, coalesce(status, 'PENDING'), attempts, last_error, created_at FROM outbox";
    let sql = format!(
        "(({columns} WHERE {OUT_OF_LINE} ORDER BY seq LIMIT $1)
          UNION ALL ({columns} WHERE status IS NULL AND seq > {POSITION} ORDER BY seq LIMIT $1)) ORDER BY seq LIMIT $1"
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
    let found = query(conn, &sql, &[&limit_of(limit)]).await.map_err(oops("reading the outbox"))?;
    Ok(found.iter().map(item).collect())
}

/// Deletes what was published before `cutoff`, as an array: a subquery might be asked again for each row, and lock others. The last entry stays: whoever looks at the outbox sees how far it had come.
pub(super) async fn trim(conn: &Connection, cutoff: Timestamp, limit: i64) -> Result<u64, Error> {
    let entries = "DELETE FROM outbox WHERE seq = ANY (ARRAY(
         SELECT seq FROM outbox WHERE status IS NULL AND seq <=
              (SELECT max(up_to) FROM publication WHERE up_to < coalesce(
                   (SELECT min(up_to) FROM publication WHERE published_at >= $1),
                   (SELECT max(up_to) FROM publication)))
              AND (published_at IS NULL OR published_at < $1)
          ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED))";
    let gone = execute(conn, entries, &[&micros(cutoff), &limit]).await?;
    // A publication goes when the entries of which it tells are gone. The last one stays: it is where the line is.
    let told = "DELETE FROM publication WHERE up_to = ANY (ARRAY(
         SELECT up_to FROM publication
          WHERE up_to < (SELECT min(seq) FROM outbox WHERE status IS NULL)
              AND up_to < (SELECT max(up_to) FROM publication) ORDER BY up_to LIMIT $1 FOR UPDATE SKIP LOCKED))";
    let told = execute(conn, told, &[&limit]).await?;
    Ok(gone.max(told))
}
