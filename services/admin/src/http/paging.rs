//! Shell: lists, page by page.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use saga_core::decider::Decider;
use saga_core::query::{FoundRow, Query};
use saga_engine::host::http::Problem;
use uuid::Uuid;

use super::Admin;
use crate::dead_letter::filter::Position;

impl Admin {
    /// A page of a table, newest first, and the `cursor` of the next one.
    ///
    /// # Errors
    /// 422 for a limit that is none, or when the store fails.
    pub(super) async fn page<D: Decider>(
        &self,
        wanted: Query,
        limit: Option<usize>,
        cursor: Option<Uuid>,
    ) -> Result<(Vec<FoundRow>, Option<String>), Problem> {
        let limit = checked_limit(limit)?;
        let after = cursor.map(|cursor| cursor.to_string());
        let query = Query { after, descending: true, limit: limit + 1, ..wanted };
        let rows = self.app.store.find(D::KIND, query).await?;
        Ok(cut(rows, limit, |row| row.id.clone()))
    }
}

/// How many entries a page holds.
///
/// # Errors
/// 422 for more than 200, and for none.
pub(super) fn checked_limit(limit: Option<usize>) -> Result<usize, Problem> {
    match limit.unwrap_or(50) {
        limit @ 1..=200 => Ok(limit),
        _ => Err(Problem::field("limit", "must be 1 to 200")),
    }
}

/// A page of `limit` entries, of which one more was looked up; and the cursor of the next page, made of the last.
pub(super) fn cut<T>(
    mut found: Vec<T>,
    limit: usize,
    cursor: impl Fn(&T) -> String,
) -> (Vec<T>, Option<String>) {
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| has_more).map(cursor);
    (found, next)
}

/// A position in a list of dead letters, as clients keep it without knowing what it means.
pub(super) fn cursor(position: &Position) -> String {
    BASE64.encode(position.written())
}

/// The position that a cursor means.
///
/// # Errors
/// 422 for one that was not made here.
pub(super) fn position_of(cursor: &str) -> Result<Position, Problem> {
    let bytes = BASE64.decode(cursor).ok();
    let written = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    let position = written.and_then(|written| Position::read(&written));
    position.ok_or_else(|| Problem::field("cursor", "is no `next` of an earlier page"))
}
