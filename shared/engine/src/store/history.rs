//! Shell: past states of rows, changes since a position, and the position of a database.

use std::collections::BTreeSet;

use saga_core::decider::FieldValue;
use saga_core::query::FoundRow;
use saga_core::row::{RowKind, StoredEvent};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::encoding::hex;

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

/// Identity and progress of a database. The counters only grow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabasePosition {
    /// Service that owns the database.
    pub service: String,
    /// Id of the database; another database of the same service has another.
    pub id: Uuid,
    /// Position of the last event.
    pub events: i64,
    /// Number of messages processed and published.
    pub messages: i64,
}

/// Rows of all kinds that changed.
pub(super) struct ChangedRows {
    /// Kind and id of each row.
    pub(super) rows: BTreeSet<(String, String)>,
    /// Position of the last event that was read.
    pub(super) up_to: i64,
    /// True if there are no further events.
    pub(super) is_over: bool,
}

impl ChangedRows {
    /// Changed rows of one kind.
    pub(super) fn of_kind(self, kind: &str) -> Changes {
        let Self { rows, up_to, is_over } = self;
        let ids = rows.into_iter().filter(|(of, _)| of == kind).map(|(_, id)| id).collect();
        Changes { ids, up_to, is_over }
    }
}

/// Folds a history into the row at its end; `None` for an empty history.
pub(super) fn row_at(kind: &RowKind, id: &str, history: Vec<StoredEvent>) -> Option<RowAt> {
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

/// Event whose hash identifies it.
pub(super) struct EventIdentity<'e> {
    pub(super) kind: &'e str,
    pub(super) row_id: &'e str,
    pub(super) version: i64,
    pub(super) data: &'e str,
    pub(super) causation_id: Uuid,
    pub(super) recorded_at: i64,
}

impl EventIdentity<'_> {
    pub(super) fn fingerprint(&self) -> String {
        let Self { kind, row_id, version, data, causation_id, recorded_at } = self;
        hex(&Sha256::digest(format!("{kind}/{row_id}/{version}/{causation_id}/{recorded_at}/{data}")))
    }
}
