//! The bank: its table, its policy, its properties, and the running program with faults made on purpose.

mod described;
mod durability;
mod faults;
mod given;
mod ledger;
mod policy;
mod properties;
mod table;
