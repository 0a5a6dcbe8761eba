//! Pure: the rules by which a problem needs a human. `sagactl status`, notifications and metrics show their result, and have
//! no rules of their own. A problem that may pass by itself is marked.

use admin_api::overview::{Finding, FindingCode, OpenBreaker, Overview, ServiceStatus};
use admin_api::reconciliation::{ReconciliationSummary, Unanswered};
use admin_api::text::counted;
use contract::saga::SagaStatus;
use jiff::{SignedDuration, Timestamp};

use super::affected::Affected;
use super::dead_letter_findings::{dead_letters, replays_overdue};
use super::readiness_findings::{broker_unavailable, of_readiness};
use crate::notifications::settings::RECEIVER;
use crate::topology::NAME;

/// Time after which an open breaker needs a human.
const MAX_BREAKER_OPEN: SignedDuration = SignedDuration::from_mins(1);

/// Time after which an open call needs a human: the default deadline of an order and the grace period.
const MAX_TASK_AGE: SignedDuration = SignedDuration::from_secs(90);

/// Time after which a message that is still retried needs a human. Longer than the retries of any step, which end with a dead
/// letter. Only reports of dead letters, and outages without a breaker, take longer.
const MAX_RETRY_AGE: SignedDuration = SignedDuration::from_mins(5);

/// State of a breaker that admits probes.
pub const HALF_OPEN: &str = "HALF_OPEN";

/// Placeholder where no order is known.
const SOME_ORDER: &str = "ORDER";

/// Returns the overview with its findings.
pub fn with_findings(overview: Overview, affected: &Affected) -> Overview {
    let findings = findings(&overview, affected);
    Overview { needs_human: findings.iter().any(|finding| !finding.to_clean_up), findings, ..overview }
}

/// Evaluates all rules, in order.
fn findings(overview: &Overview, affected: &Affected) -> Vec<Finding> {
    let mut findings: Vec<_> = overview.services.iter().flat_map(of_readiness).collect();
    findings.extend(broker_unavailable(&overview.services));
    findings.extend(compensation_stuck(overview, affected));
    findings.extend(dead_letters(overview, affected));
    findings.extend(overview.services.iter().flat_map(|service| of_backlog(service, overview.at)));
    findings.extend(replays_overdue(overview, &findings));
    findings.extend(sagas_overdue(overview, affected));
    let unbalanced = overview.reconciliation.as_ref().filter(|last| last.is_unbalanced());
    findings.extend(unbalanced.map(ledgers_unbalanced));
    findings.extend(reconciliation_incomplete(&affected.unanswered));
    findings.extend(overview.unavailable.iter().map(|missing| {
        let text = format!("{} unavailable: {}", missing.what, missing.problem);
        let finding = Finding::new(FindingCode::Unavailable, &missing.what, text);
        Finding { may_pass: true, ..finding }
            .explained("The overview could not read it in time. Ask again.", &["status", "dlq count"])
    }));
    findings
}

fn compensation_stuck(overview: &Overview, affected: &Affected) -> Option<Finding> {
    let status = SagaStatus::CompensationStuck.as_str();
    let count = *overview.sagas.as_ref()?.by_status.get(status)?;
    let text = format!(
        "{} with a stuck compensation: it is dead-lettered or discarded",
        counted(count, "saga", "sagas")
    );
    let found = Finding {
        count: Some(count),
        impact: affected.stuck.impact(),
        urgent: true,
        ..Finding::new(FindingCode::CompensationStuck, "", text)
    };
    let explanation = "Stock or money is not back until the dead letter is resolved. No deadline ends this. If it can never \
                       succeed, do it by hand, then resolve the saga.";
    let list = format!("saga list --status {status}");
    let order = affected.stuck.oldest.as_deref().unwrap_or(SOME_ORDER);
    let restore = format!("dlq restore --saga {order} --reason \"it is needed after all\"");
    let resolve = resolve_saga(order);
    let mut commands = vec![list.as_str(), "dlq groups"];
    if affected.stuck_is_discarded {
        commands.extend(["dlq list --status DISCARDED", &restore]);
    }
    commands.push(&resolve);
    (count > 0).then(|| found.explained(explanation, &commands))
}

fn resolve_saga(order: &str) -> String {
    format!("saga resolve {order} --reason \"done by hand\"")
}

fn of_backlog(service: &ServiceStatus, now: Timestamp) -> Vec<Finding> {
    let name = &service.service;
    let is_long =
        |since: Option<Timestamp>, limit| since.is_some_and(|since| now.duration_since(since) > limit);
    let mut findings = Vec::new();
    let rejected = service.outbox.as_ref().map_or(0, |outbox| outbox.failed);
    findings.extend((rejected > 0).then(|| messages_rejected(name, rejected)));
    let open = service.breakers.iter().filter(|breaker| {
        breaker.forced || (is_long(breaker.since, MAX_BREAKER_OPEN) && !is_idle(service, breaker))
    });
    findings.extend(open.map(|breaker| {
        let found = breaker_open(name, breaker);
        Finding { urgent: !breaker.forced && waits_for_calls(service), ..found }
    }));
    let late = service.tasks.as_ref().filter(|tasks| is_long(tasks.oldest, MAX_TASK_AGE));
    findings.extend(late.map(|tasks| tasks_overdue(name, tasks.open, tasks.oldest)));
    findings.extend(bank_ledger_rejected(service));
    // An open breaker explains them.
    if service.breakers.is_empty() && is_long(service.retrying_since, MAX_RETRY_AGE) {
        findings.push(retries_overdue(service));
    }
    findings
}

/// True if a breaker admits a probe, and nothing waits that could be one. It closes with the next call.
fn is_idle(service: &ServiceStatus, breaker: &OpenBreaker) -> bool {
    breaker.state == HALF_OPEN && !waits_for_calls(service)
}

/// True if messages, calls or retries of a service wait.
fn waits_for_calls(service: &ServiceStatus) -> bool {
    service.steps.iter().any(|step| step.waiting.is_some_and(|waiting| waiting > 0))
        || service.tasks.as_ref().is_some_and(|tasks| tasks.open > 0)
        || service.retries.is_some_and(|retries| retries > 0)
}

fn messages_rejected(service: &str, count: u64) -> Finding {
    let entries = counted(count, "outbox entry", "outbox entries");
    Finding {
        service: Some(service.to_owned()),
        count: Some(count),
        urgent: true,
        ..Finding::new(
            FindingCode::MessagesRejected,
            service,
            format!("the broker rejected messages of {service}: {entries} FAILED or blocked behind one"),
        )
    }
    .explained(
        "Sagas wait for messages that the broker does not accept: too large, no such stream, no permission. Fix that, \
         then publish them.",
        &["outbox list", &format!("outbox retry {service} --reason \"the cause is fixed\"")],
    )
}

fn breaker_open(service: &str, breaker: &OpenBreaker) -> Finding {
    let OpenBreaker { name, state, since, why, forced } = breaker;
    let subject = format!("{service}/{name}");
    let found = Finding {
        service: Some(service.to_owned()),
        since: *since,
        ..Finding::new(FindingCode::BreakerOpen, &subject, format!("breaker {subject} is {state}"))
    };
    let reset = format!("breakers reset {subject}");
    if service == NAME && name == RECEIVER {
        return undelivered(found);
    }
    if *forced {
        return found.explained(
            "An operator forced it until it is reset. The audit log shows who, and why.",
            &["log", &reset],
        );
    }
    let why = why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    let explanation = format!(
        "What it protects keeps failing{why}. Meanwhile no message is consumed, and no attempt is used. Fix the cause; it \
         closes by itself then, sooner when it is reset."
    );
    found.explained(explanation, &["breakers", "faults", &reset])
}

fn tasks_overdue(service: &str, count: u64, oldest: Option<Timestamp>) -> Finding {
    let calls = counted(count, "call", "calls");
    let found = Finding {
        service: Some(service.to_owned()),
        since: oldest,
        count: Some(count),
        urgent: true,
        ..Finding::new(
            FindingCode::TasksOverdue,
            service,
            format!("{calls} of {service} unanswered for too long"),
        )
    };
    // Admin calls nothing but the receiver of notifications.
    if service == NAME {
        return undelivered(found);
    }
    found.explained(
        "The called service does not answer, or its breaker is open. Calls are repeated with the same key until it does. \
         If it never answers, do it by hand, then resolve the payment of each order with sagactl payment resolve.",
        &["breakers", "faults", "saga list --status COMPENSATING"],
    )
}

/// A bank with another ledger: its database was replaced, or payment calls another bank.
fn bank_ledger_rejected(service: &ServiceStatus) -> Option<Finding> {
    let check = service.bank_ledger.as_ref()?;
    let (named, rejected) = (check.named?, check.rejected.as_ref()?);
    let by = rejected.by.map_or_else(|| "another ledger".to_owned(), |by| format!("the ledger {by}"));
    let name = &service.service;
    let found = Finding {
        service: Some(name.clone()),
        count: service.tasks.as_ref().map(|tasks| tasks.open),
        urgent: true,
        ..Finding::new(
            FindingCode::BankLedgerRejected,
            name,
            format!("the bank has {by}, and {name} has worked with the ledger {named}"),
        )
    };
    let explanation = format!(
        "It rejects every call of {name}, since it would capture charges again. Orders wait until their deadline. Start the \
         bank with the database of that ledger, or let {name} call the bank that has it (service.bank). If the ledger is \
         lost, accept that at the bank, and reconcile. {}",
        rejected.why
    );
    Some(
        found.explained(
            explanation,
            &["status", "saga list --stuck-at payment-processing", "reconcile --full"],
        ),
    )
}

fn retries_overdue(service: &ServiceStatus) -> Finding {
    let name = &service.service;
    let explanation = if name == NAME {
        "A message cannot be processed, and is retried for ever: dead letters, sagas or findings may be missing from what is \
         shown. Its log shows the error, which is a fault of admin or of its database."
    } else {
        "A message cannot be processed, and is retried. Its log shows the error."
    };
    Finding {
        service: Some(name.clone()),
        since: service.retrying_since,
        count: service.retries,
        ..Finding::new(
            FindingCode::RetriesOverdue,
            name,
            format!(
                "{} of {name} failing for too long",
                counted(service.retries.unwrap_or(1), "message", "messages")
            ),
        )
    }
    .explained(explanation, &["top --once", "dlq list"])
}

fn undelivered(found: Finding) -> Finding {
    found.explained(
        "The receiver of notifications does not accept them. They are kept, and delivered once it does.",
        &["notifications", "notifications test"],
    )
}

fn sagas_overdue(overview: &Overview, affected: &Affected) -> Option<Finding> {
    let count = overview.sagas.as_ref()?.overdue;
    let text = format!("{} overdue: past the deadline and not ended", counted(count, "saga", "sagas"));
    let found = Finding {
        count: Some(count),
        impact: affected.overdue.impact(),
        urgent: true,
        ..Finding::new(FindingCode::SagasOverdue, "", text)
    };
    let explanation = "The service that owes the next step has not done it, and no dead letter explains that. Check which \
                       step it is. If it never completes, do it by hand, then resolve the saga.";
    let resolve = resolve_saga(affected.overdue.oldest.as_deref().unwrap_or(SOME_ORDER));
    (count > 0)
        .then(|| found.explained(explanation, &["saga list --overdue", "reconcile --wait 5s", &resolve]))
}

fn ledgers_unbalanced(last: &ReconciliationSummary) -> Finding {
    let count = counted(last.discrepancies, "discrepancy", "discrepancies");
    Finding {
        since: Some(last.at),
        count: Some(last.discrepancies),
        urgent: true,
        ..Finding::new(FindingCode::LedgersUnbalanced, "", format!("the ledgers are UNBALANCED: {count}"))
    }
    .explained(
        "Orders, stock, money or messages disagree, and nothing in flight resolves that. A reconciliation shows the \
         discrepancies and how to repair them. If nothing does, correct them by hand, then resolve each order with sagactl \
         saga resolve.",
        &["reconcile --wait 5s"],
    )
}

fn reconciliation_incomplete(unanswered: &[Unanswered]) -> Option<Finding> {
    let first = unanswered.first()?;
    let whys: Vec<_> =
        unanswered.iter().map(|Unanswered { service, why }| format!("{service}: {why}")).collect();
    let text =
        "the last three reconciliations are incomplete: a service leaves a question unanswered".to_owned();
    let found = Finding {
        service: Some(first.service.clone()),
        count: Some(unanswered.len() as u64),
        ..Finding::new(FindingCode::ReconciliationIncomplete, "", text)
    };
    let explanation = format!(
        "Whether orders, stock and money agree is unknown until it answers.\n{}\nIts log has the error.",
        whys.join("\n")
    );
    Some(found.explained(explanation, &["status", "reconcile --wait 5s"]))
}
