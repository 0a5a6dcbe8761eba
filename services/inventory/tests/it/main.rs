//! Tests of the inventory service: state tables, handlers, properties, and the running program.

mod database;
mod given;
mod ledger;
mod openapi;
mod properties;
mod replenishment;
mod reserved_gauge;
mod service;
mod startup;
mod table;
