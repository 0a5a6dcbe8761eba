//! What the services of this shop share: their facts, the saga that these make, and who takes part. All pure.
//!
//! In reading order:
//! - [`topology`]: the one list of services: their ports, their streams, who hears whom.
//! - [`order`], [`inventory`], [`payment`]: what each of them says; [`bank`]: what it can be told to do wrong.
//! - [`fact`]: all of that as one type, as the engine sees it.
//! - [`saga`]: the order saga's shape, declared once; [`saga_view`]: where one saga stands, as a fold of what was
//!   heard; [`heard_fact`]: what it keeps of each message; [`settlement`]: what a human settled outside of
//!   it; [`saga_event`]: both together; `saga_policy`: what follows from them.
//! - [`reconciliation`]: what each service tells of its ledger, so that stock, money and orders can be compared.
//! - [`overview`]: how the whole system is, in one look, and whether somebody must do something.
//! - [`metrics`]: what each of them counts of its trade.
//! - [`access`]: which routes need a token, and of which role.
//! - [`money`]: amounts in minor units.

#![warn(missing_docs)]

pub mod access;
pub mod bank;
pub mod fact;
pub mod heard_fact;
pub mod inventory;
pub mod metrics;
pub mod money;
pub mod order;
pub mod overview;
pub mod payment;
pub mod reconciliation;
pub mod saga;
pub mod saga_event;
mod saga_policy;
pub mod saga_view;
pub mod settlement;
pub mod topology;

pub use fact::{Fact, FactType};
pub use payment::payment_id;
