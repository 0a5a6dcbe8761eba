//! Shell: what a check of rows against their events has found, whatever store has read them.

use saga_core::row::RowKind;

use super::FoldReport;

/// At most this many differing rows are named; one is enough to know.
const NAMED_DIFFERENCES: usize = 100;

/// A row with more events than this, as a product has, is folded by a whole check alone.
pub(super) const LONGEST_LOOKED_AT: i64 = 256;

impl FoldReport {
    /// A row is not the fold of its events.
    pub(super) fn differs(&mut self, kind: &RowKind, id: &str) {
        if self.differing.len() < NAMED_DIFFERENCES {
            self.differing.push(format!("{}/{id}", kind.name));
        }
    }

    /// So many rows have no events at all.
    pub(super) fn forged(&mut self, kind: &RowKind, rows: u64) {
        if rows > 0 {
            self.differing.push(format!("{}: {rows} rows without events", kind.name));
        }
    }
}
