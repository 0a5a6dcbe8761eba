//! Shell: what leaves the tables when it is old: events of rows that live on, for which a snapshot stands then; finished
//! rows with all their events; and dead letters that are over. What may leave, and why, is told beside the store on SQLite.

use std::collections::{BTreeMap, BTreeSet};

use saga_core::dead_letter::{DeadLetterStatus, StoredDeadLetter};
use saga_core::decider::RetentionPolicy;
use saga_core::row::{RowKind, StoredEvent};
use tokio_postgres::Error;
use tracing::error;
use uuid::Uuid;

use super::fold;
use super::left::{carry, left_before};
use super::outbox::{take_turn, tally};
use super::pool::Connection;
use super::values::{
    execute, limit_of, micros, oops, query, query_one, query_opt, stored_dead_letter, timestamp,
};
use crate::store::leaving::{Before, Look, Looked, Passed, carried_of, first_that_stays};
use crate::store::{Departures, Leaving, LeavingEvent, LeavingRow, Snapshot, StoreFault};

/// What may leave next.
pub(super) async fn find(
    conn: &Connection,
    kinds: &[RowKind],
    before: Departures,
    limit: usize,
) -> Result<Leaving, StoreFault> {
    let context = "looking for what may leave";
    let limit = limit_of(limit);
    let from = looked_through(conn).await.map_err(oops(context))?;
    let mut leaving = Leaving { from, up_to: from, ..Leaving::default() };
    let looked = look(conn, &mut leaving, micros(before.history), limit).await.map_err(oops(context))?;
    leaving.before = first_that_stays(before.began);
    let mut held = None;
    for ((kind, id), at) in looked {
        let Some(kind) = kinds.iter().find(|declared| declared.name == kind) else { continue };
        match kind.retention {
            RetentionPolicy::Keep => Ok(()),
            RetentionPolicy::PurgeEvents => part(conn, &mut leaving, kind, &id, at, limit).await,
            RetentionPolicy::PurgeRows | RetentionPolicy::PurgeRowsFirst => {
                whole(conn, &mut leaving, kind, &id, at, &mut held).await
            }
        }
        .map_err(oops(context))?;
    }
    // At the end of the history: each look at them comes past those that are young.
    if leaving.events.is_empty() {
        leaving.dead_letters =
            dead_letters(conn, micros(before.dead_letters), limit).await.map_err(oops(context))?;
    }
    Ok(leaving)
}

async fn looked_through(conn: &Connection) -> Result<i64, Error> {
    Ok(query_one(conn, "SELECT coalesce(max(up_to), 0) FROM retention_scan", &[]).await?.get(0))
}

/// The next old events, by their rows.
async fn look(
    conn: &Connection,
    leaving: &mut Leaving,
    cutoff: i64,
    limit: i64,
) -> Result<BTreeMap<(String, String), Looked>, Error> {
    let sql = "SELECT seq, kind, row_id, version, recorded_at, length(data)::bigint FROM event
         WHERE seq > $1 AND seq < (SELECT max(seq) FROM event) ORDER BY seq LIMIT $2";
    let mut look = Look::default();
    for event in query(conn, sql, &[&leaving.from, &limit]).await? {
        let row = (event.get(1), event.get(2));
        let (seq, version, at, bytes) = (event.get(0), event.get(3), event.get(4), event.get(5));
        if !look.pass(leaving, cutoff, Passed { seq, row, version, at, bytes }) {
            break;
        }
    }
    Ok(look.rows)
}

/// What of one row leaves: all events before the newest that was looked at.
async fn part(
    conn: &Connection,
    leaving: &mut Leaving,
    kind: &RowKind,
    id: &str,
    at: Looked,
    limit: i64,
) -> Result<(), Error> {
    let snapshot = fold::Snapshot::of(conn, kind.name, id).await?;
    let events = super::read::history_between(conn, kind.name, id, 0, at.newest, limit).await?;
    let before = snapshot.map(|fold::Snapshot { version, state, created_at }| Before {
        version,
        state,
        created_at: timestamp(created_at),
    });
    leaving.take_part((kind, id), before.as_ref(), events, (at, limit));
    Ok(())
}

/// A row that leaves, if it is finished and nothing is to come of it.
async fn whole(
    conn: &Connection,
    leaving: &mut Leaving,
    kind: &RowKind,
    id: &str,
    at: Looked,
    held: &mut Option<BTreeSet<Uuid>>,
) -> Result<(), Error> {
    let Ok(saga) = id.parse::<Uuid>() else { return Ok(()) };
    let sql = format!("SELECT version, state FROM row_{} WHERE id = $1 AND version = $2", kind.name);
    let Some(row) = query_opt(conn, &sql, &[&id, &at.newest]).await? else { return Ok(()) };
    let (version, state): (i64, &str) = (row.get(0), row.get(1));
    let Some(carried) = carried_of(kind, id, state) else { return Ok(()) };
    let held = match held {
        Some(held) => held,
        None => held.insert(held_sagas(conn).await?),
    };
    if leaving.before.is_none_or(|before| saga >= before) || held.contains(&saga) {
        return Ok(());
    }
    let events = super::read::history_between(conn, kind.name, id, 0, i64::MAX, i64::MAX).await?;
    leaving.take_whole((kind, id), (version, carried), events);
    Ok(())
}

/// Sagas for which something waits: a dead letter, or a call.
async fn held_sagas(conn: &Connection) -> Result<BTreeSet<Uuid>, Error> {
    let sql = "SELECT saga FROM dead_letter WHERE status IN ('PENDING', 'REPLAYING') AND saga IS NOT NULL
         UNION SELECT correlation_id FROM task";
    Ok(query(conn, sql, &[]).await?.iter().map(|row| row.get(0)).collect())
}

/// Dead letters that are over: of those the revision is when that was asked for, if it was.
async fn dead_letters(conn: &Connection, cutoff: i64, limit: i64) -> Result<Vec<StoredDeadLetter>, Error> {
    let sql = "SELECT content, status, revision, message_id FROM dead_letter
         WHERE status IN ('RESOLVED', 'DISCARDED') AND greatest(last_failed_at, revision) < $1 LIMIT $2";
    let found = query(conn, sql, &[&cutoff, &limit]).await?;
    // One that is damaged keeps no other.
    let readable = |row| stored_dead_letter(row).inspect_err(|why| error!("a dead letter stays: {why}")).ok();
    Ok(found.iter().filter_map(readable).collect())
}

/// Has it leave, but for what has changed meanwhile, or is in somebody's hands. Rows are locked before the head, as batches
/// lock them.
pub(super) async fn leave(conn: &Connection, leaving: &Leaving) -> Result<u64, StoreFault> {
    let context = "having leave what is old";
    let mut rows: BTreeMap<&'static str, (Vec<&str>, Vec<i64>)> = BTreeMap::new();
    for LeavingRow { key, version, .. } in &leaving.rows {
        let (ids, versions) = rows.entry(key.kind).or_default();
        ids.push(&key.id);
        versions.push(*version);
    }
    let mut there: BTreeSet<(&'static str, String)> = BTreeSet::new();
    for (kind, (ids, versions)) in &rows {
        let lock = format!(
            "SELECT id FROM row_{kind} JOIN unnest($1::text[], $2::bigint[]) AS leaving (of, at) ON id = of AND version = at
             ORDER BY id FOR UPDATE OF row_{kind} SKIP LOCKED"
        );
        let locked = query(conn, &lock, &[ids, versions]).await.map_err(oops(context))?;
        there.extend(locked.iter().map(|row| (*kind, row.get(0))));
    }
    left(conn, leaving, &there).await.map_err(oops(context))
}

async fn left(
    conn: &Connection,
    leaving: &Leaving,
    there: &BTreeSet<(&'static str, String)>,
) -> Result<u64, Error> {
    let mut gone = 0;
    take_turn(conn).await?;
    // Somebody else may have looked through the same.
    if looked_through(conn).await? == leaving.from {
        for Snapshot { key, version, state, created_at } in &leaving.snapshots {
            let sql =
                "INSERT INTO snapshot (kind, row_id, version, state, created_at) VALUES ($1, $2, $3, $4, $5)
                 ON CONFLICT (kind, row_id) DO UPDATE
                 SET version = excluded.version, state = excluded.state, created_at = excluded.created_at";
            execute(conn, sql, &[&key.kind, &key.id, version, state, &micros(*created_at)]).await?;
            let events = "DELETE FROM event WHERE kind = $1 AND row_id = $2 AND version <= $3";
            gone += execute(conn, events, &[&key.kind, &key.id, version]).await?;
        }
        let mut has_any_left = false;
        for LeavingRow { key, version, carried } in &leaving.rows {
            if !there.contains(&(key.kind, key.id.clone())) {
                continue;
            }
            let sql = format!("DELETE FROM row_{} WHERE id = $1 AND version = $2", key.kind);
            if execute(conn, &sql, &[&key.id, version]).await? == 0 {
                continue;
            }
            has_any_left = true;
            let events = "DELETE FROM event WHERE kind = $1 AND row_id = $2";
            gone += execute(conn, events, &[&key.kind, &key.id]).await?;
            for (name, sum) in carried {
                carry(conn, key.kind, name, *sum).await?;
            }
        }
        if has_any_left && left_before(conn).await? < leaving.before {
            execute(conn, "DELETE FROM purged_before", &[]).await?;
            execute(conn, "INSERT INTO purged_before (saga) VALUES ($1)", &[&leaving.before]).await?;
        }
        // What was in somebody's hands is looked at again.
        if there.len() == leaving.rows.len() {
            execute(conn, "UPDATE retention_scan SET up_to = $1", &[&leaving.up_to]).await?;
        }
    }
    // Behind the head, and not waited for: a batch may have the head, and write one of them that it has not read.
    let letters: Vec<Uuid> = leaving.dead_letters.iter().map(|stored| stored.dead_letter.id).collect();
    let lock = "SELECT id FROM dead_letter WHERE id = ANY ($1) ORDER BY id FOR UPDATE SKIP LOCKED";
    let letters: BTreeSet<Uuid> =
        query(conn, lock, &[&letters]).await?.iter().map(|row| row.get(0)).collect();
    let mut given_up: BTreeMap<String, i64> = BTreeMap::new();
    for stored in leaving.dead_letters.iter().filter(|stored| letters.contains(&stored.dead_letter.id)) {
        let sql = "DELETE FROM dead_letter WHERE id = $1 AND status = $2 AND revision = $3 RETURNING origin";
        let revision = i64::try_from(stored.revision).unwrap_or(i64::MAX);
        let left = query(conn, sql, &[&stored.dead_letter.id, &stored.status.as_str(), &revision]).await?;
        gone += u64::try_from(left.len()).unwrap_or(0);
        let is_message = left.iter().any(|row| row.get::<_, &str>(0) == "message");
        if stored.status == DeadLetterStatus::Discarded && is_message {
            *given_up.entry(stored.dead_letter.step.clone()).or_default() += 1;
        }
    }
    tally(conn, "discarded", &given_up).await?;
    Ok(gone)
}

/// Brings back events that had left. They stand at the end of the history: they are looked through again when all that is
/// there now is old.
pub(super) async fn bring_back(
    conn: &Connection,
    kind: &str,
    events: &[LeavingEvent],
) -> Result<u64, StoreFault> {
    let back = async {
        take_turn(conn).await?;
        let mut count = 0;
        for LeavingEvent { row, event, .. } in events {
            if let Ok(saga) = row.parse::<Uuid>() {
                // Of a row that has left there is no event; of another there is one at least.
                let mark = "INSERT INTO restored_row (kind, row_id)
                     SELECT $1::text, $2::text WHERE NOT EXISTS (SELECT FROM event WHERE kind = $1 AND row_id = $2)
                         AND $3 < (SELECT saga FROM purged_before LIMIT 1)
                     ON CONFLICT DO NOTHING";
                execute(conn, mark, &[&kind, row, &saga]).await?;
            }
            let StoredEvent { version, name, data, causation_id, recorded_at, is_published } = event;
            let insert =
                "INSERT INTO event (seq, kind, row_id, version, name, data, causation_id, recorded_at, is_published)
                 SELECT head.event + 1, $1::text, $2::text, $3::bigint, $4::text, $5::text, $6::uuid, $7::bigint, $8::boolean FROM head
                 ON CONFLICT (kind, row_id, version) DO NOTHING";
            let new = execute(
                conn,
                insert,
                &[&kind, row, version, name, data, causation_id, &micros(*recorded_at), is_published],
            )
            .await?;
            if new > 0 {
                execute(conn, "UPDATE head SET event = event + 1", &[]).await?;
            }
            count += new;
        }
        let whole = "DELETE FROM snapshot WHERE kind = $1 AND version = (SELECT count(*) FROM event
                 WHERE event.kind = snapshot.kind AND event.row_id = snapshot.row_id AND event.version <= snapshot.version)";
        execute(conn, whole, &[&kind]).await?;
        Ok(count)
    };
    back.await.map_err(oops("bringing back what had left"))
}
