//! Pure: all that is known of one order, field by field, and what must hold between it. In reading order; each knows only
//! what stands before it:
//!
//! - `known`: what everybody says of it
//! - `faults`: what it is held against, and what breaks a rule
//! - `goods`: what was ordered, for how much, and what is held of it
//! - `money`: what was paid, and what the bank says of that
//! - `telling`: what was said of it, and what was heard
//! - `judging`: all of that together, with how much and since when

mod faults;
mod goods;
mod judging;
mod known;
mod money;
mod telling;

pub use faults::Standard;
pub use known::Account;
