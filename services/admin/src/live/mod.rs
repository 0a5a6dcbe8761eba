//! Shell: events for open pages. The overview is read once a second for all of them, and only while a page is open. `rates`
//! counts sagas by second, and `publisher` reads for all pages.

mod publisher;
mod rates;

pub(crate) use self::publisher::{Live, Snapshot, Versioned};
