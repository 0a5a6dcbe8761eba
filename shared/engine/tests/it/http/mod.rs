//! HTTP server: origin guard, authorization, metrics, slow clients, TLS, traces.

mod authorization;
mod metrics;
mod origin_guard;
mod server;
mod slow_clients;
mod tls;
mod traces;
