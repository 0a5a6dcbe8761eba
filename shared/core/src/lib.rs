//! Pure: the decision core of a saga engine. It decides what follows from each input and carries nothing out.
//!
//! The crate depends on no async runtime, broker, database, HTTP server or log. Time, randomness and everything
//! that was read are arguments. The modules in reading order:
//!
//! *A service*
//! - [`decider`]: state, commands and events of one kind of row.
//! - [`message`]: facts that services exchange, and their envelope.
//! - [`service`]: the declaration of a service: rows, steps and handlers.
//! - [`unit_of_work`]: reads and changes of one input, and the policy of an event.
//! - [`waiting`]: tasks and retries.
//!
//! *A batch of inputs*
//! - [`input`]: the one form of everything that the engine processes; [`outcome`]: its result.
//! - [`decision`]: one batch, decided in memory as one transaction.
//! - [`dead_letter`]: dead letters and the commands of operators about them.
//! - [`operator`]: a service that publishes operator commands, for systems without one of their own.
//! - [`ids`]: derived ids, which a re-run repeats.
//! - [`revision`]: ordering of repeated requests.
//!
//! *Failure*
//! - [`retry`]: kinds of failures, backoff and jitter.
//! - [`breaker`]: circuit breakers.
//! - [`admission`]: permits for messages and tasks.
//! - [`shedding`]: load shedding by the number of sagas in flight.
//! - [`fault`]: kinds of faults that can be injected.
//! - [`run_record`]: crashes, and the messages that cause them.
//!
//! *Interfaces*
//! - [`row`]: rows of any kind, as the engine and the stores handle them.
//! - [`query`]: queries for rows.
//! - [`metric`]: declarations of metrics.
//! - [`trace`]: W3C trace context.
//! - [`service_stats`]: backlog and progress of a service.
//! - [`health`]: health checks; [`outbox`]: outbox entries, as operators see them.
//! - [`secrets`]: redaction of secrets.
//! - [`access`]: tokens, roles and route rules.
//! - [`text`]: text that people enter.
//! - `testing` (feature): checks of a contract's wire format.

#![warn(missing_docs)]

pub mod access;
pub mod admission;
pub mod breaker;
pub mod dead_letter;
pub mod decider;
pub mod decision;
pub mod fault;
pub mod health;
pub mod ids;
pub mod input;
pub mod message;
pub mod metric;
pub mod operator;
pub mod outbox;
pub mod outcome;
pub mod query;
pub mod retry;
pub mod revision;
pub mod row;
pub mod run_record;
pub mod secrets;
pub mod service;
pub mod service_stats;
pub mod shedding;
pub mod testing;
pub mod text;
pub mod trace;
pub mod unit_of_work;
pub mod waiting;

pub use decider::Decider;
pub use message::{Message, MessageType, Received};
pub use row::{RowKey, RowKind};
pub use service::{HandlerError, HandlerResult, Service, Step, Subscription, TaskResult};
pub use unit_of_work::{Policy, UnitOfWork};
