//! Shell: the whole system in one thread and in virtual time: the real loops, domains, relay, breakers and SQLite
//! store under a seed that reorders, repeats, loses, crashes, stops, poisons and delays, with operators who mend what
//! is parked; then it checks the laws.
//!
//! A seed is the whole input: the same seed gives the same run. In reading order; each knows only what stands
//! before it:
//! - [`weather`]: how often things go wrong; `endings`: what a run can come to; `journal`: what became of every
//!   message; `reasons`: what can be wrong with one; `broker`: the streams
//! - `tampered`, `sabotage`: faults that must be found
//! - `sim`: chance, time and notes, which all share; `process`: when one dies or stands still
//! - `watch`: what must hold at every moment
//! - `clock`, `bus`, `spoiler`, `sayings`, `store`: the time, broker and database that a process is given, and what it
//!   hears of those that share the database
//! - `instance`: one instance of a service, whose loops are the engine's own; `bank`: what payment calls;
//!   `redriver`: what runs in admin beside them; `client`: who orders
//! - `world`: everything there is, and how it comes to rest
//! - `customer`, `operator`, `redrives`, `director`, `latecomers`: what people do, and what happens
//! - `laws`: what must hold when all is quiet

mod bank;
mod broker;
mod bus;
mod client;
mod clock;
mod customer;
mod director;
mod endings;
mod instance;
mod journal;
mod latecomers;
mod laws;
mod operator;
mod process;
mod reasons;
mod redriver;
mod redrives;
mod sabotage;
mod sayings;
mod sim;
mod spoiler;
mod store;
mod tampered;
mod watch;
pub mod weather;
mod world;

pub use endings::{Ending, Endings};
pub use sabotage::Sabotage;
pub use sim::Trace;

use crate::sim::Sim;
use crate::world::World;

/// For whoever runs worlds, be it the program or a test: a third quicker than with the system's.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What a run came to.
#[derive(Debug, Clone, Default)]
pub struct RunResult {
    /// Laws that did not hold, each with what broke it.
    pub broken: Vec<String>,
    /// How often each ending was reached.
    pub endings: Endings,
    /// Everything that happened, if it was to be kept.
    pub notes: Vec<String>,
}

/// Runs one seed.
///
/// # Panics
/// When there is no runtime to be had.
#[must_use]
pub fn run(seed: u64, sabotage: Sabotage, trace: Trace) -> RunResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => panic!("no runtime: {error}"),
    };
    let (broken, endings, notes) = runtime.block_on(async {
        let sim = Sim::new(seed, sabotage, trace);
        live(World::new(sim.clone())).await;
        sim.result()
    });
    RunResult { broken, endings, notes }
}

async fn live(mut world: World) {
    world.list_products().await;
    world.come_to_rest().await;
    world.live().await;
    world.come_to_rest().await;
    laws::an_outage_does_no_harm(&world);
    laws::dead_letters::admin_and_services_agree(&world);
    let failed = laws::failed_sagas(&world);
    world.mend(laws::dead_letters::admin_and_services_agree).await;
    // Once more everything that was ever parked: whatever became of it, nothing may follow from that.
    laws::dead_letters::places(&world).into_iter().for_each(|index| world.deliver_again(index));
    world.come_to_rest().await;
    // Before the latecomers, who meet an outage of their own.
    world.look_at_breakers();
    laws::a_business_no_opens_no_breaker(&world);
    world.serve_latecomers().await;

    laws::messages::no_message_is_dropped(&world);
    laws::messages::no_message_is_handled_twice(&world);
    laws::messages::the_stores_are_in_order(&world);
    laws::dead_letters::admin_and_services_agree(&world);
    laws::dead_letters::replays_reach_their_step_alone(&world);
    laws::redrives::redrives_keep_to_their_plans(&world);
    laws::every_order_is_seen(&world);
    laws::ledgers::every_order_came_to_what_it_says(&world);
    laws::ledgers::every_piece_is_accounted_for(&world);
    laws::ledgers::the_catalogue_was_copied(&world);
    laws::audit::the_reconciliation_finds_nothing(&world);
    laws::charges::nobody_is_charged_for_what_is_over(&world);
    let mended = failed.difference(&laws::failed_sagas(&world)).count();
    world.sim.count_many(Ending::SagaMended, mended as u64);
    let shared = laws::messages::services_shared(&world);
    world.sim.count_many(Ending::WorkShared, shared as u64);
    world.end();
}
