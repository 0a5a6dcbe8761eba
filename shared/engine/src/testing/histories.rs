//! Pure: rows with their histories, as a service writes them, for a database at the start of a test.

use saga_core::decider::Decider;
use saga_core::decision::{EventWrite, RowWrite, Writes};
use saga_core::row::{RowKey, RowKind};
use uuid::Uuid;

/// Adds a new row of `D` with its events as JSON, oldest first. No event is published.
///
/// # Panics
/// If the events cannot be folded.
pub fn has_history<D: Decider>(writes: &mut Writes, id: impl ToString, history: &[impl AsRef<str>]) {
    let key = RowKey::of::<D>(id);
    let projected = RowKind::of::<D>().fold(&key.id, None, history).expect("a history that folds");
    let mut version = 0;
    for data in history {
        version += 1;
        let (key, data, causation_id) = (key.clone(), data.as_ref().to_owned(), Uuid::nil());
        writes.events.push(EventWrite { key, version, name: "Happened", data, causation_id });
    }
    writes.rows.push(RowWrite { key, read_version: 0, version, projected, searched_by: None });
}
