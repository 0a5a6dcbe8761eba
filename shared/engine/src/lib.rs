//! The shell of a saga engine: what carries the decisions of [`saga_core`] over a database and a broker.
//!
//! The modules, in reading order; each knows only those before it:
//! - [`store`]: what is asked of a database, and SQLite and PostgreSQL, which answer.
//! - [`runtime`]: the loops that bring inputs, commit them, publish what they promise and call what they ask for;
//!   the engine, tasks, timers, consumers, the relay, admission and injected faults.
//! - [`nats`]: the broker that the loops know as a trait.
//! - [`host`]: a service as a process: settings, HTTP, health, metrics, what operators ask of it.
//! - `testing` (feature): the kit that tests of services are made with.
//!
//! What has no part in what a service is, and is called once per process, connection or loop, returns a boxed
//! future from a function that is not generic: so it is compiled here, once, and not with every service (an async
//! function is compiled where it is polled; the broker's client alone was a fifth of each program's build).
//!
//! Start at [`Service`](saga_core::Service), what a service declares, and [`host::main`], what is made of it.

#![warn(missing_docs)]

pub mod host;
pub mod nats;
pub mod runtime;
pub mod store;
pub mod testing;

mod unverified;
