//! Shell: which rows are checked against their events, and what that has found, whatever store has read them.

use saga_core::row::{AnyWithHistory, RowKind, StoredEvent};
use serde::{Deserialize, Serialize};

/// What a check of all rows against their events found.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct FoldReport {
    /// Rows looked at.
    pub rows: u64,
    /// Events that were folded; of a check in parts some twice, where a row was looked at again.
    pub events: u64,
    /// Rows that differ from the fold of their events, as `kind/id`; at most 100.
    pub differing: Vec<String>,
    /// Digest over all rows, so that two states of a table can be told apart; empty of a part of them.
    pub digest: String,
    /// Where the next part begins, of a check in parts; `None` when all is checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which part of the rows is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// The part behind this one: its [`FoldReport::next`], which is for the store alone; the first part without it.
    pub after: Option<String>,
    /// About so many events are read: it ends with the row with which it comes to them, or behind so many of the log
    /// where rows are folded along it.
    pub events: u64,
    /// Kinds that are left out: they are checked otherwise.
    pub but: Vec<String>,
}

/// Which rows are checked as they are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckedPage {
    /// Those behind this id.
    pub after: Option<String>,
    /// At most so many, and histories without a row among them.
    pub limit: usize,
    /// Whether each comes with the events of its history. Not for rows whose history has no end: all of it is in memory.
    pub with_histories: bool,
}

/// Rows that were checked as they were read.
#[derive(Debug, Default)]
pub struct CheckedRows {
    /// In the order of their ids.
    pub rows: Vec<CheckedRow>,
    /// What the check of these rows found; its `next` is the id behind which the next ones are.
    pub folds: FoldReport,
}

/// A row that was checked as it was read.
#[derive(Debug)]
pub enum CheckedRow {
    /// The fold of its events.
    Fold {
        /// Its id.
        id: String,
        /// A [`WithHistory`](saga_core::row::WithHistory) of its decider, without events where none were wanted.
        row: AnyWithHistory,
    },
    /// Another, or one of whose events some have left.
    Other {
        /// Its id.
        id: String,
        /// Its state, as JSON.
        state: String,
        /// The events that there are, oldest first; none where none were wanted.
        history: Vec<StoredEvent>,
    },
}

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
