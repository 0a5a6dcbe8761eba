//! Shell: what leaves the tables when it is old: events of rows that live on, for which a snapshot stands then, and dead
//! letters that are over.
//!
//! It is found first, by a reader, so that it can be written down elsewhere before it is deleted. The history is looked
//! through once, from its oldest event on: each that is old lets those before it of the same row leave. The last event of
//! a row stays, and with it the last of all, whose position must not be given twice.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};
use saga_core::dead_letter::{DeadLetterStatus, StoredDeadLetter};
use saga_core::retry::error_chain;
use saga_core::row::{RowKey, RowKind, StoredEvent};
use tracing::error;

use super::fold;
use super::values::{micros, oops, stored_dead_letter, timestamp};
use super::write::tally;
use crate::store::{Departures, Leaving, LeavingEvent, Snapshot, StoreFault};

/// Bytes of events in one look, about: each may carry a whole message.
const LOOK_BYTES: i64 = 4 * 1024 * 1024;

/// An event that was looked at: where it stands, and which version of its row it made.
#[derive(Debug, Clone, Copy)]
struct Looked {
    first_seq: i64,
    newest: i64,
}

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
    for ((kind, id), at) in looked {
        let Some(kind) = kinds.iter().find(|declared| declared.name == kind && declared.history_leaves)
        else {
            continue;
        };
        part(conn, &mut leaving, kind, &id, at, limit).map_err(oops(context))?;
    }
    leaving.dead_letters = dead_letters(conn, micros(before.dead_letters), limit).map_err(oops(context))?;
    Ok(leaving)
}

fn looked_through(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached("SELECT max(up_to) FROM looked_through")?
        .query_row([], |row| Ok(row.get::<_, Option<i64>>(0)?.unwrap_or(0)))
}

/// The next old events, by their rows.
fn look(
    conn: &Connection,
    leaving: &mut Leaving,
    cutoff: i64,
    limit: i64,
) -> rusqlite::Result<BTreeMap<(String, String), Looked>> {
    let mut looked: BTreeMap<_, Looked> = BTreeMap::new();
    let mut select = conn.prepare_cached(
        "SELECT seq, kind, row_id, version, recorded_at, length(data) FROM event
         WHERE seq > ?1 AND seq < (SELECT max(seq) FROM event) ORDER BY seq LIMIT ?2",
    )?;
    let (mut rows, mut bytes) = (select.query([leaving.from, limit])?, 0);
    while let Some(row) = rows.next()? {
        bytes += row.get::<_, i64>(5)?;
        if row.get::<_, i64>(4)? >= cutoff || (bytes > LOOK_BYTES && !looked.is_empty()) {
            break;
        }
        let (seq, newest) = (row.get(0)?, row.get(3)?);
        let at = looked.entry((row.get(1)?, row.get(2)?)).or_insert(Looked { first_seq: seq, newest });
        at.newest = at.newest.max(newest);
        leaving.up_to = seq;
    }
    Ok(looked)
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
    let events = super::read::history(conn, kind.name, id, 0, at.newest, limit)?;
    let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(()) };
    if i64::try_from(events.len()).is_ok_and(|count| count >= limit) {
        // There are more: it is looked at again.
        leaving.up_to = leaving.up_to.min(at.first_seq - 1);
    }
    let begins_after = snapshot.as_ref().map_or(0, |snapshot| snapshot.version);
    let version = last.version.max(begins_after);
    let created_at = snapshot.as_ref().map_or(first.recorded_at, |snapshot| timestamp(snapshot.created_at));
    let folded: Vec<&StoredEvent> = events.iter().filter(|event| event.version > begins_after).collect();
    let is_whole = (begins_after + 1..).zip(&folded).all(|(version, event)| event.version == version);
    let mut data = folded.iter().map(|event| event.data.clone());
    let state = snapshot.as_ref().map(|snapshot| snapshot.state.as_str());
    match (kind.fold)(id, state, &mut data) {
        Ok(folded) if is_whole => {
            let key = RowKey { kind: kind.name, id: id.to_owned() };
            leaving.snapshots.push(Snapshot { key, version, state: folded.state, created_at });
            let left =
                events.into_iter().map(|event| LeavingEvent { kind: kind.name, row: id.to_owned(), event });
            leaving.events.extend(left);
        }
        // A snapshot would hide it.
        Ok(_) => error!(row = id, kind = kind.name, "a history has a gap: it stays"),
        Err(why) => error!(row = id, kind = kind.name, "a history stays: {}", error_chain(&why)),
    }
    Ok(())
}

/// Dead letters that are over: of those the revision is when that was asked for, if it was.
fn dead_letters(conn: &Connection, cutoff: i64, limit: i64) -> rusqlite::Result<Vec<StoredDeadLetter>> {
    let mut select = conn.prepare_cached(
        "SELECT letter, status, revision, message_id FROM dead_letter
         WHERE status IN ('RESOLVED', 'DISCARDED') AND max(last_failed_at, revision) < ?1 LIMIT ?2",
    )?;
    select.query_map(params![cutoff, limit], stored_dead_letter)?.collect()
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
        conn.prepare_cached("UPDATE looked_through SET up_to = ?1")?.execute([leaving.up_to])?;
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
    tally(conn, "dead", &given_up)?;
    Ok(gone)
}

/// Brings back events that had left. They stand at the end of the history: they are looked through again when all that is
/// there now is old.
pub(super) fn bring_back(conn: &Connection, kind: &str, events: &[LeavingEvent]) -> Result<u64, StoreFault> {
    let back = || {
        let mut insert = conn.prepare_cached(
            "INSERT INTO event (kind, row_id, version, name, data, causation_id, recorded_at, told)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (kind, row_id, version) DO NOTHING",
        )?;
        let mut count = 0;
        for LeavingEvent { row, event, .. } in events {
            let StoredEvent { version, name, data, causation_id, recorded_at, told } = event;
            let told = told.then_some(true);
            count += insert.execute(params![
                kind,
                row,
                version,
                name,
                data,
                causation_id,
                micros(*recorded_at),
                told
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
