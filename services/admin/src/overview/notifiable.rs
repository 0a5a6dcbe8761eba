//! Pure: which findings people are notified of, and which an overview cannot evaluate.

use admin_api::overview::{Finding, FindingCode, Overview, ServiceStatus};
use admin_api::reconciliation::Verdict;

use crate::notifications::content::NOTIFICATION_TASK;
use crate::notifications::settings::RECEIVER;
use crate::topology::NAME;

/// Returns the findings to notify people of: all but those about the notifications themselves.
pub fn notifiable(overview: &Overview) -> Vec<Finding> {
    let groups = overview.dead_letters.iter().flat_map(|dead_letters| &dead_letters.groups);
    let own = groups.filter(|group| group.service == NAME && group.step == NOTIFICATION_TASK);
    let own: Vec<String> =
        own.map(|group| format!("{}:{}", FindingCode::DeadLetters, group.fingerprint)).collect();
    let own_breaker = format!("{}:{NAME}/{RECEIVER}", FindingCode::BreakerOpen);
    let own_tasks = format!("{}:{NAME}", FindingCode::TasksOverdue);
    let is_own = |finding: &&Finding| {
        own.contains(&finding.key) || finding.key == own_breaker || finding.key == own_tasks
    };
    overview.findings.iter().filter(|finding| !is_own(finding)).cloned().collect()
}

/// Returns prefixes of keys that this overview could not evaluate. Findings with such a key may still be open.
pub fn unknown_keys(overview: &Overview) -> Vec<String> {
    let of = |code: FindingCode| code.to_string();
    let mut unknown: Vec<String> = overview.services.iter().flat_map(unknown_of).collect();
    match &overview.dead_letters {
        None => unknown.extend([
            format!("{}:", FindingCode::DeadLetters),
            format!("{}:", FindingCode::ReplaysOverdue),
            of(FindingCode::MoreDeadLetters),
            of(FindingCode::ManyDeadLetters),
        ]),
        // Groups that are not listed may be open all the same.
        Some(_) if overview.findings.iter().any(|found| found.code == FindingCode::MoreDeadLetters) => {
            unknown.push(format!("{}:", FindingCode::DeadLetters));
        }
        Some(_) => {}
    }
    // A service that does not answer may have lost the broker too.
    if overview.services.iter().any(|service| service.problem.is_some()) {
        unknown.push(of(FindingCode::BrokerUnavailable));
    }
    if overview.sagas.is_none() {
        unknown.extend([of(FindingCode::CompensationStuck), of(FindingCode::SagasOverdue)]);
    }
    if overview.reconciliation.is_none() {
        unknown.push(of(FindingCode::ReconciliationIncomplete));
    }
    // Ledgers stay unbalanced until a reconciliation says otherwise.
    if overview.reconciliation.as_ref().is_none_or(|last| last.verdict != Verdict::Balanced) {
        unknown.push(of(FindingCode::LedgersUnbalanced));
    }
    unknown
}

fn unknown_of(service: &ServiceStatus) -> Vec<String> {
    let name = &service.service;
    let of_stats = [
        FindingCode::MessagesRejected,
        FindingCode::TasksOverdue,
        FindingCode::RetriesOverdue,
        FindingCode::DiskSpaceLow,
        FindingCode::CrashLoop,
        FindingCode::OverridesUnreadable,
    ]
    .map(|code| format!("{code}:{name}"));
    let of_itself = [FindingCode::NotReady, FindingCode::ConsumerStall, FindingCode::BreakerOpen]
        .map(|code| format!("{code}:{name}/"));
    let of_bank =
        service.bank_ledger.is_none().then(|| format!("{}:{name}", FindingCode::BankLedgerRejected));
    let of_service: Vec<_> = match (&service.problem, &service.outbox) {
        (Some(_), _) => of_stats.into_iter().chain(of_itself).collect(),
        (None, None) => of_stats.into(),
        (None, Some(_)) => vec![],
    };
    of_service.into_iter().chain(of_bank).collect()
}
