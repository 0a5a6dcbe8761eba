//! Requests and responses of the admin service's HTTP API, for the service, its clients and their tests. All pure.
//!
//! - [`actor`]: who makes a change, and why
//! - [`audit_log`]: who changed what
//! - [`dead_letters`]: dead letters of all services; [`bulk`]: one change to many of them; [`replay_value`]: what a replay
//!   would still change
//! - [`redrives`]: replays of many dead letters under control
//! - [`sagas`]: the state and timeline of sagas
//! - [`payments`]: the payment of an order, and its charge at the bank; [`records`]: what each service has stored of an order
//! - [`reconciliation`]: whether the ledgers of all services agree
//! - [`notifications`]: what people are notified of
//! - [`overview`]: the state of everything now, with [`findings`](overview::Finding) that need a human
//! - [`live`]: events for open pages, and the session of a caller
//! - [`text`]: counts in words
//! - [`services`], [`breakers`], [`faults`], [`outbox`]: the state of each service, and operator actions on it

#![warn(missing_docs)]

pub mod actor;
pub mod audit_log;
pub mod breakers;
pub mod bulk;
pub mod dead_letters;
pub mod faults;
pub mod live;
pub mod notifications;
pub mod outbox;
pub mod overview;
pub mod payments;
pub mod reconciliation;
pub mod records;
pub mod redrives;
pub mod replay_value;
pub mod sagas;
pub mod services;
pub mod text;
