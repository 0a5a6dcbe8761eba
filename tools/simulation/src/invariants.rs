//! Shell: invariants that hold at every moment: only faults cause retries and dead letters, and breakers
//! count faults only.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use saga_core::admission::CallResult;
use saga_core::breaker::State;
use saga_core::dead_letter::DeadLetterOrigin;
use saga_core::fault::FaultKind;
use saga_core::trace::TraceContext;
use saga_engine::runtime::admission::BreakerView;
use saga_engine::runtime::injected_faults::InjectedFaults;
use saga_engine::runtime::observer::{Observer, ProcessedInput, SharedObserver};

use crate::coverage::CoveragePoint;
use crate::failure_reasons;
use crate::journal::{BatchEffects, BatchInputs, Journal};
use crate::law::Law;
use crate::sim::Sim;

pub const BANK: &str = "bank";

/// Maximum difference of the clock that set a deadline to the clock that judges it.
const MAX_CLOCK_ERROR: SignedDuration = SignedDuration::from_secs(10);

/// Reasons for an unreadable message.
const UNREADABLE: [&str; 4] = ["not an envelope", "unknown type", "unknown version", "data is no"];
/// Reason for a message on a wrong subject.
const MISPLACED: &str = "does not belong on";

/// True for a fault, false for a rejection by the business.
fn is_fault(reason: &str) -> bool {
    let faults = [
        failure_reasons::TRANSIENT,
        failure_reasons::PERMANENT,
        failure_reasons::MAX_DELIVERIES,
        failure_reasons::BANK_FAILED,
        failure_reasons::CALL_TIMED_OUT,
        failure_reasons::LINES_DIFFER,
    ];
    faults.iter().any(|why| reason.contains(why)) || is_poison(reason)
}

/// True for an unreadable message, and for one that nobody may publish there.
fn is_poison(reason: &str) -> bool {
    UNREADABLE.iter().any(|why| reason.starts_with(why)) || reason.contains(MISPLACED)
}

/// Counts the kinds of inputs in a committed batch.
pub fn record_batch(sim: &Sim, batch: &BatchInputs) {
    let kinds = batch.kinds();
    if kinds > 1 {
        sim.count_many(CoveragePoint::CommandInMixedBatch, batch.commands);
        sim.count_many(CoveragePoint::ResultInMixedBatch, batch.results);
        sim.count_many(CoveragePoint::DueInMixedBatch, batch.due);
        sim.count_many(CoveragePoint::RetryInMixedBatch, batch.retries);
    }
    sim.count_if(CoveragePoint::ThreeKindsInOneBatch, kinds > 2);
}

/// Guarantee 6: only faults cause retries and dead letters.
pub fn check_entry(sim: &Sim, entry: &BatchEffects) {
    let dead_lettered = entry.dead_lettered.iter().map(|(.., reason)| reason);
    if let Some(reason) = entry.retried.iter().chain(dead_lettered).find(|reason| !is_fault(reason)) {
        sim.breaks(Law::RejectionIsNoFault, format!("retried or dead-lettered because of {reason:?}"));
    }
    sim.count_many(CoveragePoint::Retried, entry.retried.len() as u64);
    sim.count_many(CoveragePoint::DeadLettered, entry.dead_lettered.len() as u64);
    for (step, origin, reason) in &entry.dead_lettered {
        sim.count_if(CoveragePoint::PoisonDeadLettered, is_poison(reason));
        sim.count_if(CoveragePoint::MaxDeliveriesReached, reason.contains(failure_reasons::MAX_DELIVERIES));
        sim.count_if(CoveragePoint::RefundDeadLettered, *origin == DeadLetterOrigin::Task);
        sim.count_if(CoveragePoint::OperatorCommandDeadLettered, step.ends_with("-operations"));
    }
}

/// No order is cancelled before its deadline, whatever the clocks say.
pub fn check_deadlines(sim: &Sim, journal: &mut Journal, entry: &BatchEffects) {
    journal.deadlines.extend(entry.placed.iter().cloned());
    for order in &entry.timed_out {
        let deadline = journal.deadlines.get(order).copied().unwrap_or(Timestamp::MIN);
        let early = deadline.duration_since(sim.now());
        if early > MAX_CLOCK_ERROR {
            sim.breaks(Law::OrderEnds, format!("order {order} timed out {early:#} before its deadline"));
        }
        let has_jumped = sim.count_of(CoveragePoint::BrokerClockJumped) > 0;
        sim.count_if(CoveragePoint::TimedOutAfterJump, has_jumped);
    }
}

/// Upper bound of the injected failures that this instance's breakers may count. Unbounded after a store
/// fault, since the copies of messages in the failed batch are unknown.
pub fn injected_failures(journal: &Journal, faults: &InjectedFaults) -> u64 {
    if journal.has_store_failed { u64::MAX } else { journal.injected + hits(faults) }
}

/// Number of injected failures that a breaker may count.
pub fn hits(faults: &InjectedFaults) -> u64 {
    let active = faults.view().faults.into_iter();
    active.filter(|fault| fault.kind == FaultKind::FAIL_TRANSIENTLY.name).map(|fault| fault.hits).sum()
}

/// Guarantee 6: the breakers of an instance count faults only.
pub fn check_breakers(sim: &Sim, injected: u64, views: &[BreakerView]) {
    let (of_bank, of_steps): (Vec<_>, Vec<_>) = views.iter().partition(|view| view.name == BANK);
    for (views, faults) in [(of_bank, sim.count_of(CoveragePoint::CallFailed)), (of_steps, injected)] {
        let failures: u64 = views.iter().map(|view| view.failures).sum();
        if failures > faults {
            let names: Vec<_> = views.iter().map(|view| &view.name).collect();
            let broken = format!("breakers counted {failures} failures, of {faults} at most: {names:?}");
            sim.breaks(Law::RejectionIsNoFault, broken);
        }
        for transition in views.iter().flat_map(|view| &view.transitions) {
            match transition.to {
                State::Open => sim.count(CoveragePoint::BreakerOpened),
                State::HalfOpen => sim.count(CoveragePoint::HalfOpenProbe),
                State::Closed => sim.count(CoveragePoint::BreakerClosed),
                State::ForcedOpen | State::ForcedClosed => {}
            }
        }
    }
}

/// Observes the loops of one process.
pub fn observer(sim: Sim) -> SharedObserver {
    Arc::new(InvariantObserver(sim))
}

struct InvariantObserver(Sim);

impl Observer for InvariantObserver {
    fn input_processed(&self, processed: &ProcessedInput<'_>) {
        self.0.count_if(CoveragePoint::Rejected, processed.outcome == "rejected");
    }

    fn call_ended(&self, _: &str, end: CallResult, _: Duration, _: Option<TraceContext>) {
        self.0.count_if(CoveragePoint::CallFailed, end != CallResult::Answered);
    }
}
