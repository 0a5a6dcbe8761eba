//! Shell: a row as its history has it up to some time, whatever store has read that.

use saga_core::decider::FieldValue;
use saga_core::query::FoundRow;
use saga_core::row::{RowKind, StoredEvent};

use super::RowAsOf;

/// The row that this history makes; `None` when there is none.
pub(super) fn row_of(kind: &RowKind, id: &str, history: Vec<StoredEvent>) -> Option<RowAsOf> {
    let (first, last) = (history.first()?, history.last()?);
    let is_whole = i64::try_from(history.len()) == Ok(last.version);
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
    let state = projected.ok().filter(|_| is_whole).map(|projected| projected.state);
    Some((id.to_owned(), state.map(|state| (row(state), history))))
}
