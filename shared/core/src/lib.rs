//! The pure half of a saga engine: what is decided, and nothing of how it is carried out.
//!
//! No async runtime, broker, database, HTTP or log is among the dependencies of this crate: time, chance and
//! everything that was read arrive as arguments. The modules, in reading order:
//!
//! *What a service is made of*
//! - [`decider`]: a kind of row: a state, the commands it may refuse, the events that change it.
//! - [`message`]: what services tell each other, and the envelope around it.
//! - [`service`]: what a service declares: its rows, its steps, and how it reacts.
//! - [`unit_of_work`]: what one input may read and change, and the policy that says what follows from an event.
//! - [`waiting`]: calls to make, and messages to try again.
//!
//! *How a batch of inputs is decided*
//! - [`input`]: everything that comes in has one form; [`outcome`]: the few ways in which it ends.
//! - [`decision`]: a batch of inputs, decided in memory as one transaction, with the data that goes in and out.
//! - [`dead_letter`]: what nobody could handle, and what operators may ask of it.
//! - [`operator`]: a service that says what operators ask, for systems that have none of their own.
//! - [`ids`]: ids that a re-run repeats.
//! - [`revision`]: which of what is asked again and again is newest.
//!
//! *What happens when something fails*
//! - [`retry`]: what a failed try means, and when the next one is.
//! - [`breaker`]: when to stop calling what does not answer, and how to begin again.
//! - [`admission`]: whether a step may take a message now, and a task make its call.
//! - [`shedding`]: whether something new may begin, with all that is under way.
//! - [`fault`]: the kinds of faults that can be injected on purpose.
//!
//! *What is seen from outside*
//! - [`row`]: rows of any kind, as the engine and the stores handle them.
//! - [`query`]: how rows are looked up.
//! - [`metric`]: what is measured.
//! - [`trace`]: where something stands in a trace.
//! - [`service_stats`]: how far a service has come with everything it was told.
//! - [`health`]: the result of one health check; [`outbox`]: outbox entries as operators see them.
//! - [`secrets`]: what nobody is shown.
//! - [`access`]: who may ask for what over HTTP.
//! - `testing` (feature): what every contract promises on the wire, for its tests.

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
pub mod secrets;
pub mod service;
pub mod service_stats;
pub mod shedding;
pub mod testing;
pub mod trace;
pub mod unit_of_work;
pub mod waiting;

pub use decider::Decider;
pub use message::{Message, MessageType, Received};
pub use row::{RowKey, RowKind};
pub use service::{HandlerError, HandlerResult, Service, Step, Subscription, TaskResult};
pub use unit_of_work::{Policy, UnitOfWork};
