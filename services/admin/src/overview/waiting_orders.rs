//! Pure: the orders that wait while a finding is open: how many, their money, their first deadline, and how to extend them.

use std::collections::{BTreeMap, BTreeSet};

use admin_api::overview::{Finding, FindingCode, Impact, Overview};
use contract::money::total_by_currency;
use contract::saga::{ORDER_SAGA, StepRole, role_of, steps};
use contract::topology::{OPERATOR, named};

use super::readiness_findings::OVERLOAD;
use crate::sagas::sums::WaitingOrders;

/// Number of orders that one request extends at most.
pub const MAX_EXTENDED: usize = 100_000;

/// Waiting orders by the step that they wait for.
pub type ByStep = BTreeMap<&'static str, WaitingOrders>;

/// Steps that findings delay, whose waiting orders are to be read.
pub fn delayed_steps(findings: &[Finding]) -> BTreeSet<&'static str> {
    findings.iter().flat_map(steps_of).collect()
}

/// Adds the waiting orders to each finding that delays them.
pub fn with_waiting_orders(overview: Overview, waiting: &ByStep) -> Overview {
    // Without the broker, order does not hear of an extension in time.
    let can_extend = !overview.findings.iter().any(|found| found.code == FindingCode::BrokerUnavailable);
    let in_flight = overview.services.iter().find_map(|status| status.in_flight);
    let findings = overview.findings.into_iter().map(|finding| match in_flight {
        // Admin does not hear of orders that are accepted meanwhile, and order counts its own.
        Some(orders @ 1..) if finding.code == FindingCode::BrokerUnavailable => {
            let impact = Impact { orders: Some(orders), ..finding.impact };
            Finding { impact, ..finding }
        }
        Some(_) | None => with_waiting(finding, waiting, can_extend),
    });
    Overview { findings: findings.collect(), ..overview }
}

fn with_waiting(mut finding: Finding, waiting: &ByStep, can_extend: bool) -> Finding {
    let delayed = steps_of(&finding).into_iter().filter_map(|step| Some((step, waiting.get(step)?)));
    let delayed: Vec<_> = delayed.filter(|(_, orders)| orders.count > 0).collect();
    if delayed.is_empty() {
        return finding;
    }
    let (pending, cancelled): (Vec<_>, Vec<_>) =
        delayed.into_iter().partition(|(step, _)| role_of(step) == StepRole::Forward);
    let count = |of: &[(&str, &WaitingOrders)]| of.iter().map(|(_, orders)| orders.count).sum::<u64>();
    // Admin does not hear of orders that are accepted meanwhile.
    let orders_partial = finding.code == FindingCode::BrokerUnavailable;
    finding.impact = Impact {
        orders: Some(count(&pending)),
        orders_partial,
        cancelled_orders: Some(count(&cancelled)).filter(|count| *count > 0),
        amounts: total_by_currency(pending.iter().flat_map(|(_, orders)| &orders.amounts).copied()),
        amounts_partial: orders_partial || pending.iter().any(|(_, orders)| orders.amounts_partial),
        deadline: pending.iter().filter_map(|(_, orders)| orders.first_deadline).min(),
    };
    for (step, orders) in pending.into_iter().chain(cancelled) {
        let list = format!("saga list --stuck-at {step}");
        let extend = orders.first_deadline.filter(|_| can_extend && orders.count <= MAX_EXTENDED as u64);
        let extend = extend
            .map(|_| format!("saga extend --stuck-at {step} --for 10m --reason \"time to fix the cause\""));
        for command in extend.into_iter().chain([list]) {
            if !finding.commands.contains(&command) {
                finding.commands.push(command);
            }
        }
    }
    finding
}

/// Steps that do not complete while a finding is open: the one that it is about, or all of its service and of the services that
/// call it. A finding about some messages or requests of a service that works delays no step.
fn steps_of(finding: &Finding) -> Vec<&'static str> {
    let subject = finding.key.rsplit(['/', ':']).next().unwrap_or_default();
    match finding.code {
        FindingCode::BrokerUnavailable => steps().collect(),
        FindingCode::NotReady if subject == OVERLOAD => vec![],
        FindingCode::Unreachable | FindingCode::NotReady | FindingCode::BankLedgerRejected => {
            finding.service.as_deref().map(steps_at).unwrap_or_default()
        }
        FindingCode::ConsumerStall | FindingCode::BreakerOpen => {
            match steps().find(|step| *step == subject) {
                Some(step) => vec![step],
                // A breaker of a service that is called. Other steps delay no order.
                None => steps_at(subject),
            }
        }
        FindingCode::CompensationStuck
        | FindingCode::DeadLetters
        | FindingCode::MoreDeadLetters
        | FindingCode::ManyDeadLetters
        | FindingCode::ReplaysOverdue
        | FindingCode::MessagesRejected
        | FindingCode::TasksOverdue
        | FindingCode::RetriesOverdue
        | FindingCode::DiskSpaceLow
        | FindingCode::CrashLoop
        | FindingCode::OverridesUnreadable
        | FindingCode::SagasOverdue
        | FindingCode::LedgersUnbalanced
        | FindingCode::ReconciliationIncomplete
        | FindingCode::Unavailable => vec![],
    }
}

/// Steps of a service, and of those that call it. Admin calls every service for its views, and delays no order.
fn steps_at(service: &str) -> Vec<&'static str> {
    let calls = |owner: &str| named(owner).is_some_and(|owner| owner.calls.contains(&service));
    let is_delayed = |owner: &str| owner == service || (owner != OPERATOR && calls(owner));
    let stages = ORDER_SAGA.iter().filter(|stage| is_delayed(stage.owner));
    stages.flat_map(|stage| [Some(stage.step), stage.compensation_step]).flatten().collect()
}
