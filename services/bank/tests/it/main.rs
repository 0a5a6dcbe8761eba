//! Tests of the bank: state table, handlers, properties, and the running program with injected faults.

mod durability;
mod faults;
mod given;
mod ledger;
mod ledger_id;
mod openapi;
mod properties;
mod service;
mod table;
