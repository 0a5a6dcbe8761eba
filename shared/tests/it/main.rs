//! Tests of the shared crate from outside: what it promises to services, operators and brokers.
//!
//! Where a test shows one of the laws of DESIGN §15, its comment names the law.

mod breaker;
mod broker;
mod engine;
mod faults;
mod purity;
mod relay;
mod settings;
mod store;
mod support;
mod wire;
