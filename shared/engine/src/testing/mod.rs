//! The kit that tests of services are made with. No program calls it, so none holds it; behind a feature all libraries
//! would be compiled twice, for programs without and for tests with it.
//!
//! - [`decider`]: the printed table of a decider, and any sequence of commands.
//! - [`description`]: what a program says of its routes, held against them.
//! - [`histories`]: rows with their histories, for a database that a test begins with.
//! - [`kept`]: what the database of a service would hold.
//! - [`service_under_test`]: one service in memory, for given/when/then; [`then`]: what a test may expect.
//! - [`program`]: a program of the system as a process of its own.

pub mod decider;
pub mod description;
pub mod histories;
pub mod kept;
pub mod program;
pub mod service_under_test;
pub mod then;

pub use self::service_under_test::{
    ATTEMPTS, NOON, ServiceUnderTest, Stimulus, batches_do_what_single_inputs_do, facts_heard,
};
