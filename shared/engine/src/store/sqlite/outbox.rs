//! Shell: what the relay asks: lease, pending entries, settlement.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use saga_core::waiting::is_over;

use super::values::{micros, oops, timestamp};
use crate::store::{Lease, OutboxEntry, Published, StoreFault};

/// How long an entry waits after the broker could not take it. Constant: the relay itself backs off.
const DELAY: SignedDuration = SignedDuration::from_millis(200);

pub(super) fn take_lease(
    conn: &Connection,
    held: Option<&Lease>,
    owner: &str,
    now: Timestamp,
    until: Timestamp,
) -> Result<Option<Lease>, StoreFault> {
    let context = "taking the relay's lease";
    let current: Option<(String, i64, i64)> = conn
        .query_row("SELECT owner, fence, until FROM lease WHERE name = 'relay'", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()
        .map_err(oops(context))?;
    let fence = match (&current, held) {
        // A renewal keeps its fence; after a lapse that somebody used, the fences differ.
        (Some((_, fence, _)), Some(held)) if *fence == held.fence => *fence,
        // An earlier life of the same owner is over: this process holds its database alone.
        (Some((holder, fence, _)), _) if holder == owner => fence + 1,
        (Some((_, fence, ends)), _) if is_over(timestamp(*ends), now, until.duration_since(now)) => fence + 1,
        (Some(_), _) => return Ok(None),
        (None, _) => 1,
    };
    conn.execute(
        "INSERT INTO lease (name, owner, fence, until) VALUES ('relay', ?1, ?2, ?3)
         ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, fence = excluded.fence, until = excluded.until",
        params![owner, fence, micros(until)],
    )
    .map_err(oops(context))?;
    Ok(Some(Lease { owner: owner.to_owned(), fence }))
}

pub(super) fn pending(
    conn: &Connection,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<OutboxEntry>, StoreFault> {
    let entries: Vec<(OutboxEntry, i64)> = conn
        .prepare_cached(
            "SELECT seq, id, subject, payload, next_attempt FROM outbox
             WHERE status = 'PENDING' ORDER BY seq LIMIT ?1",
        )
        .and_then(|mut select| {
            select
                .query_map([i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
                    let payload = row.get::<_, Vec<u8>>(3)?.into();
                    Ok((
                        OutboxEntry { seq: row.get(0)?, id: row.get(1)?, subject: row.get(2)?, payload },
                        row.get(4)?,
                    ))
                })?
                .collect()
        })
        .map_err(oops("reading the outbox"))?;
    // Nothing overtakes an entry that waits for its next attempt.
    let ready =
        entries.into_iter().take_while(|(_, next_attempt)| is_over(timestamp(*next_attempt), now, DELAY));
    Ok(ready.map(|(entry, _)| entry).collect())
}

pub(super) fn settle(
    conn: &Connection,
    lease: &Lease,
    published: &Published,
    now: Timestamp,
) -> Result<bool, StoreFault> {
    let context = "settling published entries";
    let fence: Option<i64> = conn
        .prepare_cached("SELECT fence FROM lease WHERE name = 'relay'")
        .and_then(|mut select| select.query_row([], |row| row.get(0)).optional())
        .map_err(oops(context))?;
    if fence != Some(lease.fence) {
        return Ok(false);
    }
    let at = micros(now);
    let settled = || -> rusqlite::Result<()> {
        settle_done(conn, &published.done, at)?;
        for (seq, reason) in &published.refused {
            conn.prepare_cached(
                "UPDATE outbox SET status = 'FAILED', attempts = attempts + 1, last_error = ?2 WHERE seq = ?1",
            )?
            .execute(params![seq, reason])?;
        }
        if let Some((seq, reason)) = &published.delayed {
            conn.prepare_cached("UPDATE outbox SET attempts = attempts + 1, next_attempt = ?2, last_error = ?3 WHERE seq = ?1")?
                .execute(params![seq, micros(now.saturating_add(DELAY).unwrap_or(now)), reason])?;
        }
        Ok(())
    };
    settled().map_err(oops(context))?;
    Ok(true)
}

fn settle_done(conn: &Connection, done: &[i64], at: i64) -> rusqlite::Result<()> {
    let mut delete = conn.prepare_cached("DELETE FROM outbox WHERE seq = ?1 RETURNING event_seq, subject")?;
    let mut stamp = conn.prepare_cached("UPDATE event SET published_at = ?2 WHERE seq = ?1")?;
    let mut subjects: BTreeMap<String, i64> = BTreeMap::new();
    for seq in done {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let gone: Option<(Option<i64>, String)> = delete.query_row([seq], read).optional()?;
        let Some((event, subject)) = gone else {
            continue;
        };
        if let Some(event) = event {
            stamp.execute([event, at])?;
        }
        *subjects.entry(subject).or_default() += 1;
    }
    let counts = subjects.iter().map(|(subject, count)| (subject.as_str(), *count)).collect();
    super::write::tally(conn, "published", &counts)
}

pub(super) fn retry_failed(conn: &Connection, seq: Option<i64>) -> Result<u64, StoreFault> {
    conn.execute(
        "UPDATE outbox SET status = 'PENDING', next_attempt = 0 WHERE status = 'FAILED' AND (?1 IS NULL OR seq = ?1)",
        [seq],
    )
    .map(|count| u64::try_from(count).unwrap_or(0))
    .map_err(oops("putting failed entries back in line"))
}
