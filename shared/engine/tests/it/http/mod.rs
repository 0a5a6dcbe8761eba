//! The doors: who is let in, for how long, and what is said to whoever is not.

mod authorization;
mod origin_guard;
mod server;
mod slow_clients;
mod tls;
mod traces;
