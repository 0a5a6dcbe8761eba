//! The doors: who is let in, for how long, and what is said to whoever is not.

mod connections;
mod door;
mod gate;
mod server;
mod tls;
mod traces;
