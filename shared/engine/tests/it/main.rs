//! Tests of the engine through its public API, on real stores and brokers.
//!
//! A test that shows one of the laws in DESIGN names the law in its comment.

mod admission;
mod archive;
mod broker;
mod consumer_stall;
mod engine;
mod http;
mod in_flight;
mod injected_faults;
mod log_lines;
mod metrics;
mod overrides;
mod parcels;
mod publish_stall;
mod queries;
mod relay;
mod settings;
mod store;
mod support;
mod traces;
