//! Shell: what leaves the tables when it is old: events of rows that live on, for which a snapshot stands then; finished
//! rows with all their events; and dead letters that are over.
//!
//! It is found first, by a reader, so that it can be written down elsewhere before it is deleted. The history is looked
//! through once, from its oldest event on: each that is old lets those before it of the same row leave, and the last of a
//! finished row lets the row leave. The last event of a row that lives on stays, and so does the last of all, whose position
//! must not be given twice.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, OptionalExtension as _, params};
use saga_core::dead_letter::{DeadLetterStatus, StoredDeadLetter};
use saga_core::decider::RetentionPolicy;
use saga_core::row::{RowKind, StoredEvent};
use tracing::error;
use uuid::Uuid;

use super::fold;
use super::left::{carry, left_before};
use super::values::{micros, oops, stored_dead_letter, timestamp};
use super::write::tally;
use crate::store::leaving::{Before, Look, Looked, Passed, carried_of, first_that_stays};
use crate::store::{Departures, Leaving, LeavingEvent, LeavingRow, Snapshot, StoreFault};

/// What may leave next.
pub(super) fn find(
    conn: &Connection,
    kinds: &[RowKind],
    before: Departures,
    limit: usize,
) -> Result<Leaving, StoreFault> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let context = "looking for what may leave";
    let from = looked_through(conn).map_err(oops(context))?;
    let mut leaving = Leaving { from, up_to: from, ..Leaving::default() };
    let looked = look(conn, &mut leaving, micros(before.history), limit).map_err(oops(context))?;
    leaving.before = first_that_stays(before.began);
    let mut held = None;
    for ((kind, id), at) in looked {
        let Some(kind) = kinds.iter().find(|declared| declared.name == kind) else { continue };
        match kind.retention {
            RetentionPolicy::Keep => Ok(()),
            RetentionPolicy::PurgeEvents => part(conn, &mut leaving, kind, &id, at, limit),
            RetentionPolicy::PurgeRows | RetentionPolicy::PurgeRowsFirst => {
                whole(conn, &mut leaving, kind, &id, at, &mut held)
            }
        }
        .map_err(oops(context))?;
    }
    // At the end of the history: each look at them comes past those that are young.
    if leaving.events.is_empty() {
        leaving.dead_letters =
            dead_letters(conn, micros(before.dead_letters), limit).map_err(oops(context))?;
    }
    Ok(leaving)
}

fn looked_through(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached("SELECT max(up_to) FROM retention_scan")?
        .query_row([], |row| Ok(row.get::<_, Option<i64>>(0)?.unwrap_or(0)))
}

/// The next old events, by their rows.
fn look(
    conn: &Connection,
    leaving: &mut Leaving,
    cutoff: i64,
    limit: i64,
) -> rusqlite::Result<BTreeMap<(String, String), Looked>> {
    let mut look = Look::default();
    let mut select = conn.prepare_cached(
        "SELECT seq, kind, row_id, version, recorded_at, length(data) FROM event
         WHERE seq > ?1 AND seq < (SELECT max(seq) FROM event) ORDER BY seq LIMIT ?2",
    )?;
    let mut rows = select.query([leaving.from, limit])?;
    while let Some(event) = rows.next()? {
        let row = (event.get(1)?, event.get(2)?);
        let (seq, version, at, bytes) = (event.get(0)?, event.get(3)?, event.get(4)?, event.get(5)?);
        if !look.pass(leaving, cutoff, Passed { seq, row, version, at, bytes }) {
            break;
        }
    }
    Ok(look.rows)
}

/// What of one row leaves: all events before the newest that was looked at.
fn part(
    conn: &Connection,
    leaving: &mut Leaving,
    kind: &RowKind,
    id: &str,
    at: Looked,
    limit: i64,
) -> rusqlite::Result<()> {
    let snapshot = fold::Snapshot::of(conn, kind.name, id)?;
    let events = super::read::history_between(conn, kind.name, id, 0, at.newest, limit)?;
    let before = snapshot.map(|fold::Snapshot { version, state, created_at }| Before {
        version,
        state,
        created_at: timestamp(created_at),
    });
    leaving.take_part((kind, id), before.as_ref(), events, (at, limit));
    Ok(())
}

/// A row that leaves, if it is finished and nothing is to come of it.
fn whole(
    conn: &Connection,
    leaving: &mut Leaving,
    kind: &RowKind,
    id: &str,
    at: Looked,
    held: &mut Option<BTreeSet<Uuid>>,
) -> rusqlite::Result<()> {
    let Ok(saga) = id.parse::<Uuid>() else { return Ok(()) };
    let row: Option<(i64, String)> = conn
        .prepare_cached(&format!("SELECT version, state FROM row_{} WHERE id = ?1", kind.name))?
        .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((version, state)) = row.filter(|(version, _)| *version == at.newest) else { return Ok(()) };
    let Some(carried) = carried_of(kind, id, &state) else { return Ok(()) };
    let held = match held {
        Some(held) => held,
        None => held.insert(held_sagas(conn)?),
    };
    if leaving.before.is_none_or(|before| saga >= before) || held.contains(&saga) {
        return Ok(());
    }
    let events = super::read::history_between(conn, kind.name, id, 0, i64::MAX, i64::MAX)?;
    leaving.take_whole((kind, id), (version, carried), events);
    Ok(())
}

/// Sagas for which something waits: a dead letter, or a call.
fn held_sagas(conn: &Connection) -> rusqlite::Result<BTreeSet<Uuid>> {
    conn.prepare_cached(
        "SELECT saga FROM dead_letter WHERE status IN ('PENDING', 'REPLAYING') AND saga IS NOT NULL
         UNION SELECT correlation_id FROM task",
    )?
    .query_map([], |row| row.get(0))?
    .collect()
}

/// Dead letters that are over: of those the revision is when that was asked for, if it was.
fn dead_letters(conn: &Connection, cutoff: i64, limit: i64) -> rusqlite::Result<Vec<StoredDeadLetter>> {
    let mut select = conn.prepare_cached(
        "SELECT content, status, revision, message_id FROM dead_letter
         WHERE status IN ('RESOLVED', 'DISCARDED') AND max(last_failed_at, revision) < ?1 LIMIT ?2",
    )?;
    let found = select.query_map(params![cutoff, limit], stored_dead_letter)?;
    // One that is damaged keeps no other.
    Ok(found
        .filter_map(|letter| letter.inspect_err(|why| error!("a dead letter stays: {why}")).ok())
        .collect())
}

/// Has it leave, but for what has changed meanwhile.
pub(super) fn leave(conn: &Connection, leaving: &Leaving) -> Result<u64, StoreFault> {
    let gone = left(conn, leaving).map_err(oops("having leave what is old"))?;
    Ok(u64::try_from(gone).unwrap_or(u64::MAX))
}

fn left(conn: &Connection, leaving: &Leaving) -> rusqlite::Result<usize> {
    let mut gone = 0;
    // Somebody else may have looked through the same.
    if looked_through(conn)? == leaving.from {
        for Snapshot { key, version, state, created_at } in &leaving.snapshots {
            conn.prepare_cached(
                "INSERT OR REPLACE INTO snapshot (kind, row_id, version, state, created_at) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![key.kind, key.id, version, state, micros(*created_at)])?;
            gone += conn
                .prepare_cached("DELETE FROM event WHERE kind = ?1 AND row_id = ?2 AND version <= ?3")?
                .execute(params![key.kind, key.id, version])?;
        }
        for LeavingRow { key, version, carried } in &leaving.rows {
            let sql = format!("DELETE FROM row_{} WHERE id = ?1 AND version = ?2", key.kind);
            // Something has happened to it meanwhile.
            if conn.prepare_cached(&sql)?.execute(params![key.id, version])? == 0 {
                continue;
            }
            gone += conn
                .prepare_cached("DELETE FROM event WHERE kind = ?1 AND row_id = ?2")?
                .execute([key.kind, &key.id])?;
            for (name, sum) in carried {
                carry(conn, key.kind, name, *sum)?;
            }
        }
        if !leaving.rows.is_empty() && left_before(conn)? < leaving.before {
            conn.prepare_cached("DELETE FROM purged_before")?.execute([])?;
            conn.prepare_cached("INSERT INTO purged_before (saga) VALUES (?1)")?.execute([leaving.before])?;
        }
        conn.prepare_cached("UPDATE retention_scan SET up_to = ?1")?.execute([leaving.up_to])?;
    }
    let mut given_up: BTreeMap<&str, i64> = BTreeMap::new();
    for stored in &leaving.dead_letters {
        let left = conn
            .prepare_cached(
                "DELETE FROM dead_letter WHERE id = ?1 AND status = ?2 AND revision = ?3 RETURNING origin",
            )?
            .query_map(
                params![
                    stored.dead_letter.id,
                    stored.status.as_str(),
                    i64::try_from(stored.revision).unwrap_or(i64::MAX)
                ],
                |row| row.get::<_, String>(0),
            )?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        gone += left.len();
        if stored.status == DeadLetterStatus::Discarded && left.iter().any(|origin| origin == "message") {
            *given_up.entry(&stored.dead_letter.step).or_default() += 1;
        }
    }
    tally(conn, "discarded", &given_up)?;
    Ok(gone)
}

/// Brings back events that had left. They stand at the end of the history: they are looked through again when all that is
/// there now is old.
pub(super) fn bring_back(conn: &Connection, kind: &str, events: &[LeavingEvent]) -> Result<u64, StoreFault> {
    let back = || {
        let mut insert = conn.prepare_cached(
            "INSERT INTO event (kind, row_id, version, name, data, causation_id, recorded_at, is_published)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (kind, row_id, version) DO NOTHING",
        )?;
        let mut count = 0;
        // Of a row that has left there is no event; of another there is one at least.
        let mut mark = conn.prepare_cached(
            "INSERT OR IGNORE INTO restored_row (kind, row_id)
             SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM event WHERE kind = ?1 AND row_id = ?2)
                 AND ?3 < (SELECT max(saga) FROM purged_before)",
        )?;
        for LeavingEvent { row, event, .. } in events {
            if let Ok(saga) = row.parse::<Uuid>() {
                mark.execute(params![kind, row, saga])?;
            }
            let StoredEvent { version, name, data, causation_id, recorded_at, is_published } = event;
            count += insert.execute(params![
                kind,
                row,
                version,
                name,
                data,
                causation_id,
                micros(*recorded_at),
                is_published
            ])?;
        }
        conn.prepare_cached(
            "DELETE FROM snapshot WHERE kind = ?1 AND version = (SELECT count(*) FROM event
                 WHERE event.kind = snapshot.kind AND event.row_id = snapshot.row_id AND event.version <= snapshot.version)",
        )?
        .execute([kind])?;
        Ok(count)
    };
    let count: rusqlite::Result<usize> = back();
    count.map(|count| u64::try_from(count).unwrap_or(u64::MAX)).map_err(oops("bringing back what had left"))
}
