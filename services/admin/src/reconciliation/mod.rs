//! Reconciliation: whether stock, money, messages and rows of all services agree. In reading order; each knows only
//! what stands before it:
//!
//! - [`findings`]: the rules, and what breaks them
//! - [`account`]: all that is known of one order, and the rules within it
//! - [`accounts`]: the ledgers of all services merged by order, page by page
//! - [`ledgers`]: orders, products, messages and rows together
//! - [`report`]: asking everyone, and the verdict

pub mod account;
pub mod accounts;
pub mod findings;
pub mod ledgers;
pub mod report;
