//! The engine with its loops, over a real store: what becomes of commands, messages, calls and due times.

mod breakers;
mod commands;
mod deterministic;
mod edits;
mod failing;
mod forced;
mod messages;
mod parked;
mod replays;
mod storing;
mod tasks;
mod timers;
mod wanted;

use saga_core::input::{CommandOutcome, Outcome};

use crate::support::{Depot, Reply};

/// The reply of a command that was done.
#[track_caller]
fn done(outcome: CommandOutcome<Depot>) -> Reply {
    let CommandOutcome::Done(reply) = outcome else { panic!("not done: {outcome:?}") };
    reply
}

/// The outcomes' names.
fn names(outcomes: &[Outcome<Depot>]) -> Vec<&'static str> {
    outcomes.iter().map(Outcome::name).collect()
}
