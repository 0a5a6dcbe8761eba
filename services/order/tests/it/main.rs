//! Pure: the order service's domain: its table, its policy, its properties.

mod described;
mod given;
mod ledger;
mod policy;
mod properties;
mod startup;
mod table;
