//! All entries of one order, and the rules between them. In reading order; each knows only those before it:
//!
//! - `entries`: what every service has of the order
//! - `discrepancies`: violated rules, and the reference that an order is compared with
//! - `goods`: lines, prices and stock
//! - `money`: payment and charges
//! - `facts`: published facts and the saga view
//! - `verdict`: all violations with amount and time

mod discrepancies;
mod entries;
mod facts;
mod goods;
mod money;
mod verdict;

pub use discrepancies::Reference;
pub use entries::Account;
