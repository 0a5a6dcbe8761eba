//! Shell: reads single rows of admin's tables.

use saga_core::decider::Decider;
use saga_core::query::FoundRow;
use saga_core::row::RowKey;
use saga_engine::store::StoreFault;
use saga_engine::store::roles::Queries;
use uuid::Uuid;

pub(crate) fn parsed<D: Decider>(row: &FoundRow) -> Result<D, StoreFault> {
    serde_json::from_str(&row.state)
        .map_err(|error| StoreFault::Unusable(format!("{} {} cannot be read: {error}", D::KIND, row.id)))
}

pub(crate) fn id_of(row: &FoundRow) -> Result<Uuid, StoreFault> {
    row.id.parse().map_err(|error| StoreFault::Unusable(format!("row {:?} has no valid id: {error}", row.id)))
}

/// Reads one row; `None` when there is none.
pub(crate) async fn row<D: Decider>(store: &dyn Queries, id: impl ToString) -> Result<Option<D>, StoreFault> {
    let found = store.row(RowKey::of::<D>(id)).await?;
    found.as_ref().map(parsed).transpose()
}
