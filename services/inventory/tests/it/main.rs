//! The inventory service: its table, its policy, its properties, and the running program's monitor.

mod described;
mod given;
mod held;
mod ledger;
mod monitor;
mod policy;
mod properties;
mod startup;
mod table;
