//! Tests of the engine from outside: what it promises to services, operators and brokers.
//!
//! Where a test shows one of the laws of the README, its comment names the law.

mod admission;
mod archive;
mod broker;
mod engine;
mod faults;
mod held_up;
mod http;
mod log_lines;
mod metrics;
mod overrides;
mod parcels;
mod queries;
mod relay;
mod settings;
mod standstill;
mod store;
mod support;
mod traces;
