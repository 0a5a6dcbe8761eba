//! Pure: the payment service's domain: its table, its policy, its properties.

#[path = "../../../order/tests/support/domain.rs"]
mod domain;
mod given;
mod policy;
mod properties;
mod table;
#[path = "../../../order/tests/support/world.rs"]
#[allow(dead_code, reason = "shared by the tests of all services; each uses a part")]
mod world;
