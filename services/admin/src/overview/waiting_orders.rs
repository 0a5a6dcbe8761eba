//! Pure: the orders that wait while a finding is open: how many, their money, their first deadline, and how to extend them.

use std::collections::{BTreeMap, BTreeSet};

use admin_api::overview::{Finding, FindingCode, Overview};
use contract::money::Money;
use contract::saga::{ORDER_SAGA, steps};
use contract::topology::{OPERATOR, PARTICIPANTS};

use crate::sagas::sums::SagaSums;

/// Orders that wait for one step.
#[derive(Debug, Clone, Default)]
pub struct WaitingOrders {
    pub count: u64,
    pub sums: SagaSums,
}

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
    let findings = overview.findings.into_iter();
    let findings = findings.map(|finding| with_waiting(finding, waiting, can_extend)).collect();
    Overview { findings, ..overview }
}

fn with_waiting(mut finding: Finding, waiting: &ByStep, can_extend: bool) -> Finding {
    let delayed = steps_of(&finding).into_iter().filter_map(|step| Some((step, waiting.get(step)?)));
    let delayed: Vec<_> = delayed.filter(|(_, orders)| orders.count > 0).collect();
    if delayed.is_empty() {
        return finding;
    }
    finding.orders = Some(delayed.iter().map(|(_, orders)| orders.count).sum());
    finding.amounts = total(delayed.iter().flat_map(|(_, orders)| &orders.sums.amounts));
    finding.amounts_partial = delayed.iter().any(|(_, orders)| orders.sums.is_partial);
    finding.deadline = delayed.iter().filter_map(|(_, orders)| orders.sums.first_deadline).min();
    for (step, orders) in delayed {
        let list = format!("saga list --stuck-at {step}");
        let extend =
            orders.sums.first_deadline.filter(|_| can_extend).map(|_| {
                format!("saga extend --stuck-at {step} --for 10m --reason \"time to fix the cause\"")
            });
        for command in extend.into_iter().chain([list]) {
            if !finding.commands.contains(&command) {
                finding.commands.push(command);
            }
        }
    }
    finding
}

fn total<'a>(amounts: impl Iterator<Item = &'a Money>) -> Vec<Money> {
    let mut total: BTreeMap<&str, Money> = BTreeMap::new();
    for amount in amounts {
        let sum = total.entry(amount.currency.code()).or_insert(Money::new(0, amount.currency));
        sum.amount_minor = sum.amount_minor.saturating_add(amount.amount_minor);
    }
    total.into_values().collect()
}

/// Steps that do not complete while a finding is open: the one that it is about, or all of its service and of the services that
/// call it.
fn steps_of(finding: &Finding) -> Vec<&'static str> {
    match finding.code {
        FindingCode::BrokerUnavailable => steps().collect(),
        FindingCode::Unreachable
        | FindingCode::NotReady
        | FindingCode::ConsumerStall
        | FindingCode::MessagesRejected
        | FindingCode::BreakerOpen
        | FindingCode::TasksOverdue
        | FindingCode::BankLedgerRejected
        | FindingCode::RetriesOverdue
        | FindingCode::CrashLoop => {
            let subject = finding.key.rsplit(['/', ':']).next().unwrap_or_default();
            match steps().find(|step| *step == subject) {
                Some(step) => vec![step],
                None => finding.service.as_deref().map(steps_at).unwrap_or_default(),
            }
        }
        FindingCode::CompensationStuck
        | FindingCode::DeadLetters
        | FindingCode::MoreDeadLetters
        | FindingCode::ManyDeadLetters
        | FindingCode::ReplaysOverdue
        | FindingCode::DiskSpaceLow
        | FindingCode::OverridesUnreadable
        | FindingCode::SagasOverdue
        | FindingCode::LedgersUnbalanced
        | FindingCode::ReconciliationIncomplete
        | FindingCode::Unavailable => vec![],
    }
}

/// Steps of a service, and of those that call it. Admin calls every service for its views, and delays no order.
fn steps_at(service: &str) -> Vec<&'static str> {
    let calls = |owner: &str| {
        PARTICIPANTS
            .iter()
            .any(|participant| participant.name == owner && participant.calls.contains(&service))
    };
    let is_delayed = |owner: &str| owner == service || (owner != OPERATOR && calls(owner));
    let stages = ORDER_SAGA.iter().filter(|stage| is_delayed(stage.owner));
    stages.flat_map(|stage| [Some(stage.step), stage.compensation_step]).flatten().collect()
}
