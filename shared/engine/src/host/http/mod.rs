//! HTTP for every service: one error form, limits, health, metrics, documentation, graceful stop.

mod answer;
mod extract;
mod idempotency;
mod problem;
mod readiness;
mod server;

pub use answer::answered;
pub use extract::{Body, Params, Segment, wait_preference};
pub use idempotency::request_key;
pub use problem::{FieldError, Problem};
pub use readiness::{Check, CheckState, Health, Readiness};
pub use server::{HttpSettings, bind, router, serve, spawn};
