//! HTTP for every service: one error form, limits, health, metrics, documentation, graceful stop.
//!
//! - who is connected: `connections`, `tls`, `wire` (the bytes), `seats` (who gives way), `files` (how many there may be)
//! - what stands before a route, outermost first as `server` has it: `door` (what a browser could be tricked into),
//!   `receiving` (all of a request is there), `gate` (tokens)
//! - what routes read and answer: `extract`, `idempotency`, `text`, `answer`, `problem`
//! - what a service tells of itself: `readiness`, `openapi`, `schemas`
//! - `settings`; `outgoing`: how this service asks others

mod answer;
mod connections;
mod door;
mod extract;
mod files;
mod gate;
mod idempotency;
mod measured;
mod openapi;
mod outgoing;
mod problem;
mod readiness;
mod receiving;
mod schemas;
mod seats;
mod server;
mod settings;
mod text;
mod tls;
mod wire;

pub use answer::answered;
pub use connections::{Listener, STOP_WITHIN, bind, serve, spawn};
pub use door::REFUSALS;
pub use extract::{Body, Params, Prefer, Segment, wait_preference};
pub use gate::{Caller, Gate};
pub use idempotency::{IdempotencyKey, request_key};
pub use outgoing::Outgoing;
pub use problem::{FieldError, Problem};
pub use readiness::{Check, CheckState, Health, Readiness};
pub use server::{TimeLimit, router};
pub use settings::HttpSettings;
pub use text::{one_line, trimmed, trimmed_if_any};
pub use tls::HttpTlsSettings;
