//! HTTP server: origin guard, authorization, slow clients, TLS, traces.

mod authorization;
mod origin_guard;
mod server;
mod slow_clients;
mod tls;
mod traces;
