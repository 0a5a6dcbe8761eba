//! The shell of a saga engine: runs the decisions of [`saga_core`] over a database and a broker.
//!
//! Modules in reading order; each depends only on those before it:
//! - [`store`]: the traits of a database, and their implementations for SQLite and PostgreSQL.
//! - [`runtime`]: the loops: engine, consumers, relay, task runner and timers, with admission and injected faults.
//! - [`nats`]: the broker behind the traits of the loops.
//! - [`host`]: a service as a process: settings, HTTP, health, metrics and operator commands.
//! - `testing` (feature): the kit for tests of services.
//!
//! Functions that do not depend on the service and run once per process, connection or loop return a boxed future, and are
//! not generic. An async function is compiled where it is polled: as generic ones, the broker's client alone would take a
//! fifth of the build time of each service.
//!
//! Start at [`Service`](saga_core::Service), which a service implements, and [`host::main`], which runs it.

#![warn(missing_docs)]

pub mod host;
pub mod nats;
pub mod runtime;
pub mod store;
pub mod testing;

mod protected_file;
pub mod reloaded;
pub mod trust;
mod unverified_tls;
