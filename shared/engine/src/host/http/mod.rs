//! HTTP server of every service: connections, limits, authorization, problems, documentation, graceful stop.
//!
//! Connections: `connections` accepts, serves and closes them. `connection_pool` has time-outs and eviction, and
//! `client_stream` the bytes of one client. `file_limit` bounds their number, `tls` encrypts them.
//!
//! Middleware, outermost first as `server` composes it: `telemetry`, `origin_guard`, `request_body`, `authorization`.
//!
//! `baggage` carries the correlation id between services.
//!
//! For routes: `extract`, `operator`, `idempotency`, `text`, `command_reply`, `problem`. Descriptions: `readiness`, `openapi`, `schemas`.
//!
//! `client` makes the clients of requests to others, with their credentials, and `retry_after` reads when to ask again.

mod authorization;
mod baggage;
mod client;
mod client_stream;
mod command_reply;
mod connection_pool;
mod connections;
mod extract;
mod file_limit;
mod idempotency;
mod late_router;
mod openapi;
mod operator;
mod origin_guard;
mod plain_words;
mod problem;
mod readiness;
mod request_body;
mod request_framing;
mod retry_after;
mod schemas;
mod server;
mod settings;
mod telemetry;
mod text;
mod tls;

pub use authorization::{Authorization, Caller};
pub use client::{HttpClient, client_builder, external_client_builder, record_external};
pub use command_reply::{Replayed, command_reply, keyed_reply};
pub use connections::{Listener, STOP_WITHIN, bind, serve, spawn};
pub use extract::{Body, Params, Prefer, Segment, wait_preference};
pub use idempotency::{IdempotencyKey, has_request_key, idempotency_key, request_key};
pub use late_router::LateRouter;
pub use operator::{ANONYMOUS, Operator, operator_name};
pub use origin_guard::COMMON_ERRORS;
pub use problem::{FieldError, Problem};
pub use readiness::{Check, CheckState, Readiness, ReadinessProbe};
pub use retry_after::{is_passing, retry_after};
pub use server::{TimeLimit, router};
pub use settings::{DRAIN, HttpSettings};
pub use text::{one_line, trimmed, trimmed_if_any};
pub use tls::HttpTlsSettings;
