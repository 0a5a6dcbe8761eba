//! The payment service: its table, its policy, its properties, and the running program with its settings.

mod described;
mod given;
mod ledger;
mod policy;
mod properties;
mod settings;
mod settled;
mod table;
mod verifying;
