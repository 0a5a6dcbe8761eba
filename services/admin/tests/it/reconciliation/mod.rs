//! The reconciliation: what it says of every corruption, and how it asks the services.

mod corruptions;
mod draining;
mod packed;
mod played;
mod purged;
mod resolved;
mod services;
mod shop;
