//! Reconciliation: whether stock, money, messages and rows of all services agree.
//!
//! - [`ledgers`]: what the services say, side by side, and the rules between them
//! - [`report`]: asking everyone, and the verdict

pub mod ledgers;
pub mod report;
