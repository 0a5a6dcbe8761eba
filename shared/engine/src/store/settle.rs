//! Shell: settles outbox entries that were published.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::encoding::{micros, without_nul};
use super::leases::{Lease, RELAY_LEASE};
use super::sql::{Array, Sql, limit_of};
use super::sql_error::SqlError;

/// Position up to which the sequence is published.
pub(super) const PUBLISHED_UP_TO: &str = "(SELECT coalesce(max(up_to), 0) FROM publication)";

/// Condition of an entry that waits behind a failed one of its saga.
pub(super) const IS_BLOCKED: &str = "EXISTS (SELECT 1 FROM outbox AS blocking
     WHERE blocking.saga = outbox.saga AND blocking.status IN ('FAILED', 'BLOCKED'))";

/// Outcome of publishing a batch, to be settled.
#[derive(Debug, Clone, Default)]
pub struct PublishOutcome {
    /// Positions of the entries that the broker stored.
    pub done: Vec<i64>,
    /// Entries that the broker rejects for good, with the reason. They become `FAILED` and block later entries of their
    /// sagas.
    pub rejected: Vec<(i64, String)>,
    /// First of the remaining entries, with the reason why it was not published.
    pub delayed: Option<(i64, String)>,
}

/// Consecutive entries that the broker stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedRun {
    /// Position of the first entry.
    pub first: i64,
    /// Position of the last entry.
    pub last: i64,
    /// Number of entries by subject.
    pub subjects: BTreeMap<String, i64>,
    /// Time at which the broker stored them.
    pub at: Timestamp,
}

/// Minimum number of entries to read at once.
const MIN_PAGE: usize = 100;

pub(super) async fn settle<S: Sql>(
    db: &S,
    lease: &Lease,
    outcome: &PublishOutcome,
    now: Timestamp,
) -> Result<bool, SqlError> {
    if !is_current(db, lease).await? {
        return Ok(false);
    }
    db.lock_log().await?;
    settle_unpublished(db, outcome).await?;
    let mut counts = BTreeMap::new();
    let published_up_to =
        db.query_one(&format!("SELECT {PUBLISHED_UP_TO}"), &[], |row| row.get::<i64>(0)).await?;
    let (out_of_sequence, in_sequence): (Vec<i64>, Vec<i64>) =
        outcome.done.iter().copied().partition(|seq| *seq <= published_up_to);
    settle_out_of_sequence(db, &out_of_sequence, now, &mut counts).await?;
    let in_sequence = in_sequence.into_iter().collect();
    settle_sequence(db, &in_sequence, published_up_to, now, &mut counts).await?;
    db.add_to_message_counts("published", &counts).await?;
    Ok(true)
}

pub(super) async fn settle_run<S: Sql>(db: &S, lease: &Lease, run: &PublishedRun) -> Result<bool, SqlError> {
    if !is_current(db, lease).await? {
        return Ok(false);
    }
    let sql = include_str!("sql/settle_run.sql").replace("{published_up_to}", PUBLISHED_UP_TO);
    let is_next = db.execute(&sql, &[&run.first, &run.last, &micros(run.at)]).await? > 0;
    if is_next {
        db.add_to_message_counts("published", &run.subjects).await?;
    }
    Ok(is_next)
}

/// Returns true if the relay still holds its lease. A row lock keeps others from taking it until the transaction ends.
async fn is_current<S: Sql>(db: &S, lease: &Lease) -> Result<bool, SqlError> {
    let sql = format!("SELECT fence FROM lease WHERE name = $1{}", S::FOR_SHARE);
    let fence = db.query_opt(&sql, &[&RELAY_LEASE], |row| row.get(0)).await?;
    Ok(fence == Some(lease.fence))
}

/// Takes rejected entries out of sequence. A delayed entry stays the first in sequence.
async fn settle_unpublished<S: Sql>(db: &S, outcome: &PublishOutcome) -> Result<(), SqlError> {
    for (seq, reason) in &outcome.rejected {
        // The broker has the original of a republished message: only its repetition fails.
        let failed = "UPDATE outbox SET attempts = attempts + 1, last_error = $2,
                 status = CASE status WHEN 'REPUBLISH' THEN NULL ELSE 'FAILED' END
             WHERE seq = $1";
        db.execute(failed, &[seq, &without_nul(reason)]).await?;
        // Entries that were to be retried behind the failed one are blocked again.
        let blocked = "UPDATE outbox SET status = 'BLOCKED' WHERE status = 'RETRY' AND seq > $1
             AND saga = (SELECT saga FROM outbox WHERE seq = $1 AND status = 'FAILED')";
        db.execute(blocked, &[seq]).await?;
    }
    if let Some((seq, reason)) = &outcome.delayed {
        let delayed = "UPDATE outbox SET attempts = attempts + 1, last_error = $2 WHERE seq = $1";
        db.execute(delayed, &[seq, &without_nul(reason)]).await?;
    }
    Ok(())
}

/// Returns entries to the sequence, before the published position, each with its own time of publication.
async fn settle_out_of_sequence<S: Sql>(
    db: &S,
    done: &[i64],
    now: Timestamp,
    counts: &mut BTreeMap<String, i64>,
) -> Result<(), SqlError> {
    if done.is_empty() {
        return Ok(());
    }
    let is_done = S::any(1);
    let waiting =
        format!("SELECT seq, status, subject FROM outbox WHERE seq {is_done} AND status IS NOT NULL");
    let waiting: Vec<(i64, String, String)> =
        db.query(&waiting, &[&Array(done)], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).await?;
    let settled: Vec<i64> = waiting.iter().map(|(seq, ..)| *seq).collect();
    let settle =
        format!("UPDATE outbox SET status = NULL, last_error = NULL, published_at = $2 WHERE seq {is_done}");
    db.execute(&settle, &[&Array(&settled), &micros(now)]).await?;
    for (_, status, subject) in waiting {
        if status != "REPUBLISH" {
            *counts.entry(subject).or_default() += 1;
        }
    }
    Ok(())
}

/// Moves the published position past all entries that are published or blocked.
async fn settle_sequence<S: Sql>(
    db: &S,
    done: &BTreeSet<i64>,
    published_up_to: i64,
    now: Timestamp,
    counts: &mut BTreeMap<String, i64>,
) -> Result<(), SqlError> {
    let (mut up_to, mut blocked) = (published_up_to, Vec::new());
    let page = limit_of((done.len() + 1).max(MIN_PAGE));
    let sql = format!(
        "SELECT seq, subject, {IS_BLOCKED} FROM outbox WHERE seq > $1 AND status IS NULL ORDER BY seq LIMIT $2"
    );
    'sequence: loop {
        let entries: Vec<(i64, String, bool)> =
            db.query(&sql, &[&up_to, &page], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).await?;
        let is_last = limit_of(entries.len()) < page;
        for (seq, subject, is_blocked) in entries {
            if done.contains(&seq) {
                *counts.entry(subject).or_default() += 1;
            } else if is_blocked {
                blocked.push(seq);
            } else {
                break 'sequence;
            }
            up_to = seq;
        }
        if is_last {
            break;
        }
    }
    if !blocked.is_empty() {
        let sql = format!("UPDATE outbox SET status = 'BLOCKED' WHERE seq {}", S::any(1));
        db.execute(&sql, &[&Array(&blocked)]).await?;
    }
    if up_to > published_up_to {
        let sql = "INSERT INTO publication (up_to, published_at) VALUES ($1, $2)";
        db.execute(sql, &[&up_to, &micros(now)]).await?;
    }
    Ok(())
}
