//! Shell: what open pages are told as it happens. The overview is read once a second for all pages together, and only while
//! a page is open.
//!
//! - `rates`: counts of sagas by second, and their durations by minute
//! - `publisher`: the task that reads for all pages

mod publisher;
mod rates;

pub(crate) use self::publisher::{Live, Snapshot, Versioned};
