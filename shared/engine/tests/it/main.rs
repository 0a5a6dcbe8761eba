//! Tests of the engine through its public API, on real stores and brokers.
//!
//! A test that shows one of the laws in DESIGN names the law in its comment.

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
