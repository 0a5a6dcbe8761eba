//! Shell: ledgers for machines: pages of all rows of a kind, verified against their histories as they are read.

use futures::future::try_join_all;
use saga_core::decider::Decider;
use saga_core::query::{FoundRow, Query};
use saga_core::row::{RowKey, WithHistory};
use serde::Deserialize;

use super::page::{Folds, Page};
use crate::host::http::Problem;
use crate::store::{Store, VerificationReport, VerifiedPage, VerifiedRow, VerifiedRows};

/// Query parameters of a page of a ledger.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerQuery {
    /// Key after which the page starts.
    pub after: Option<String>,
    /// Ids of the wanted rows, separated by commas; at most 100.
    pub only: Option<String>,
    /// Position of the last event to consider; requires `only`.
    pub as_of: Option<i64>,
}

/// Maximum number of ids in [`LedgerQuery::only`].
pub const MAX_IDS: usize = 100;

impl LedgerQuery {
    /// Ids of the wanted rows; `None` for all rows.
    ///
    /// # Errors
    /// 422 for more than 100.
    pub fn ids(&self) -> Result<Option<Vec<&str>>, Problem> {
        let ids = self.only.as_ref().map(|only| only.split(',').collect::<Vec<_>>());
        match ids {
            Some(ids) if ids.len() > MAX_IDS => Err(Problem::field("only", format!("at most {MAX_IDS} ids"))),
            ids => Ok(ids),
        }
    }
}

/// Maximum number of entries in one page of a ledger, about a megabyte.
pub const MAX_ENTRIES: usize = 2_000;

/// Reads one page of rows of a kind as entries. `entry` returns `None` for a row that cannot be read.
///
/// # Errors
/// When the store fails.
pub async fn entries_page<T>(
    store: &dyn Store,
    kind: &'static str,
    query: LedgerQuery,
    entry: impl Fn(&FoundRow) -> Option<T>,
) -> Result<Page<T>, Problem> {
    let (rows, next) = rows_page(store, kind, query).await?;
    // Read after the rows, so that it covers all that were purged by then.
    let purged_before = store.purged_rows(kind).await?.before;
    let entries = rows.into_iter().map(|row| {
        let entry = entry(&row);
        (row.id, entry)
    });
    Ok(Page { purged_before, ..Page::of(kind, entries, next) })
}

/// Reads one page of rows of `D` with their histories as entries. `entry` returns `None` for a row that cannot be read.
///
/// A page of all rows is verified against the histories. Not for rows with unbounded histories: each is read whole.
///
/// # Errors
/// 422 for more than [`MAX_IDS`] ids, and for `as_of` without `only`; or when the store fails.
pub async fn entries_with_history<D: Decider, T>(
    store: &dyn Store,
    query: LedgerQuery,
    entry: impl Fn(&str, WithHistory<D>) -> Option<T>,
) -> Result<Page<T>, Problem> {
    let Some(ids) = query.ids()? else {
        return checked_page(store, query, true, entry).await;
    };
    if let Some(seq) = query.as_of {
        return entries_as_of(store, ids, seq, entry).await;
    }
    let (rows, next) = rows_page(store, D::KIND, query).await?;
    let page = entries_of(store, rows, next, entry).await?;
    // Read after the histories, so that it covers all that were purged by then.
    let purged_before = store.purged_rows(D::KIND).await?.before;
    Ok(Page { purged_before, ..page })
}

/// Reads one page of states of rows of `D` as entries. `entry` returns `None` for a row that cannot be read. A page of all
/// rows is verified against their histories.
///
/// # Errors
/// 422 for more than [`MAX_IDS`] ids, and for `as_of`; or when the store fails.
pub async fn entries_without_history<D: Decider, T>(
    store: &dyn Store,
    query: LedgerQuery,
    entry: impl Fn(&str, D) -> Option<T>,
) -> Result<Page<T>, Problem> {
    if query.only.is_some() && query.as_of.is_none() {
        let entry = |row: &FoundRow| entry(&row.id, serde_json::from_str(&row.state).ok()?);
        return entries_page(store, D::KIND, query, entry).await;
    }
    checked_page(store, query, false, |id, row| entry(id, row.state)).await
}

/// Reads one page of all rows, verified against their histories.
async fn checked_page<D: Decider, T>(
    store: &dyn Store,
    query: LedgerQuery,
    with_histories: bool,
    entry: impl Fn(&str, WithHistory<D>) -> Option<T>,
) -> Result<Page<T>, Problem> {
    if query.as_of.is_some() {
        return Err(Problem::field("as_of", "needs only, and a ledger of rows with their histories"));
    }
    let page = VerifiedPage { after: query.after, limit: MAX_ENTRIES, with_histories };
    let VerifiedRows { rows, folds } = store.verified_rows(D::KIND, page).await?;
    let purged_before = store.purged_rows(D::KIND).await?.before;
    let entries = rows.into_iter().map(|row| {
        let (id, row) = match row {
            VerifiedRow::Fold { id, row } => match row.downcast() {
                Ok(row) => (id, Some(*row)),
                Err(_) => {
                    panic!("{}/{id} belongs to another decider than the store was opened with", D::KIND)
                }
            },
            VerifiedRow::Other { id, state, history } => (id, WithHistory::of(&state, &history)),
        };
        let entry = row.and_then(|row| entry(&id, row));
        (id, entry)
    });
    let VerificationReport { rows, differing, next, .. } = folds;
    let folds = Some(Folds { kind: D::KIND.to_owned(), rows, differing });
    Ok(Page { purged_before, folds, ..Page::of(D::KIND, entries, next) })
}

/// Reads rows of `D` as of position `seq`, as entries. Omits rows that did not exist yet. Reports rows as unreadable when
/// some of their events were purged.
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
    let rows = store.rows_at(D::KIND, ids, seq).await?;
    let entries = rows.into_iter().map(|(id, row)| {
        let row = row.and_then(|(row, history)| WithHistory::of(&row.state, &history));
        let entry = row.and_then(|row| entry(&id, row));
        (id, entry)
    });
    Ok(Page::of(D::KIND, entries, None))
}

/// Adds the current history to each of `rows`, and makes entries of them without verification. `next` is passed on.
///
/// # Errors
/// When the store fails.
pub async fn entries_of<D: Decider, T>(
    store: &dyn Store,
    rows: Vec<FoundRow>,
    next: Option<String>,
    entry: impl Fn(&str, WithHistory<D>) -> Option<T>,
) -> Result<Page<T>, Problem> {
    let histories = store.histories(D::KIND, rows.iter().map(|row| row.id.clone()).collect()).await?;
    let entries = rows.into_iter().zip(histories).map(|(row, history)| {
        let entry = WithHistory::of(&row.state, &history)
            .and_then(|row_with_history| entry(&row.id, row_with_history));
        (row.id, entry)
    });
    Ok(Page::of(D::KIND, entries, next))
}

async fn rows_page(
    store: &dyn Store,
    kind: &'static str,
    query: LedgerQuery,
) -> Result<(Vec<FoundRow>, Option<String>), Problem> {
    if let Some(ids) = query.ids()? {
        let rows = ids.into_iter().map(|id| store.row(RowKey { kind, id: id.to_owned() }));
        return Ok((try_join_all(rows).await?.into_iter().flatten().collect(), None));
    }
    let query = Query { after: query.after, limit: MAX_ENTRIES, ..Query::default() };
    let rows = store.find(kind, query).await?;
    let next = rows.last().filter(|_| rows.len() == MAX_ENTRIES).map(|row| row.id.clone());
    Ok((rows, next))
}
