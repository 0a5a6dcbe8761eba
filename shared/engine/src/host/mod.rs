//! A service as a process: settings, HTTP, health, metrics, logs, traces, and the phases of its life.
//!
//! Start and stop: [`main`] parses the command line; `run` has the phases, `stop` the last one. [`app`] has a service's declaration and its
//! running parts, [`settings`] all settings. [`embedded`] starts a service inside another program.
//!
//! Messaging: [`messaging`] is its state. `messaging_loops` starts relay and consumers after `startup_check`. [`clock_sync`] follows the broker's clock.
//!
//! Health: `readiness` runs the checks, [`check_history`] keeps them, [`health_report`] adds counts. `health_probe` asks a
//! running service. [`in_flight`] limits new sagas.
//!
//! HTTP: [`http`] is the server. [`internal_api`] has its routes for operators' programs, and [`queries`] what routes read.
//!
//! Data: [`archive`] and [`retention_loop`] purge old rows.
//!
//! Telemetry: [`log`], [`metrics`] and [`trace`]. [`reloaded`](crate::reloaded) reads changed files again.

pub mod app;
pub mod archive;
mod broker_retry;
pub mod check_history;
pub mod clock_sync;
mod disk_check;
pub mod embedded;
mod health_probe;
pub mod health_report;
pub mod http;
pub mod in_flight;
pub mod internal_api;
pub mod log;
pub mod messaging;
mod messaging_loops;
pub mod metrics;
mod process;
pub mod queries;
mod readiness;
pub mod resilience;
pub mod retention;
pub mod retention_loop;
mod run;
pub mod settings;
mod startup_check;
mod stop;
pub mod trace;

pub use process::main;
