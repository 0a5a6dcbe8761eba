//! Admin, as operators ask it.

// Requests in somebody's name.
mod client;

// What becomes of an answer, and of one that is a list.
mod answer;
mod listing;

pub use self::answer::{Done, Several, each, read, show};
pub use self::client::{Admin, address, said};
pub use self::listing::{Form, Items, OrList, Page, PageOptions};
