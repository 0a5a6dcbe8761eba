//! Shell: the history of one row, page by page.

use jiff::Timestamp;
use saga_core::row::{RowKey, StoredEvent};
use saga_core::secrets::Secrets;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::list::{MAX_LIMIT, checked_limit};
use crate::host::http::Problem;
use crate::store::roles::Queries;

/// Event of a row's history, with secrets blanked out.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    /// Version of the row after this event, from 1.
    pub version: i64,
    /// Name of the event, e.g. `Confirmed`.
    pub event: String,
    /// Event as JSON, with secrets blanked out.
    pub data: serde_json::Value,
    /// Id of the input that caused the event.
    pub causation_id: Uuid,
    /// Time at which the event was recorded.
    pub recorded_at: Timestamp,
    /// True if a message publishes the event to other services.
    pub published: bool,
}

/// Query parameters of a page of a history.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct HistoryParams {
    /// Maximum number of events (1 to 100, default 100).
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<usize>,
    /// `next` of the previous page: the version of its last event.
    pub cursor: Option<u32>,
}

/// Page of a row's history, oldest event first.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    /// Up to `limit` events, oldest first.
    pub events: Vec<EventView>,
    /// `cursor` of the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Reads one page of a row's history, oldest event first. Blanks out `secrets`.
///
/// # Errors
/// 404 for a row without events, 422 for a limit other than 1 to 100.
pub async fn history(
    store: &dyn Queries,
    key: RowKey,
    params: HistoryParams,
    secrets: Secrets,
) -> Result<EventPage, Problem> {
    let what = format!("{} {}", key.kind, key.id);
    let limit = checked_limit(params.limit, MAX_LIMIT)?;
    let after = params.cursor.map_or(0, i64::from);
    let mut events = store.events(key, after, limit + 1).await?;
    if events.is_empty() && after == 0 {
        return Err(Problem::not_found(what));
    }
    let has_more = events.len() > limit;
    events.truncate(limit);
    let next = events.last().filter(|_| has_more).map(|event| event.version.to_string());
    let view = |event: StoredEvent| {
        let mut data = serde_json::from_str(&event.data).unwrap_or_default();
        secrets.blank(&mut data);
        EventView {
            version: event.version,
            event: event.name,
            data,
            causation_id: event.causation_id,
            recorded_at: event.recorded_at,
            published: event.is_published,
        }
    };
    Ok(EventPage { events: events.into_iter().map(view).collect(), next })
}

/// Events of one read while a history is read to its end. Each may carry a whole message.
const EVENTS_PER_READ: usize = 32;

/// Calls `each` with every event of a row, oldest first. Reads a few events at a time.
///
/// # Errors
/// When the store fails, or `each` does.
pub async fn for_each_event(
    store: &dyn Queries,
    key: RowKey,
    mut each: impl FnMut(StoredEvent) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let mut after = 0;
    loop {
        let events = store.events(key.clone(), after, EVENTS_PER_READ).await?;
        let is_last = events.len() < EVENTS_PER_READ;
        after = events.last().map_or(after, |event| event.version);
        events.into_iter().try_for_each(&mut each)?;
        if is_last {
            return Ok(());
        }
    }
}
