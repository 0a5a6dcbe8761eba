//! The reconciliation: what it says of every corruption, and how it asks the services.

mod corruptions;
mod draining;
mod left;
mod packed;
mod played;
mod services;
mod settled;
mod shop;
