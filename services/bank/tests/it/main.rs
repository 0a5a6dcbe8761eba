//! The bank: its table, its policy, its properties, and the running program with faults made on purpose.

#[path = "../../../order/tests/support/domain.rs"]
mod domain;
mod faults;
mod given;
mod policy;
#[path = "../../../order/tests/support/program.rs"]
#[allow(dead_code, reason = "shared by the tests of several services; each uses a part")]
mod program;
mod properties;
mod table;
#[path = "../../../order/tests/support/world.rs"]
#[allow(dead_code, reason = "shared by the tests of all services; each uses a part")]
mod world;
