//! Shell: the whole system in one thread: the real engine core, relay, domains, breakers and SQLite store under a
//! seeded scheduler that reorders, repeats, loses, crashes, poisons and delays, with operators who mend what is
//! parked; then it checks the laws.
//!
//! A seed is the whole input: the same seed gives the same run. [`world`] is what can happen, [`weather`] how
//! often things go wrong, [`node`] one service with its [`breakers`], `network` and `publishing` what lies
//! between, [`broker`] the streams, [`operator`] who looks at dead letters, [`journal`] what became of every
//! message, [`laws`] what must hold in the end, [`endings`] what a run can come to, [`sabotage`] faults that must
//! be found.

mod bank;
pub mod breakers;
pub mod broker;
mod customer;
pub mod endings;
pub mod journal;
pub mod laws;
mod network;
pub mod node;
pub mod operator;
mod publishing;
pub mod sabotage;
pub mod tampered;
pub mod trouble;
pub mod weather;
pub mod world;

pub use endings::{Ending, Endings};
pub use sabotage::Sabotage;

/// What a run came to.
#[derive(Debug, Clone, Default)]
pub struct RunResult {
    /// Laws that did not hold, each with what broke it.
    pub broken: Vec<String>,
    /// Endings reached.
    pub endings: Endings,
}

/// Runs one seed.
#[must_use]
pub fn run(seed: u64, sabotage: Sabotage, trace: bool) -> RunResult {
    let mut world = world::World::new(seed, sabotage, trace);
    world.live();
    world.come_to_rest();
    laws::an_outage_does_no_harm(&mut world);
    laws::letters::admin_and_services_agree(&mut world);
    let failed = laws::failed_sagas(&world);
    world.mend();
    world.deliver_all_that_was_parked();

    laws::messages::no_message_is_dropped(&mut world);
    laws::messages::no_message_is_handled_twice(&mut world);
    laws::messages::the_stores_are_in_order(&mut world);
    laws::messages::breakers_count_faults_alone(&mut world);
    laws::letters::admin_and_services_agree(&mut world);
    laws::letters::replays_reach_their_step_alone(&mut world);
    laws::the_books_balance(&mut world);
    let mended = failed.difference(&laws::failed_sagas(&world)).count();
    world.seen.count_many(Ending::SagaMended, mended as u64);
    RunResult { broken: world.objections, endings: world.seen }
}
