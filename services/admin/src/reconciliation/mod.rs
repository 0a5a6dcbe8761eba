//! Reads the ledgers of all services and reconciles them. In reading order; each knows only those before it:
//!
//! - `request`: a reconciliation with its time limit
//! - `verification`: rows compared with the fold of their events
//! - `streams`: the ledgers page by page, all at once
//! - `reading`: everything that services are asked
//! - `recheck`: suspected discrepancies read again
//! - [`reconcile`]: the verdict
//! - `acceptance`: discrepancies that a manual resolution accepts
//! - [`periodic`]: the loop that reconciles, and what it shares with requests

pub(crate) mod acceptance;
pub mod periodic;
mod reading;
mod recheck;
pub mod reconcile;
mod request;
mod streams;
mod verification;
