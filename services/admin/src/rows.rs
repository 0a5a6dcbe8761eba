//! Shell: reads single rows of admin's tables.

use saga_core::decider::Decider;
use saga_core::query::FoundRow;
use saga_core::row::RowKey;
use saga_engine::store::{Store, StoreFault};
use uuid::Uuid;

/// # Errors
/// Returns an error when the row is damaged.
pub(crate) fn parsed<D: Decider>(row: &FoundRow) -> Result<D, StoreFault> {
    serde_json::from_str(&row.state)
        .map_err(|error| StoreFault::Unusable(format!("{} {} cannot be read: {error}", D::KIND, row.id)))
}

/// # Errors
/// Returns an error when the id is no UUID: the row is damaged.
pub(crate) fn id_of(row: &FoundRow) -> Result<Uuid, StoreFault> {
    row.id.parse().map_err(|error| StoreFault::Unusable(format!("row {:?} has no valid id: {error}", row.id)))
}

/// Reads one row; `None` when there is none.
///
/// # Errors
/// Returns an error when the store fails, or the row is damaged.
pub(crate) async fn row<D: Decider>(store: &dyn Store, id: impl ToString) -> Result<Option<D>, StoreFault> {
    let found = store.row(RowKey::of::<D>(id)).await?;
    found.as_ref().map(parsed).transpose()
}
