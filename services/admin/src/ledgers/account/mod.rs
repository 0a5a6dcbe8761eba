//! All entries of one order, and the rules between them. In reading order; each knows only those before it:
//!
//! - `entries`: what every service has of the order
//! - `broken_rules`: the rules that an order breaks, and the reference that an order is compared with
//! - `goods`: lines, prices and stock
//! - `money`: payment and charges
//! - `facts`: published facts and the saga view
//! - `violations`: all violations with amount and time

mod broken_rules;
mod entries;
mod facts;
mod goods;
mod money;
mod violations;

pub use broken_rules::Reference;
pub use entries::Account;
