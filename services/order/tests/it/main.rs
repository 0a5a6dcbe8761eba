//! Pure: the order service's domain: its table, its policy, its properties.

#[path = "../support/domain.rs"]
mod domain;
mod given;
mod policy;
mod properties;
mod table;
#[path = "../support/world.rs"]
#[allow(dead_code, reason = "shared by the tests of all services; each uses a part")]
mod world;
