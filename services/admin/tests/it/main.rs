//! The admin service: its settings, its tables, its policy, its properties; and its routes and driver over a real
//! store.

mod bad_input;
mod books;
mod damaged;
mod edits;
mod filters;
mod finding;
mod given;
mod harness;
mod policy;
mod policy_of_redrives;
mod properties;
mod redrives;
mod republishing;
mod routes;
mod settings;
mod table;
