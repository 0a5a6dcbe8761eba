//! Dead letters as admin knows them, and what operators make of them.
//!
//! - [`difference`]: what an edit changes, member by member
//! - [`events`]: what may be asked of one, what may happen to it, why it says no
//! - [`view`]: the row, which follows its service and the operators
//! - [`filter`]: which of them somebody means
//! - [`worth`]: whether the sagas behind them still wait for them
//! - [`item`], [`history`]: one of them as operators are shown it, in a list and in full
//! - [`edit`]: another message made of what was parked
//! - `reading`: looking them up in admin's own tables
//! - `weighing`: what they are worth, looked up beside the view of their sagas
//! - `grouping`: by cause

pub mod difference;
pub mod edit;
pub mod events;
pub mod filter;
pub(crate) mod grouping;
pub mod history;
pub mod item;
pub(crate) mod reading;
pub mod view;
pub(crate) mod weighing;
pub mod worth;
