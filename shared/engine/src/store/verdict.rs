//! Shell: verdicts on rows and their histories, and the report of them.

use saga_core::row::{Folding, RowKind};
use serde::{Deserialize, Serialize};

use super::fold::{Folded, TableRow};
use super::sql::Sql;

/// Result of verifying rows against their events.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct VerificationReport {
    /// Number of rows that were verified.
    pub rows: u64,
    /// Number of folded events. A verification in parts may fold events of a row more than once.
    pub events: u64,
    /// Rows that differ from the fold of their events, as `kind/id`; at most 100.
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
    fn add_difference(&mut self, kind: &RowKind, id: &str) {
        if self.differing.len() < NAMED_DIFFERENCES {
            self.differing.push(format!("{}/{id}", kind.name));
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
    if !folded.has_events {
        return Verdict::WithoutEvents;
    }
    (report.rows, report.events) = (report.rows + 1, report.events + folded.count);
    let is_equal = row.is_some_and(|row| folded.equals::<S>(kind, row));
    if !is_equal || folded.has_gap() {
        report.add_difference(kind, &folded.id);
        return Verdict::Different;
    }
    folded.into_state().map_or(Verdict::Different, Verdict::Equal)
}
