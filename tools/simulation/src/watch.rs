//! Shell: what must hold at every moment: only a fault is a reason to try again or to park, and breakers count
//! faults alone.

use std::sync::Arc;
use std::time::Duration;

use saga_core::admission::CallEnd;
use saga_core::breaker::State;
use saga_core::dead_letter::DeadLetterOrigin;
use saga_core::fault::FaultKind;
use saga_core::trace::TraceContext;
use saga_engine::runtime::admission::BreakerView;
use saga_engine::runtime::faults::Faults;
use saga_engine::runtime::observer::{InputSettled, Observer, SharedObserver};

use crate::endings::Ending;
use crate::journal::{Batch, Entry, Journal};
use crate::reasons;
use crate::sim::Sim;

pub const BANK: &str = "bank";

/// How a message is found to be unreadable.
const UNREADABLE: [&str; 4] = ["not an envelope", "unknown type", "unknown version", "data is no"];
/// How one is found to be nobody's.
const MISPLACED: &str = "does not belong on";

/// Whether this is a fault, and not something that the business says.
fn is_fault(reason: &str) -> bool {
    let struck = [
        reasons::NOT_NOW,
        reasons::BROKEN,
        reasons::GIVEN_UP,
        reasons::NO_ANSWER,
        reasons::TOO_LATE,
        reasons::DISAGREES,
    ];
    struck.iter().any(|why| reason.contains(why)) || is_poison(reason)
}

/// Whether it could not be read, or was said by nobody who says such things there.
fn is_poison(reason: &str) -> bool {
    UNREADABLE.iter().any(|why| reason.starts_with(why)) || reason.contains(MISPLACED)
}

/// Takes note of a batch that is durable.
pub fn batch(sim: &Sim, batch: &Batch) {
    let kinds = batch.kinds();
    if kinds > 1 {
        sim.count_many(Ending::CommandInMixedBatch, batch.commands);
        sim.count_many(Ending::ResultInMixedBatch, batch.results);
        sim.count_many(Ending::DueInMixedBatch, batch.due);
        sim.count_many(Ending::RetryInMixedBatch, batch.retries);
    }
    sim.count_many(Ending::ThreeKindsInOneBatch, u64::from(kinds > 2));
}

/// Law 6: only a fault is a reason to try again or to park.
pub fn entry(sim: &Sim, entry: &Entry) {
    let parked = entry.parked.iter().map(|(.., reason)| reason);
    if let Some(reason) = entry.retried.iter().chain(parked).find(|reason| !is_fault(reason)) {
        sim.object(format!("law 6: tried again or parked because of {reason:?}"));
    }
    sim.count_many(Ending::Retried, entry.retried.len() as u64);
    sim.count_many(Ending::Parked, entry.parked.len() as u64);
    for (step, origin, reason) in &entry.parked {
        sim.count_many(Ending::PoisonParked, u64::from(is_poison(reason)));
        sim.count_many(Ending::GivenUpByBroker, u64::from(reason.contains(reasons::GIVEN_UP)));
        sim.count_many(Ending::RefundParked, u64::from(*origin == DeadLetterOrigin::Task));
        sim.count_many(Ending::CommandParked, u64::from(step.ends_with("-operations")));
    }
}

/// How often a step of this instance was struck, at most, by a fault that its breaker may count. Nobody knows how
/// many copies of a message a batch had that could not be stored.
pub fn struck(journal: &Journal, faults: &Faults) -> u64 {
    if journal.has_store_failed { u64::MAX } else { journal.injected + hits(faults) }
}

/// How often injected faults have struck that its breaker may count.
pub fn hits(faults: &Faults) -> u64 {
    let active = faults.view().faults.into_iter();
    active.filter(|fault| fault.kind == FaultKind::FAIL_TRANSIENTLY.name).map(|fault| fault.hits).sum()
}

/// Law 6: the breakers of one instance count what struck it, and nothing else.
pub fn breakers(sim: &Sim, struck: u64, views: &[BreakerView]) {
    let (of_bank, of_steps): (Vec<_>, Vec<_>) = views.iter().partition(|view| view.name == BANK);
    for (views, faults) in [(of_bank, sim.seen(Ending::CallFailed)), (of_steps, struck)] {
        let failures: u64 = views.iter().map(|view| view.failures).sum();
        if failures > faults {
            let names: Vec<_> = views.iter().map(|view| &view.name).collect();
            sim.object(format!("law 6: breakers counted {failures} failures of {faults}: {names:?}"));
        }
        for transition in views.iter().flat_map(|view| &view.transitions) {
            match transition.to {
                State::Open => sim.count(Ending::BreakerOpened),
                State::HalfOpen => sim.count(Ending::HalfOpenProbe),
                State::Closed => sim.count(Ending::BreakerClosed),
                State::ForcedOpen | State::ForcedClosed => {}
            }
        }
    }
}

/// Hears what the loops of one process do.
#[must_use]
pub fn observer(sim: Sim) -> SharedObserver {
    Arc::new(Ears(sim))
}

struct Ears(Sim);

impl Observer for Ears {
    fn input_settled(&self, settled: &InputSettled<'_>) {
        self.0.count_many(Ending::Rejected, u64::from(settled.outcome == "rejected"));
    }

    fn call_ended(&self, _: &str, end: CallEnd, _: Duration, _: Option<TraceContext>) {
        self.0.count_many(Ending::CallFailed, u64::from(end != CallEnd::Answered));
    }
}
