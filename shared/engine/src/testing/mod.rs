//! Test kit for services. No program calls it, so the linker drops it. A feature would compile all libraries twice.
//!
//! - [`decider`]: printed state tables of a decider, and arbitrary sequences of commands.
//! - [`description`]: checks the OpenAPI description of a running program.
//! - [`histories`]: rows with their histories, for a database at the start of a test.
//! - [`in_memory_store`]: the in-memory store of a service under test.
//! - [`service_under_test`]: one service in memory, for given/when/then; [`then`]: its assertions.
//! - [`program`]: a program of the system as a child process.

pub mod decider;
pub mod description;
pub mod histories;
pub mod in_memory_store;
pub mod program;
pub mod service_under_test;
pub mod then;

pub use self::service_under_test::{
    ATTEMPTS, NOON, ServiceUnderTest, Stimulus, batches_do_what_single_inputs_do, consumed_facts,
};
