//! Shell: pages of lists.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use saga_core::decider::Decider;
use saga_core::query::{FoundRow, Query};
use saga_engine::host::http::Problem;
use uuid::Uuid;

use super::Admin;
use crate::dead_letters::filter::Position;

impl Admin {
    /// Reads a page of a table, newest first, and the `cursor` of the next one.
    ///
    /// # Errors
    /// Returns 422 for an invalid limit, and an error when the store fails.
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

/// Validates a limit.
///
/// # Errors
/// Returns 422 for 0, and for more than 200.
pub(super) fn checked_limit(limit: Option<usize>) -> Result<usize, Problem> {
    match limit.unwrap_or(50) {
        limit @ 1..=200 => Ok(limit),
        _ => Err(Problem::field("limit", "must be 1 to 200")),
    }
}

/// Cuts a page that was read with one entry more than `limit`, and makes the cursor of the next page.
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

/// Encodes a position as an opaque cursor.
pub(super) fn cursor(position: &Position) -> String {
    BASE64.encode(position.written())
}

/// Decodes a cursor.
///
/// # Errors
/// Returns 422 for an invalid one.
pub(super) fn position_of(cursor: &str) -> Result<Position, Problem> {
    let bytes = BASE64.decode(cursor).ok();
    let written = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    let position = written.and_then(|written| Position::read(&written));
    position.ok_or_else(|| Problem::field("cursor", "is not the `next` of a page"))
}
