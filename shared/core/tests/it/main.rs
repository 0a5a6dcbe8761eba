//! Tests of the pure half from outside: breakers, steps, batches, and the JSON of the engine's own messages.

mod admission;
mod breaker;
mod decision;
mod rows;
mod secrets;
mod service_stats;
mod steps;
mod wire;
