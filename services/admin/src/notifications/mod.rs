//! Notifications of findings. In reading order; each knows only those before it:
//!
//! - [`content`]: a notification as it is sent
//! - [`open_finding`]: an open finding, and which receiver was notified of it
//! - [`state`]: which findings were reported, and what to report next
//! - [`signing`]: signatures by which a receiver knows the sender
//! - [`settings`]: receiver, intervals and thresholds
//! - [`webhook`]: delivery to a receiver or to standard output
//! - [`storeless`]: notifications while the database takes no writes

pub mod content;
pub mod open_finding;
pub mod settings;
pub mod signing;
pub mod state;
pub mod storeless;
pub mod webhook;
