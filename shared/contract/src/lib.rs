//! Pure: the contract between the services of this shop: their facts, the saga that these make, and the
//! participants.
//!
//! In reading order:
//! - [`topology`]: the list of programs: ports, streams, calls.
//! - [`order`], [`inventory`], [`payment`]: the facts of each service; [`bank`]: faults of the simulated bank.
//! - [`fact`]: all facts as one type.
//! - [`money`]: amounts in minor units of a currency.
//! - [`saga`]: stages and statuses of the order saga.
//! - [`saga_fact`], [`saga_event`], [`saga_view`], `saga_policy`, [`manual_resolution`]: the view of one saga,
//!   from outside.
//! - [`reconciliation`]: ledger entries of the services.
//! - [`metrics`]: the business metrics of each service.
//! - [`access`]: roles required by each route.

#![warn(missing_docs)]

pub mod access;
pub mod bank;
pub mod fact;
pub mod inventory;
pub mod manual_resolution;
pub mod metrics;
pub mod money;
pub mod order;
pub mod payment;
pub mod reconciliation;
pub mod saga;
pub mod saga_event;
pub mod saga_fact;
mod saga_policy;
pub mod saga_view;
pub mod topology;

pub use self::payment::payment_id;
pub use fact::{Fact, FactType};
