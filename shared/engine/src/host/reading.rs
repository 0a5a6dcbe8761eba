//! Shell: what the routes of every service read: the history of a row, pages of rows.

use std::collections::BTreeSet;

use futures::future::try_join_all;
use jiff::Timestamp;
use saga_core::decider::{Decider, FieldValue};
use saga_core::query::{FoundRow, Order, Query};
use saga_core::row::{RowKey, StoredEvent, WithHistory};
use saga_core::secrets::blank;
use saga_core::service_stats::HistoryPosition;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::http::Problem;
pub use super::pages::{Encoding, Folds, PACKED, Page};
use crate::store::{CheckedPage, CheckedRow, CheckedRows, FoldReport, Store};

/// An event of a row's history, as people see it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    /// The row's version after it, from 1.
    pub version: i64,
    /// Name of what happened, e.g. `Confirmed`.
    pub event: String,
    /// The event as JSON, secrets blanked out.
    pub data: serde_json::Value,
    /// Id of the input that caused it.
    pub causation_id: Uuid,
    /// When it was decided.
    #[schema(value_type = String, format = DateTime)]
    pub recorded_at: Timestamp,
    /// True if a message that publishes the event was stored with it.
    pub published: bool,
}

/// Which part of a history a client wants.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct HistoryParams {
    /// At most this many (1 to 100; 100 when not given).
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<usize>,
    /// Where the last page ended: the version of its last event.
    pub cursor: Option<u32>,
}

/// A page of a row's history, oldest first.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    /// At most `limit` of them, oldest first.
    pub events: Vec<EventView>,
    /// `cursor` of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One page of a row's history, oldest first; members with one of the `secret` names are blanked out, wherever they
/// stand.
///
/// # Errors
/// 404 when there is none, 422 for another limit than 1 to 100.
pub async fn history(
    store: &dyn Store,
    key: RowKey,
    params: HistoryParams,
    secret: &[&str],
) -> Result<EventPage, Problem> {
    let what = format!("{} {}", key.kind, key.id);
    let limit = checked_limit(params.limit, LONGEST_PAGE)?;
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
        blank(&mut data, secret);
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

/// Events in one look at a history that is read to its end: each may carry a whole message.
const EVENTS_AT_ONCE: usize = 32;

/// Does something with every event of a row, oldest first, a few at a time.
///
/// # Errors
/// When the store fails, or `each` does.
pub async fn for_each_event(
    store: &dyn Store,
    key: RowKey,
    mut each: impl FnMut(StoredEvent) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let mut after = 0;
    loop {
        let events = store.events(key.clone(), after, EVENTS_AT_ONCE).await?;
        let is_last = events.len() < EVENTS_AT_ONCE;
        after = events.last().map_or(after, |event| event.version);
        events.into_iter().try_for_each(&mut each)?;
        if is_last {
            return Ok(());
        }
    }
}

/// Which part of a list a client wants.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// Start behind this key.
    pub after: Option<String>,
    /// Only the rows of these ids, with commas between them; at most 100.
    pub only: Option<String>,
    /// As they were when the event at this position was the last; with `only`.
    pub as_of: Option<i64>,
}

/// Most rows that may be asked for by their ids.
pub const ONLY: usize = 100;

impl Range {
    /// The ids that are asked for; `None` when all rows are.
    ///
    /// # Errors
    /// 422 for more than 100.
    pub fn wanted(&self) -> Result<Option<Vec<&str>>, Problem> {
        let wanted = self.only.as_ref().map(|only| only.split(',').collect::<Vec<_>>());
        match wanted {
            Some(ids) if ids.len() > ONLY => Err(Problem::field("only", format!("at most {ONLY} ids"))),
            wanted => Ok(wanted),
        }
    }
}

/// Entries in one page for machines: enough to be worth a round trip, few enough to stay small.
pub const ENTRIES_PAGE: usize = 2_000;

/// A row with its history, oldest event first.
pub type RowWithHistory = (FoundRow, Vec<StoredEvent>);

/// One page of the entries that `entry` makes of all rows of a kind; `None` for a row that cannot be read.
///
/// # Errors
/// When the store fails.
pub async fn entries_page<T>(
    store: &dyn Store,
    kind: &'static str,
    range: Range,
    entry: impl Fn(&FoundRow) -> Option<T>,
) -> Result<Page<T>, Problem> {
    let (rows, next) = rows_page(store, kind, range).await?;
    // Asked after the rows: what has left of them by then is known.
    let left_before = store.left(kind).await?.before;
    let entries = rows.into_iter().map(|row| {
        let entry = entry(&row);
        (row.id, entry)
    });
    Ok(Page { left_before, ..Page::of(kind, entries, next) })
}

/// One page of the entries that `entry` makes of rows of `D` with their histories; `None` for a row that cannot be read. A
/// page of all rows is checked against these as it is read. Not for rows whose history has no end: each is read whole.
///
/// # Errors
/// 422 for more than [`ONLY`] ids, and for `as_of` without `only`; or when the store fails.
pub async fn entries_with_history<D: Decider, T>(
    store: &dyn Store,
    range: Range,
    entry: impl Fn(&str, WithHistory<D>) -> Option<T>,
) -> Result<Page<T>, Problem> {
    let Some(ids) = range.wanted()? else {
        return checked_page(store, range, true, entry).await;
    };
    if let Some(seq) = range.as_of {
        return entries_as_of(store, ids, seq, entry).await;
    }
    let (rows, next) = rows_page(store, D::KIND, range).await?;
    let page = entries_of(store, rows, next, entry).await?;
    // Asked after the histories: what has left of them by then is known.
    let left_before = store.left(D::KIND).await?.before;
    Ok(Page { left_before, ..page })
}

/// One page of the entries that `entry` makes of the states of rows of `D`; `None` for a row that cannot be read. A page of
/// all rows is checked against their histories as it is read.
///
/// # Errors
/// 422 for more than [`ONLY`] ids, and for `as_of`; or when the store fails.
pub async fn entries_without_history<D: Decider, T>(
    store: &dyn Store,
    range: Range,
    entry: impl Fn(&str, D) -> Option<T>,
) -> Result<Page<T>, Problem> {
    if range.only.is_some() && range.as_of.is_none() {
        let entry = |row: &FoundRow| entry(&row.id, serde_json::from_str(&row.state).ok()?);
        return entries_page(store, D::KIND, range, entry).await;
    }
    checked_page(store, range, false, |id, row| entry(id, row.state)).await
}

/// A page of all rows, checked against their histories.
async fn checked_page<D: Decider, T>(
    store: &dyn Store,
    range: Range,
    with_histories: bool,
    entry: impl Fn(&str, WithHistory<D>) -> Option<T>,
) -> Result<Page<T>, Problem> {
    if range.as_of.is_some() {
        return Err(Problem::field("as_of", "needs only, and a ledger of rows with their histories"));
    }
    let page = CheckedPage { after: range.after, limit: ENTRIES_PAGE, with_histories };
    let CheckedRows { rows, folds } = store.checked_rows(D::KIND, page).await?;
    let left_before = store.left(D::KIND).await?.before;
    let entries = rows.into_iter().map(|row| {
        let (id, row) = match row {
            CheckedRow::Fold { id, row } => match row.downcast() {
                Ok(row) => (id, Some(*row)),
                Err(_) => panic!("{}/{id} is of another decider than the store was opened with", D::KIND),
            },
            CheckedRow::Other { id, state, history } => (id, WithHistory::of(&state, &history)),
        };
        let entry = row.and_then(|row| entry(&id, row));
        (id, entry)
    });
    let FoldReport { rows, differing, next, .. } = folds;
    let folds = Some(Folds { kind: D::KIND.to_owned(), rows, differing });
    Ok(Page { left_before, folds, ..Page::of(D::KIND, entries, next) })
}

/// Entries of the rows of `D` with these ids as they were when the event at position `seq` was the last. A row that was not
/// there yet is left out; one that cannot be told any more, as some of its events have left, is unreadable.
///
/// # Errors
/// When the store fails.
pub async fn entries_as_of<D: Decider, T>(
    store: &dyn Store,
    ids: Vec<&str>,
    seq: i64,
    entry: impl Fn(&str, WithHistory<D>) -> Option<T>,
) -> Result<Page<T>, Problem> {
    let ids = ids.into_iter().map(str::to_owned).collect();
    let rows = store.rows_as_of(D::KIND, ids, seq).await?;
    let entries = rows.into_iter().map(|(id, row)| {
        let row = row.and_then(|(row, history)| WithHistory::of(&row.state, &history));
        let entry = row.and_then(|row| entry(&id, row));
        (id, entry)
    });
    Ok(Page::of(D::KIND, entries, None))
}

/// Entries of rows that the caller has found, each with its history as it is now; nothing is checked. `next` is passed on.
///
/// # Errors
/// When the store fails.
pub async fn entries_of<D: Decider, T>(
    store: &dyn Store,
    rows: Vec<FoundRow>,
    next: Option<String>,
    entry: impl Fn(&str, WithHistory<D>) -> Option<T>,
) -> Result<Page<T>, Problem> {
    let rows = with_histories(store, D::KIND, rows).await?;
    let entries = rows.into_iter().map(|(row, history)| {
        let entry = WithHistory::of(&row.state, &history).and_then(|it| entry(&row.id, it));
        (row.id, entry)
    });
    Ok(Page::of(D::KIND, entries, next))
}

/// The place of the event at `at` in the history of a database; of its last event without it.
///
/// # Errors
/// When the store fails.
pub async fn place(store: &dyn Store, at: Option<i64>) -> Result<HistoryPosition, Problem> {
    let mark = store.mark().await?;
    let event = at.unwrap_or(mark.events);
    let of = store.fingerprint(event).await?.unwrap_or_default();
    Ok(HistoryPosition { database: mark.id, event, of })
}

/// Ids of rows that have changed, or what else they are called by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// Each once.
    pub ids: Vec<String>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
}

/// Events that are looked at for one page of what has changed.
const CHANGES_AT_ONCE: usize = 10_000;

/// The rows of a kind that have changed behind a position: their ids, or their values of the field `by`.
///
/// # Errors
/// When the store fails.
pub async fn changed(
    store: &dyn Store,
    kind: &'static str,
    after: i64,
    by: Option<&'static str>,
) -> Result<Changed, Problem> {
    let changes = store.changes(kind, after, CHANGES_AT_ONCE).await?;
    let next = (!changes.is_over).then_some(changes.up_to);
    let Some(field) = by else { return Ok(Changed { ids: changes.ids, next }) };
    let mut ids = BTreeSet::new();
    for some in changes.ids.chunks(ONLY) {
        let one_of = vec![("id", some.iter().map(|id| FieldValue::Text(id.clone())).collect())];
        let order = Some(Order { field, after: None });
        let rows = store.find(kind, Query { one_of, order, limit: ONLY, ..Query::default() }).await?;
        ids.extend(rows.into_iter().filter_map(|row| match row.ordered_by {
            FieldValue::Text(value) => Some(value),
            FieldValue::Integer(_) | FieldValue::Null => None,
        }));
    }
    Ok(Changed { ids: ids.into_iter().collect(), next })
}

/// These rows, each with its history.
///
/// # Errors
/// When the store fails.
pub async fn with_histories(
    store: &dyn Store,
    kind: &'static str,
    rows: Vec<FoundRow>,
) -> Result<Vec<RowWithHistory>, Problem> {
    let ids = rows.iter().map(|row| row.id.clone()).collect();
    let histories = store.histories(kind, ids).await?;
    Ok(rows.into_iter().zip(histories).collect())
}

async fn rows_page(
    store: &dyn Store,
    kind: &'static str,
    range: Range,
) -> Result<(Vec<FoundRow>, Option<String>), Problem> {
    if let Some(ids) = range.wanted()? {
        let rows = ids.into_iter().map(|id| store.row(RowKey { kind, id: id.to_owned() }));
        return Ok((try_join_all(rows).await?.into_iter().flatten().collect(), None));
    }
    let query = Query { after: range.after, limit: ENTRIES_PAGE, ..Query::default() };
    let rows = store.find(kind, query).await?;
    let next = rows.last().filter(|_| rows.len() == ENTRIES_PAGE).map(|row| row.id.clone());
    Ok((rows, next))
}

/// What `view` makes of rows, and the ids of those that it makes nothing of, because they are damaged: one of them is
/// no reason not to show the others. The log says what is wrong with it.
pub fn readable<T>(
    rows: &[FoundRow],
    view: impl Fn(&FoundRow) -> Result<T, Problem>,
) -> (Vec<T>, Vec<String>) {
    let (mut views, mut unreadable) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        match view(row) {
            Ok(view) => views.push(view),
            Err(problem) => {
                tracing::error!(row = row.id, "a row cannot be read: {}", problem.detail);
                unreadable.push(row.id.clone());
            }
        }
    }
    (views, unreadable)
}

/// Rows in one page of a list for people, when they do not say.
const LIST_PAGE: usize = 20;
/// Most rows in one page of a list for people.
const LONGEST_PAGE: usize = 100;

/// One page of a list for people: the rows that `query` finds, at most `limit` of them (1 to 100; 20 when not given),
/// and where the next page starts.
///
/// # Errors
/// 422 for another limit, or when the store fails.
pub async fn list_page(
    store: &dyn Store,
    kind: &'static str,
    limit: Option<usize>,
    query: Query,
) -> Result<(Vec<FoundRow>, Option<String>), Problem> {
    let limit = checked_limit(limit, LIST_PAGE)?;
    let mut rows = store.find(kind, Query { limit: limit + 1, ..query }).await?;
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| has_more).map(|row| row.id.clone());
    Ok((rows, next))
}

fn checked_limit(limit: Option<usize>, unless_given: usize) -> Result<usize, Problem> {
    match limit.unwrap_or(unless_given) {
        limit @ 1..=LONGEST_PAGE => Ok(limit),
        _ => Err(Problem::field("limit", format!("must be 1 to {LONGEST_PAGE}"))),
    }
}
