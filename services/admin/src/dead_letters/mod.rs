//! Dead letters of all services, and operator actions on them. In reading order:
//!
//! - [`difference`]: the members that an edit changes
//! - [`events`]: commands, events and rejections
//! - [`view`]: the row of a dead letter
//! - [`filter`]: which dead letters a request is about
//! - [`item`], [`history`]: a dead letter in a list, and in full
//! - [`edit`]: a new message made of a dead-lettered one
//! - `reading`: queries of admin's tables
//! - `replay_values`: replay values, looked up beside the saga view
//! - `grouping`, `summary`: groups by cause, and counts

pub mod difference;
pub mod edit;
pub mod events;
pub mod filter;
pub(crate) mod grouping;
pub mod history;
pub mod item;
pub(crate) mod reading;
pub(crate) mod replay_values;
pub(crate) mod summary;
pub mod view;
