//! Client of admin's API, and the output of its responses.

// Requests in an operator's name.
mod client;

// Output of one response, of a list, and of the results for several items.
mod items;
mod page;
mod response;

pub use self::client::{Admin, address};
pub use self::items::{ItemOutcome, ItemResults, for_each};
pub use self::page::{OrList, Page, PageOptions, Unreachable};
pub use self::response::{Form, show};
