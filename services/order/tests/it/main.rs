//! Pure: the order service's domain: its table, its policy, its properties.

mod given;
mod ledger;
mod policy;
mod properties;
mod startup;
mod table;
