//! Tests of the payment service: state tables, handlers, properties, and the running program.

mod bank_ledger;
mod given;
mod ledger;
mod losses;
mod manual_resolution;
mod openapi;
mod properties;
mod refunds;
mod service;
mod settings;
mod table;
mod verify;
