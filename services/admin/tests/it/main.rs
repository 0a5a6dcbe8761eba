//! The admin service: its tables, its policy, its properties; and its routes and driver over a real store.

mod bad_input;
#[path = "../../../order/tests/support/domain.rs"]
mod domain;
mod given;
mod house;
mod policy;
mod properties;
mod redrives;
mod routes;
mod table;
#[path = "../../../order/tests/support/world.rs"]
#[allow(dead_code, reason = "shared by the tests of all services; each uses a part")]
mod world;
