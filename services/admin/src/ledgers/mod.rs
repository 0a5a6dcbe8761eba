//! The ledgers of all services, compared order by order. In reading order; each knows only those before it:
//!
//! - [`rules`]: the rules between ledgers, and what violates them
//! - [`discrepancies`]: what was found, counted by rule
//! - [`resolved`]: violations that an operator resolved manually
//! - [`account`]: all entries of one order, and the rules within it
//! - [`accounts`]: the ledgers merged by order, page by page
//! - [`checkpoint`]: totals that an incremental verification starts from
//! - [`totals`]: orders, products, messages and rows together
//! - [`in_flight`], [`draining`]: unfinished work, and whether it has completed
//! - [`state`]: the result of the last reconciliation

pub mod account;
pub mod accounts;
pub mod checkpoint;
pub mod discrepancies;
pub mod draining;
pub mod in_flight;
pub mod resolved;
pub mod rules;
pub mod state;
pub mod totals;
