//! Shell: rows that changed after a position in a database's history.

use std::collections::BTreeSet;

use saga_core::decider::FieldValue;
use saga_core::query::{Order, Query};
use saga_core::service_stats::HistoryPosition;
use serde::{Deserialize, Serialize};

use super::ledger::MAX_IDS;
use crate::host::http::Problem;
use crate::store::Store;
use crate::store::roles::History;

/// Reads the position of the event at `at`, or of the last event, in the database's history.
///
/// # Errors
/// When the store fails.
pub async fn position(store: &dyn History, at: Option<i64>) -> Result<HistoryPosition, Problem> {
    let position = store.position().await?;
    let event = at.unwrap_or(position.events);
    let of = store.event_fingerprint(event).await?.unwrap_or_default();
    Ok(HistoryPosition { database: position.id, event, event_hash: of })
}

/// Ids of changed rows, or their values of another field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedIds {
    /// Distinct ids, or distinct values of the other field.
    pub ids: Vec<String>,
    /// `after` of the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
}

/// Events that one page of changes covers.
const EVENTS_PER_PAGE: usize = 10_000;

/// Lists rows of a kind that changed after a position: their ids, or their values of the field `by`.
///
/// # Errors
/// When the store fails.
pub async fn changed_ids(
    store: &dyn Store,
    kind: &'static str,
    after: i64,
    by: Option<&'static str>,
) -> Result<ChangedIds, Problem> {
    let changes = store.changed_rows(kind, after, EVENTS_PER_PAGE).await?;
    let next = (!changes.is_over).then_some(changes.up_to);
    let Some(field) = by else { return Ok(ChangedIds { ids: changes.ids, next }) };
    let mut ids = BTreeSet::new();
    for some in changes.ids.chunks(MAX_IDS) {
        let one_of = vec![("id", some.iter().map(|id| FieldValue::Text(id.clone())).collect())];
        let order = Some(Order { field, after: None });
        let rows = store.find(kind, Query { one_of, order, limit: MAX_IDS, ..Query::default() }).await?;
        ids.extend(rows.into_iter().filter_map(|row| match row.ordered_by {
            FieldValue::Text(value) => Some(value),
            FieldValue::Integer(_) | FieldValue::Null => None,
        }));
    }
    Ok(ChangedIds { ids: ids.into_iter().collect(), next })
}
