//! Engine with its loops over a real store: the outcomes of commands, messages, calls and due times.

mod breakers;
mod commands;
mod dead_letters;
mod deterministic;
mod edits;
mod failing;
mod forced;
mod messages;
mod replays;
mod storing;
mod tasks;
mod timers;
mod unneeded_tasks;

use saga_core::input::{CommandOutcome, Outcome};

use crate::support::{Depot, Reply};

/// Reply of a successful command.
#[track_caller]
fn done(outcome: CommandOutcome<Depot>) -> Reply {
    let CommandOutcome::Done(reply) = outcome else { panic!("not done: {outcome:?}") };
    reply
}

/// Names of the outcomes.
fn names(outcomes: &[Outcome<Depot>]) -> Vec<&'static str> {
    outcomes.iter().map(Outcome::name).collect()
}
