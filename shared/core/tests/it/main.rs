//! Tests of the pure half from outside: breakers, steps, and the JSON of the engine's own messages.

mod admission;
mod breaker;
mod steps;
mod wire;
