//! Pure: the policy of the saga view: metrics, and requests of manual resolution to payment.

use saga_core::dead_letter::OperatorMessage;
use saga_core::metric::Measurement;
use saga_core::unit_of_work::{Policy, UnitOfWork};

use crate::fact::{Fact, FactType};
use crate::metrics;
use crate::order::{CancelReason, order_id};
use crate::payment::ManualResolutionRequested;
use crate::saga::SagaStatus;
use crate::saga_event::SagaEvent;
use crate::saga_view::SagaView;

/// Whenever a saga is resolved manually, or that is withdrawn, ask payment to stop or resume calls to the bank.
impl Policy<OperatorMessage<Fact>> for SagaView {
    fn whenever(
        event: &SagaEvent,
        id: &str,
        before: &Self,
        work: &mut UnitOfWork<'_, OperatorMessage<Fact>>,
    ) {
        let (resolved, revision) = match event {
            SagaEvent::FactRecorded(_) => {
                let measured = measured(before, work.row::<Self>(id));
                return measured.into_iter().for_each(|measurement| work.measure(measurement));
            }
            SagaEvent::ResolvedManually(resolution) => (true, resolution.revision),
            SagaEvent::ResolutionWithdrawn(withdrawal) => (false, withdrawal.revision),
        };
        let cancelled = work.row::<Self>(id).has(FactType::OrderCancelled);
        let asked = ManualResolutionRequested { order: order_id(id), resolved, revision, cancelled };
        work.publish(OperatorMessage::Fact(asked.into()));
    }
}

/// Measures the progress made by the last fact.
fn measured(before: &SagaView, after: &SagaView) -> Vec<Measurement> {
    let at = |fact: FactType| after.facts.get(fact.name()).copied();
    let is_news = |fact: FactType| after.has(fact) && !before.has(fact);
    let one = |metric, labels: &[&str]| Measurement::more(metric, labels, 1);
    let (created, confirmed) = (FactType::OrderCreated, FactType::OrderConfirmed);
    let reason = after.cancelled_because.map_or("unknown", CancelReason::as_str);
    let mut measured = Vec::new();
    if is_news(created) {
        measured.push(one(&metrics::STARTED, &[]));
    }
    if is_news(confirmed) {
        measured.push(one(&metrics::COMPLETED, &[]));
    }
    if is_news(FactType::OrderCancelled) {
        measured.push(one(&metrics::CANCELLED, &[reason]));
        let is_late = after.cancelled_because == Some(CancelReason::TimedOut);
        measured.extend(is_late.then(|| one(&metrics::TIMED_OUT, &[])));
    }
    // Whichever of the two arrives last.
    if (is_news(created) || is_news(confirmed))
        && let (Some(began), Some(ended)) = (at(created), at(confirmed))
    {
        measured.push(Measurement::took(&metrics::DURATION, &["completed"], ended.duration_since(began)));
    }
    let (was, is) = (before.status_without_resolution(), after.status_without_resolution());
    if is == SagaStatus::CompensationStuck && was != is {
        measured.push(one(&metrics::COMPENSATION_STUCK, &[]));
    }
    if is == SagaStatus::Compensated && was != is {
        measured.push(one(&metrics::COMPENSATED, &[reason]));
        let (began, cancelled) = (at(created), at(FactType::OrderCancelled));
        if let (Some(began), Some(cancelled), Some(ended)) = (began, cancelled, after.last_fact_at()) {
            let (whole, compensation) = (ended.duration_since(began), ended.duration_since(cancelled));
            measured.push(Measurement::took(&metrics::DURATION, &["compensated"], whole));
            measured.push(Measurement::took(&metrics::COMPENSATION_DURATION, &[], compensation));
        }
    }
    measured
}
