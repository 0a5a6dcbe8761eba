//! A service as a process: settings, HTTP, health, metrics, logs, traces, and the phases of its life.
//!
//! - start and stop: [`main`] (`process`), `run` (the phases), [`app`] (a service's declaration and its running parts),
//!   [`settings`] with [`resilience`], [`retention`] and `clock_sync`; [`embedded`] starts a service inside another program
//! - messaging: [`messaging`] starts relay and consumers after `startup_check`; `broker_retry`
//! - health: `readiness` runs the checks, [`check_history`] keeps them, [`health_report`] adds counts; `health_probe` asks
//!   a running service; [`in_flight`] limits new sagas
//! - HTTP: [`http`] is the server; [`internal_api`] its routes for operators' programs; [`queries`] what routes read
//! - data: [`archive`] and `retention_loop` purge what is old
//! - telemetry: [`log`], [`metrics`], [`trace`]; [`reloaded`]: files that are read again when they change

pub mod app;
pub mod archive;
mod broker_retry;
pub mod check_history;
pub mod clock_sync;
pub mod embedded;
mod health_probe;
pub mod health_report;
pub mod http;
pub mod in_flight;
pub mod internal_api;
pub mod log;
pub mod messaging;
pub mod metrics;
mod process;
pub mod queries;
mod readiness;
pub mod reloaded;
pub mod resilience;
pub mod retention;
mod retention_loop;
mod run;
pub mod settings;
mod startup_check;
pub mod trace;

pub use process::main;
