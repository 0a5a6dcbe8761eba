//! Reconciliation: whether stock, money, messages and rows of all services agree. In reading order; each knows only
//! what stands before it:
//!
//! - [`findings`]: the rules, and what breaks them
//! - [`settled`]: what breaks them and was settled outside
//! - [`account`]: all that is known of one order, and the rules within it
//! - [`accounts`]: the ledgers of all services merged by order, page by page
//! - [`closing`]: what is carried forward from one look to the next
//! - [`ledgers`]: orders, products, messages and rows together
//! - [`under_way`], [`draining`]: what is still to come, and whether it has come
//! - `answers`: whoever asks, and an answer within its time
//! - `folds`: whether rows are the folds of their events
//! - `side_by_side`: the ledgers as they come, all at once, each account judged when it is complete
//! - `asking`: what everyone is asked: ledgers, how they are, what has changed
//! - `second_look`: what looked wrong, looked at again
//! - [`report`]: the verdict
//! - `settling`: what an operator accepts who settles orders

pub mod account;
pub mod accounts;
mod answers;
mod asking;
pub mod closing;
pub mod draining;
pub mod findings;
mod folds;
pub mod ledgers;
pub mod report;
mod second_look;
pub mod settled;
pub(crate) mod settling;
mod side_by_side;
pub mod under_way;
