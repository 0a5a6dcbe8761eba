//! Shell: the whole system in one thread and in virtual time. The real loops, domains, relay, breakers and
//! SQLite store run under a seed that reorders, repeats, loses, crashes, pauses, poisons and delays.
//! Operators handle the dead letters, and at the end the laws are checked.
//!
//! The seed is the only input: the same seed gives the same run. In reading order, each file uses only
//! earlier ones:
//!
//! - `law`: the laws by number and name; [`fault_profile`]: probabilities of faults
//! - `coverage`: situations that a run reached; `journal`: effects of each batch
//! - `failure_reasons`; `broker`: the streams
//! - `planted_fault`, `instrumented`: faults planted on purpose, which must be found
//! - `sim`: chance, time and notes, shared by all; `process`: crashes and pauses
//! - `invariants`: conditions that hold at every moment
//! - `clock`, `bus`, `store_faults`, `notifications`, `store`: time, broker and database of one process
//! - `instance`: one instance of a service with the engine's own loops; `bank_calls`: calls of payment
//! - `redriver`: admin's redrive loop; `client`: places orders
//! - `deployment`: services with their databases and instances; `world`: all of it, until it is idle
//! - `customer`, `operator`, `redrive_operator`, `director`, `recovery`: people and events
//! - `laws`: conditions that hold when the world is idle

mod bank_calls;
mod broker;
mod bus;
mod client;
mod clock;
mod coverage;
mod customer;
mod deployment;
mod director;
mod failure_reasons;
pub mod fault_profile;
mod instance;
mod instrumented;
mod invariants;
mod journal;
mod law;
mod laws;
mod notifications;
mod operator;
mod planted_fault;
mod process;
mod recovery;
mod redrive_operator;
mod redriver;
mod sim;
mod store;
mod store_faults;
mod world;

pub use coverage::{Coverage, CoveragePoint};
pub use laws::reconciliation::{Databases, reconcile};
pub use planted_fault::PlantedFault;
pub use sim::Trace;

use crate::sim::Sim;
use crate::world::World;

/// A third faster than the system's allocator, for the program and for tests.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Result of one seed.
#[derive(Debug, Clone, Default)]
pub struct RunResult {
    /// Violations, each with the law and what broke it.
    pub broken: Vec<String>,
    /// Situations reached, with counts.
    pub coverage: Coverage,
    /// Trace, if it was to be kept.
    pub notes: Vec<String>,
}

/// Runs one seed.
///
/// # Panics
///
/// If no runtime can be created.
pub fn run(seed: u64, planted_fault: PlantedFault, trace: Trace) -> RunResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => panic!("no runtime: {error}"),
    };
    let (broken, coverage, notes) = runtime.block_on(async {
        let sim = Sim::new(seed, planted_fault, trace);
        run_world(World::new(sim.clone())).await;
        sim.result()
    });
    RunResult { broken, coverage, notes }
}

async fn run_world(mut world: World) {
    world.list_products().await;
    world.wait_until_idle().await;
    world.run_events().await;
    world.wait_until_idle().await;
    laws::check_outage_costs_nothing(&world);
    laws::dead_letters::check_admin_agrees_with_services(&world);
    let failed = laws::failed_sagas(&world);
    world.handle_dead_letters(laws::dead_letters::check_admin_agrees_with_services).await;
    // Redelivers each message that was ever dead-lettered: nothing may follow from that.
    laws::dead_letters::dead_lettered_messages(&world).into_iter().for_each(|index| world.redeliver(index));
    world.wait_until_idle().await;
    // Before the recovery check, which has an outage of its own.
    world.check_breakers();
    laws::check_rejections_open_no_breaker(&world);
    world.check_recovery().await;

    laws::messages::check_no_message_lost(&world);
    laws::messages::check_handled_once(&world);
    laws::messages::check_stores(&world);
    laws::dead_letters::check_admin_agrees_with_services(&world);
    laws::dead_letters::check_replays(&world);
    laws::redrives::check_redrives(&world);
    laws::check_saga_views(&world);
    laws::ledgers::check_orders(&world);
    laws::ledgers::check_stock(&world);
    laws::ledgers::check_catalogue_copy(&world);
    laws::reconciliation::check_no_false_alarm(&world);
    laws::late_charges::check_no_late_charge(&world);
    let repaired = failed.difference(&laws::failed_sagas(&world)).count();
    world.sim.count_many(CoveragePoint::SagaRepaired, repaired as u64);
    let shared = laws::messages::services_shared(&world);
    world.sim.count_many(CoveragePoint::WorkShared, shared as u64);
    world.end();
}
