//! Tests of saga-core through its public interface.

mod admission;
mod breaker;
mod decision;
mod rows;
mod secrets;
mod service_stats;
mod shedding;
mod steps;
mod wire;
