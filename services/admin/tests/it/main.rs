//! The admin service: its settings, its tables, its policy, its properties; and its routes and driver over a real
//! store.

mod bad_input;
mod books;
mod canaries;
mod damaged;
mod damaged_redrives;
mod drivers;
mod edits;
mod edits_and_redrives;
mod filters;
mod finding;
mod forced_redrives;
mod given;
mod harness;
mod internal;
mod many;
mod overview;
mod policy;
mod policy_of_redrives;
mod properties;
mod redrives;
mod republishing;
mod routes;
mod settings;
mod table;
mod worths;
