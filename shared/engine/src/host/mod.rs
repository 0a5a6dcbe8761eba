//! A service as a process: its settings, its HTTP, what operators ask of it, and how it starts and stops.

pub mod app;
pub mod archive;
mod asking;
pub mod condition;
pub mod embedded;
mod healthy;
pub mod http;
pub mod internal_api;
pub mod log;
mod meeting;
pub mod metrics;
mod pages;
mod process;
mod readiness;
pub mod reading;
pub mod resilience;
pub mod retention;
mod run;
pub mod settings;
pub mod shedding;
pub mod standing;
pub mod timekeeping;
pub mod trace;
mod upkeep;
pub mod watched;

pub use process::main;
