//! Tests of the order service: state tables, handlers, properties, and the running program.

mod given;
mod ledger;
mod openapi;
mod properties;
mod service;
mod startup;
mod table;
