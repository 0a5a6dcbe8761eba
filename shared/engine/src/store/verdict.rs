//! Shell: verdicts on rows and their histories, and the report of them.

use saga_core::row::{Folding, RowKind};
use serde::{Deserialize, Serialize};

use super::fold::Folded;
use super::sql::Sql;
use super::stored_rows::TableRow;

/// Result of verifying rows against their events.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct VerificationReport {
    /// Number of rows that were verified.
    pub rows: u64,
    /// Number of folded events. A verification in parts may fold events of a row more than once.
    pub events: u64,
    /// Rows that differ from the fold of their events, as `kind/id`, with the damaged column if there is one; at most 100.
    pub differing: Vec<String>,
    /// Digest over all rows, by which two states of a table differ; empty for a part of them.
    pub digest: String,
    /// Start of the next part, in a verification in parts; `None` at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Maximum number of differing rows that a report names.
const NAMED_DIFFERENCES: usize = 100;

impl VerificationReport {
    pub(super) fn add_difference(&mut self, name: String) {
        if self.differing.len() < NAMED_DIFFERENCES {
            self.differing.push(name);
        }
    }

    /// Reports rows that have no events at all.
    pub(super) fn add_rows_without_events(&mut self, kind: &RowKind, rows: u64) {
        if rows > 0 {
            self.differing.push(format!("{}: {rows} rows without events", kind.name));
        }
    }
}

/// Verdict on a row and its history.
pub(super) enum Verdict {
    /// Equals the fold of its events.
    Equal(Box<dyn Folding>),
    /// Row that differs, or is missing.
    Different,
    /// Row that has no event at all.
    WithoutEvents,
}

/// Compares a row with its folded history.
pub(super) fn compare<S: Sql>(
    kind: &RowKind,
    folded: Folded,
    row: Option<&TableRow>,
    report: &mut VerificationReport,
) -> Verdict {
    // A row with a damaged id has no events of this id: it is named rather than counted.
    if !folded.has_events && folded.text_id().is_some() {
        return Verdict::WithoutEvents;
    }
    (report.rows, report.events) = (report.rows + 1, report.events + folded.count);
    let is_equal = row.is_some_and(|row| folded.equals::<S>(kind, row));
    if !is_equal || folded.has_gap() {
        report.add_difference(name(kind, &folded, row));
        return Verdict::Different;
    }
    folded.into_state().map_or(Verdict::Different, Verdict::Equal)
}

/// Names a differing row, with the damaged column if there is one.
fn name(kind: &RowKind, folded: &Folded, row: Option<&TableRow>) -> String {
    let kind = kind.name;
    let of_row = row.and_then(TableRow::damaged_column).map(|column| format!("row_{kind}.{column}"));
    let of_events = folded.damaged.or_else(|| folded.text_id().is_none().then_some("row_id"));
    let damaged = of_row.or_else(|| of_events.map(|column| format!("event.{column}")));
    let damaged = damaged.map(|column| format!(": {column} is damaged")).unwrap_or_default();
    format!("{kind}/{}{damaged}", folded.id)
}
