//! The engine with its loops, over a real store: what becomes of commands, messages, calls and due times.

mod breakers;
mod commands;
mod deaths;
mod deterministic;
mod faults;
mod messages;
mod parked;
mod replays;
mod tasks;
mod timers;

use shared::engine::Outcome;

use crate::support::shop::{Reply, Shop};

/// The reply of an input that was done.
#[track_caller]
fn done(outcome: Outcome<Shop>) -> Reply {
    let Outcome::Done(reply) = outcome else { panic!("not done: {outcome:?}") };
    reply
}

/// The outcomes' names.
fn names(outcomes: &[Outcome<Shop>]) -> Vec<&'static str> {
    outcomes.iter().map(Outcome::name).collect()
}
