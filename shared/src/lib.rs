//! Everything reliable about the order saga: what services share, and all that they share.
//!
//! Two layers. Pure modules decide: no IO, clock, chance or environment, those arrive as arguments. Shell
//! modules carry: the engine runs what pure code decided as one transaction a batch, the relay publishes
//! what was promised, consumers and timers bring inputs.
//!
//! Start at [`service::Service`], what a service declares, and [`app::run`](app::main), what is made of it.

pub mod app;
pub mod books;
pub mod bus;
pub mod contract;
pub mod decider;
pub mod engine;
pub mod envelope;
pub mod faults;
pub mod gate;
pub mod http;
pub mod ids;
pub mod metrics;
pub mod money;
pub mod operator;
pub mod relay;
pub mod resilience;
pub mod retry;
pub mod row;
pub mod saga;
pub mod service;
pub mod settings;
pub mod store;
pub mod unit;
