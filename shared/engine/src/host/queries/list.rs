//! Shell: lists for people, page by page.

use saga_core::query::{FoundRow, Query};

use crate::host::http::Problem;
use crate::store::roles::Queries;

/// Maps rows by `view`, and returns the ids of damaged rows apart: one damaged row hides no other. Logs what is wrong with
/// each.
pub fn readable_rows<T>(
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

/// Default number of rows in one page of a list.
const DEFAULT_LIMIT: usize = 20;
/// Maximum number of rows in one page of a list.
pub(super) const MAX_LIMIT: usize = 100;

/// Reads one page of a list for people: up to `limit` rows (1 to 100, default 20). Returns the start of the next page too.
///
/// # Errors
/// 422 for a limit out of range, or when the store fails.
pub async fn list_page(
    store: &dyn Queries,
    kind: &'static str,
    limit: Option<usize>,
    query: Query,
) -> Result<(Vec<FoundRow>, Option<String>), Problem> {
    let limit = checked_limit(limit, DEFAULT_LIMIT)?;
    let mut rows = store.find(kind, Query { limit: limit + 1, ..query }).await?;
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| has_more).map(|row| row.id.clone());
    Ok((rows, next))
}

pub(super) fn checked_limit(limit: Option<usize>, default: usize) -> Result<usize, Problem> {
    match limit.unwrap_or(default) {
        limit @ 1..=MAX_LIMIT => Ok(limit),
        _ => Err(Problem::field("limit", format!("must be 1 to {MAX_LIMIT}"))),
    }
}
