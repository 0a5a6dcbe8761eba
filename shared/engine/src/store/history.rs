//! Shell: past states of rows, changes since a position, and the position of a database.

use std::collections::BTreeSet;

use jiff::Timestamp;
use saga_core::decider::FieldValue;
use saga_core::query::FoundRow;
use saga_core::row::{RowKind, StoredEvent};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Answer;
use super::backend::{Backend, Lane, Urgency};
use super::encoding::{hex, micros, timestamp};
use super::identity::DatabasePosition;
use super::reading::{EVENT, readable_event};
use super::roles::History;
use super::sql::{Row, Sql, limit_of};
use super::sql_error::{SqlError, db_fault};

/// Id of a row, with its state and history at some position; `None` if part of that history is gone.
pub type RowAt = (String, Option<(FoundRow, Vec<StoredEvent>)>);

/// Rows that changed after a position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Ids of the rows, each once, in no particular order.
    pub ids: Vec<String>,
    /// Position of the last event that was read; the previous position if there was none.
    pub up_to: i64,
    /// True if there are no further events.
    pub is_over: bool,
}

/// Rows of all kinds that changed.
pub(super) struct ChangedRows {
    /// Kind and id of each row.
    pub(super) rows: BTreeSet<(String, String)>,
    /// Positions of events whose kind or row id is damaged.
    pub(super) damaged: Vec<i64>,
    /// Position of the last event that was read.
    pub(super) up_to: i64,
    /// True if there are no further events.
    pub(super) is_over: bool,
}

impl<B: Backend> History for B {
    fn rows_at(&self, kind: &'static str, ids: Vec<String>, seq: i64) -> Answer<'_, Vec<RowAt>> {
        self.snapshot(Lane::Scan, (self.kinds().clone(), kind, ids, seq), |db, (kinds, kind, ids, seq)| {
            Box::pin(async move {
                let (kind, mut rows) = (kinds.of_name(kind)?, vec![]);
                for id in ids {
                    let row = row_at(db, kind, id, *seq).await;
                    rows.extend(row.map_err(db_fault("reading the history of a row up to a position"))?);
                }
                Ok(rows)
            })
        })
    }

    fn changed_rows(&self, kind: &'static str, after: i64, limit: usize) -> Answer<'_, Changes> {
        self.read(Lane::Scan, (kind, after, limit), |db, (kind, after, limit)| {
            Box::pin(async move {
                let changed = changed_rows(db, *after, *limit).await;
                Ok(changed.map_err(db_fault("reading what has changed"))?.of_kind(kind))
            })
        })
    }

    fn event_fingerprint(&self, seq: i64) -> Answer<'_, Option<String>> {
        self.read(Lane::Health, seq, |db, seq| {
            Box::pin(async move {
                let sql =
                    "SELECT kind, row_id, version, data, causation_id, recorded_at FROM event WHERE seq = $1";
                db.query_opt(sql, &[seq], fingerprint).await.map_err(db_fault("reading an event"))
            })
        })
    }

    fn position(&self) -> Answer<'_, DatabasePosition> {
        self.read(Lane::Health, self.highest_position().clone(), |db, highest| Box::pin(highest.read(db)))
    }

    fn check_position(&self, recorded: DatabasePosition) -> Answer<'_, ()> {
        let args = (self.highest_position().clone(), recorded);
        self.read(Lane::Health, args, |db, (highest, recorded)| {
            Box::pin(async move {
                let found = highest.read(db).await?;
                highest.compare(Some(recorded), &found)
            })
        })
    }

    fn accept_loss(&self, name: String, now: Timestamp) -> Answer<'_, ()> {
        self.write(Urgency::Immediate, (name, micros(now)), |db, (name, now)| {
            Box::pin(async move {
                let sql =
                    "INSERT INTO accepted_loss (name, accepted_at) VALUES ($1, $2) ON CONFLICT DO NOTHING";
                db.execute(sql, &[name, now]).await.map(drop).map_err(db_fault("recording an accepted loss"))
            })
        })
    }

    fn lost_before(&self) -> Answer<'_, Option<Timestamp>> {
        self.read(Lane::Health, (), |db, ()| {
            Box::pin(async move {
                let sql = "SELECT max(accepted_at) FROM accepted_loss";
                let last = db.query_one(sql, &[], |row| row.get::<Option<i64>>(0)).await;
                Ok(last.map_err(db_fault("reading accepted losses"))?.map(timestamp))
            })
        })
    }
}

impl ChangedRows {
    /// Changed rows of one kind.
    fn of_kind(self, kind: &str) -> Changes {
        let Self { rows, up_to, is_over, damaged: _ } = self;
        let ids = rows.into_iter().filter(|(of, _)| of == kind).map(|(_, id)| id).collect();
        Changes { ids, up_to, is_over }
    }
}

/// Rows among the next `limit` events after a position. Positions follow the order of commits, so that no event appears later
/// before one that was read.
pub(super) async fn changed_rows<S: Sql>(db: &S, after: i64, limit: usize) -> Result<ChangedRows, SqlError> {
    let sql = "SELECT seq, kind, row_id FROM event WHERE seq > $1 ORDER BY seq LIMIT $2";
    let read = |row: &Row<'_>| {
        let (kind, id): (Option<String>, Option<String>) = (row.undamaged(1)?, row.undamaged(2)?);
        Ok((row.get::<i64>(0)?, kind.zip(id)))
    };
    let events = db.query(sql, &[&after, &limit_of(limit)], read).await?;
    let (up_to, is_over) = (events.last().map_or(after, |(seq, _)| *seq), events.len() < limit);
    let (mut rows, mut damaged) = (BTreeSet::new(), Vec::new());
    for (seq, row) in events {
        match row {
            Some(row) => drop(rows.insert(row)),
            None => damaged.push(seq),
        }
    }
    Ok(ChangedRows { rows, damaged, up_to, is_over })
}

/// Row as of the event at `seq`; `None` if it did not exist yet.
async fn row_at<S: Sql>(db: &S, kind: &RowKind, id: &str, seq: i64) -> Result<Option<RowAt>, SqlError> {
    let sql =
        format!("SELECT {EVENT} FROM event WHERE kind = $1 AND row_id = $2 AND seq <= $3 ORDER BY version");
    let history = db.query(&sql, &[&kind.name, &id, &seq], readable_event).await?;
    Ok(row_after(kind, id, history))
}

/// Folds a history into the row at its end; `None` for an empty history.
fn row_after(kind: &RowKind, id: &str, history: Vec<StoredEvent>) -> Option<RowAt> {
    let (first, last) = (history.first()?, history.last()?);
    let is_complete = i64::try_from(history.len()) == Ok(last.version);
    let (created_at, updated_at, version) = (first.recorded_at, last.recorded_at, last.version);
    let projected = kind.fold(id, None, history.iter().map(|event| &event.data));
    let row = |state| FoundRow {
        id: id.to_owned(),
        version,
        state,
        created_at,
        updated_at,
        ordered_by: FieldValue::Null,
    };
    let state = projected.ok().filter(|_| is_complete).map(|projected| projected.state);
    Some((id.to_owned(), state.map(|state| (row(state), history))))
}

/// Hash that identifies an event, damaged or not.
fn fingerprint(row: &Row<'_>) -> Result<String, SqlError> {
    let (kind, row_id, data) = (row.readable_text(0)?, row.readable_text(1)?, row.readable_text(3)?);
    let (version, recorded_at) = (row.cell(2, true)?, row.cell(5, true)?);
    let causation_id: Uuid = row.undamaged(4)?.unwrap_or_default();
    Ok(hex(&Sha256::digest(format!("{kind}/{row_id}/{version}/{causation_id}/{recorded_at}/{data}"))))
}
