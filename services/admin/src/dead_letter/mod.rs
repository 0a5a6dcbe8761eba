//! Dead letters as admin knows them, and what operators make of them.
//!
//! - [`events`]: what may be asked of one, what may happen to it, why it says no
//! - [`view`]: the row, which follows its service and the operators
//! - [`filter`]: which of them somebody means
//! - [`item`], [`history`]: one of them as operators are shown it, in a list and in full
//! - [`edit`]: another message made of what was parked
//! - `reading`: looking them up in admin's own tables

pub mod edit;
pub mod events;
pub mod filter;
pub mod history;
pub mod item;
pub(crate) mod reading;
pub mod view;
