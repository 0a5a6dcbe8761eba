//! Pure: the rules by which a problem needs a human. `sagactl status`, notifications and metrics show their result, and have
//! no rules of their own. A problem that may pass by itself is marked.

use admin_api::overview::{
    FailingCheck, Finding, FindingCode, OpenBreaker, Overview, ServiceStatus, StepStatus, UNTRUSTED,
};
use admin_api::reconciliation::{ReconciliationSummary, Unanswered};
use admin_api::text::counted;
use contract::saga::{self, SagaStatus};
use jiff::{SignedDuration, Timestamp};

use super::affected::Affected;
use super::dead_letter_findings::dead_letters;
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

/// Evaluates the health of a service. A stalled step is reported instead of the check that detects it.
fn of_readiness(service: &ServiceStatus) -> Vec<Finding> {
    if let Some(problem) = &service.problem {
        return vec![unreachable(&service.service, problem)];
    }
    let stalled = service.steps.iter().filter(|step| step.stalled_since.is_some());
    let mut findings: Vec<_> = stalled.map(|step| consumer_stall(service, step)).collect();
    let is_reported = !findings.is_empty();
    // An overloaded service is ready, for all that it does not reject. Its customers are rejected all the same.
    let failed = service.failing_checks.iter().filter(|check| check.failed || check.check == OVERLOAD);
    let others = failed.filter(|check| check.check != "consumer_stall" || !is_reported);
    findings.extend(others.map(|check| not_ready(service, check)));
    let disk = service.failing_checks.iter().find(|check| check.check == DISK);
    findings.extend(disk.map(|check| disk_space_low(&service.service, check)));
    findings
}

fn unreachable(service: &str, problem: &str) -> Finding {
    let explanation = if problem.contains(UNTRUSTED) {
        "It runs, and a restart changes nothing. The side that calls does not trust its certificate: correct the file that \
         is named, which is read again without a restart. Other callers of that service may fail alike."
    } else if service == NAME {
        "The saga view, dead letters and notifications are not updated until it is back. Orders continue without it."
    } else {
        "Messages for it wait at the broker until it is back. Orders that need it wait until their deadline. Its log \
         shows why it does not answer."
    };
    Finding {
        service: Some(service.to_owned()),
        urgent: true,
        may_pass: true,
        ..Finding::new(FindingCode::Unreachable, service, problem.to_owned())
    }
    .explained(explanation, &[])
}

/// Check of a service whose database has little disk space left.
const DISK: &str = "disk";

fn disk_space_low(service: &str, check: &FailingCheck) -> Finding {
    Finding {
        service: Some(service.to_owned()),
        since: Some(check.since),
        urgent: true,
        ..Finding::new(FindingCode::DiskSpaceLow, service, format!("{service}: {}", check.text))
    }
    .explained(
        "Without space nothing can be stored: orders are rejected, and messages wait at the broker. Free space on that disk, \
         or make it larger. Old archives and logs can go; the database and its -wal file never. A long write-ahead log is \
         emptied once the process that reads the database has ended.",
        &["status"],
    )
}

/// Check of a service that rejects new requests.
const OVERLOAD: &str = "overload";

fn not_ready(status: &ServiceStatus, check: &FailingCheck) -> Finding {
    let FailingCheck { check: name, text, since, .. } = check;
    let service = &status.service;
    // A disk does not empty itself, as a queue does.
    let needs_disk = name == OVERLOAD && status.failing_checks.iter().any(|check| check.check == DISK);
    let (explanation, commands): (_, &[&str]) = match name.as_str() {
        "store" => (
            "Its database cannot be used: commands get 503, messages wait at the broker. The check says why: the disk is full \
             or broken, it was made read-only, or another process holds a lock on it. If its file was deleted, the process \
             holds the last copy: copy that first, as the check says, and only then stop the service.",
            &["status"],
        ),
        "database" => (
            "Its database was replaced by an older copy while it ran. Nothing is stored, published or shown from it. Stop \
             the service, restore the newest copy of the database, and start the service. What is still missing is named \
             by the start; once that is accepted, publish again what the others may lack, and reconcile.",
            &["reconcile --full"],
        ),
        "startup" => (
            "It has not reached the broker since its start, and accepts nothing before. Check the broker.",
            &["status"],
        ),
        OVERLOAD if needs_disk => ("It rejects new requests until there is room on its disk.", &["status"]),
        OVERLOAD => ("It rejects new requests, because it cannot publish fast enough.", &["outbox list"]),
        "stopping" => ("It was told to stop.", &["status"]),
        "consumer_stall" => ("Messages for it wait at the broker.", &["breakers", "faults"]),
        _ => ("It does not accept work.", &[]),
    };
    Finding {
        service: Some(service.clone()),
        since: Some(*since),
        urgent: needs_disk || matches!(name.as_str(), "store" | "database"),
        may_pass: !needs_disk,
        ..Finding::new(
            FindingCode::NotReady,
            &format!("{service}/{name}"),
            match name.as_str() {
                OVERLOAD => format!("{service} rejects new requests ({name}): {text}"),
                _ => format!("{service} is not ready ({name}): {text}"),
            },
        )
    }
    .explained(explanation, commands)
}

/// Checks of a broker that cannot be used: not reached, or it takes no messages.
const BROKER_CHECKS: [&str; 2] = ["broker", "publish_stall"];

fn broker_unavailable(services: &[ServiceStatus]) -> Option<Finding> {
    let of_broker = |check: &&FailingCheck| BROKER_CHECKS.contains(&check.check.as_str());
    let failing = |service: &ServiceStatus| service.failing_checks.iter().find(of_broker).cloned();
    let affected: Vec<_> =
        services.iter().filter_map(|service| Some((&service.service, failing(service)?))).collect();
    let (_, first) = affected.iter().min_by_key(|(_, check)| check.since)?;
    let names = affected.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let found = Finding {
        since: Some(first.since),
        urgent: true,
        may_pass: true,
        ..Finding::new(
            FindingCode::BrokerUnavailable,
            "",
            format!("{names} cannot use the broker: {}", first.text),
        )
    };
    let explanation = "Nothing is published or consumed there until it is back. Orders wait until their deadline, and are \
                       cancelled then; after a while new ones are rejected. Start the broker, or restore the network.";
    Some(found.explained(explanation, &["status", "outbox list"]))
}

fn consumer_stall(service: &ServiceStatus, step: &StepStatus) -> Finding {
    let StepStatus { step: name, waiting, stalled_since, paused } = step;
    let backlog = waiting.map(|waiting| counted(waiting, "message waits", "messages wait"));
    let backlog = backlog.unwrap_or_else(|| "messages wait".to_owned());
    let clear = service.clear_faults_command().filter(|_| *paused);
    let by_fault = if *paused { ", paused by an injected fault" } else { "" };
    let explanation = if clear.is_some() {
        "An injected fault pauses it until that is cleared; then it continues. Orders that need it wait until their \
         deadline."
    } else {
        "No breaker is open, and it processes nothing. After a restart it continues where it was."
    };
    let mut commands = vec![clear.unwrap_or_else(|| "faults".to_owned())];
    if saga::steps().any(|known| known == name) {
        commands.push(format!("saga list --stuck-at {name}"));
    }
    Finding {
        service: Some(service.service.clone()),
        since: *stalled_since,
        count: *waiting,
        urgent: true,
        explanation: explanation.to_owned(),
        commands,
        ..Finding::new(
            FindingCode::ConsumerStall,
            &format!("{}/{name}", service.service),
            format!("{name} of {} is stalled: {backlog}{by_fault}", service.service),
        )
    }
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
        amounts: affected.stuck.clone(),
        urgent: true,
        ..Finding::new(FindingCode::CompensationStuck, "", text)
    };
    let explanation = "Stock or money is not back until the dead letter is resolved. No deadline ends this. Restore what \
                       was discarded. If it can never succeed, do it by hand, then resolve the saga.";
    let list = format!("saga list --status {status}");
    let order = affected.stuck_order.as_deref().unwrap_or(SOME_ORDER);
    let restore = format!("dlq restore --saga {order} --reason \"it is needed after all\"");
    let resolve = resolve_saga(order);
    let commands = [&list, "dlq groups", "dlq list --status DISCARDED", &restore, &resolve];
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
        amounts: affected.overdue.clone(),
        urgent: true,
        ..Finding::new(FindingCode::SagasOverdue, "", text)
    };
    let explanation = "The service that owes the next step has not done it, and no dead letter explains that. Check which \
                       step it is. If it never completes, do it by hand, then resolve the saga.";
    let resolve = resolve_saga(affected.overdue_order.as_deref().unwrap_or(SOME_ORDER));
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
