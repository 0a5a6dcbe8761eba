//! The reconciliation: its rules, and its calls to the services.

mod corruptions;
mod draining;
mod losses;
mod packed;
mod played;
mod purged;
mod resolved;
mod services;
mod shop;
