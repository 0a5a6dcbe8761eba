//! Reads that routes of every service share: histories of rows, lists for people, and ledgers for machines.

mod changes;
mod history;
mod ledger;
mod list;
mod page;

pub use changes::{ChangedIds, changed_ids, position};
pub use history::{EventPage, EventView, HistoryParams, for_each_event, history};
pub use ledger::{
    LedgerQuery, MAX_ENTRIES, MAX_IDS, entries_as_of, entries_of, entries_page, entries_with_history,
    entries_without_history,
};
pub use list::{list_page, readable_rows};
pub use page::{Encoding, Folds, MESSAGE_PACK, Page};
