//! Pure: the rules by which a problem needs a human. `sagactl status`, notifications and metrics show their result, and have
//! no rules of their own. Problems that resolve themselves are no findings.

use admin_api::overview::{
    FailingCheck, Finding, FindingCode, GroupSummary, OpenBreaker, Overview, ServiceStatus, StepStatus,
};
use admin_api::reconciliation::ReconciliationSummary;
use admin_api::text::{counted, grouped};
use contract::money::Money;
use contract::saga::{self, SagaStatus};
use jiff::{SignedDuration, Timestamp};

use crate::notifications::settings::RECEIVER;
use crate::topology::NAME;

/// Time after which an open breaker needs a human.
const MAX_BREAKER_OPEN: SignedDuration = SignedDuration::from_mins(1);

/// Time after which an open call needs a human: the default deadline of an order and the grace period.
const MAX_TASK_AGE: SignedDuration = SignedDuration::from_secs(90);

const RESTORE: &str = "dlq restore --saga ORDER --reason \"it is needed after all\"";
const RESOLVE_SAGA: &str = "saga resolve ORDER --reason \"done by hand\"";
const RESOLVE_PAYMENT: &str = "payment resolve ORDER --reason \"done by hand\"";

/// Data for findings that the overview does not show.
#[derive(Debug, Clone, Default)]
pub struct Affected {
    /// Money in sagas whose compensation is stuck.
    pub stuck: Vec<Money>,
    /// Money in overdue sagas.
    pub overdue: Vec<Money>,
    /// Number of dead letters that is a finding of its own.
    pub dead_letter_threshold: u64,
}

/// Returns the overview with its findings.
#[must_use]
pub fn with_findings(overview: Overview, affected: &Affected) -> Overview {
    let findings = findings(&overview, affected);
    Overview { needs_human: !findings.is_empty(), findings, ..overview }
}

/// Evaluates all rules, the most severe findings first.
fn findings(overview: &Overview, affected: &Affected) -> Vec<Finding> {
    let mut findings: Vec<_> = overview.services.iter().flat_map(of_readiness).collect();
    findings.extend(compensation_stuck(overview, affected));
    findings.extend(of_dead_letters(overview, affected.dead_letter_threshold));
    findings.extend(overview.services.iter().flat_map(|service| of_backlog(service, overview.at)));
    findings.extend(sagas_overdue(overview, affected));
    let unbalanced = overview.reconciliation.as_ref().filter(|last| last.is_unbalanced());
    findings.extend(unbalanced.map(ledgers_unbalanced));
    findings.extend(overview.unavailable.iter().map(|missing| {
        let text = format!("{} unavailable: {}", missing.what, missing.problem);
        let finding = finding(FindingCode::Unavailable, &missing.what, text);
        Finding { may_pass: true, ..finding }
            .explained("The overview could not read it in time. Ask again.", &["status", "dlq count"])
    }));
    findings
}

fn finding(code: FindingCode, subject: &str, text: String) -> Finding {
    let key = if subject.is_empty() { code.to_string() } else { format!("{code}:{subject}") };
    Finding {
        code,
        key,
        service: None,
        text,
        explanation: String::new(),
        since: None,
        count: None,
        amounts: vec![],
        deadline: None,
        commands: vec![],
        urgent: false,
        may_pass: false,
    }
}

trait Explained {
    fn explained(self, explanation: impl Into<String>, commands: &[&str]) -> Self;
}

impl Explained for Finding {
    fn explained(self, explanation: impl Into<String>, commands: &[&str]) -> Self {
        let commands = commands.iter().map(|&command| command.to_owned()).collect();
        Self { explanation: explanation.into(), commands, ..self }
    }
}

/// Evaluates the health of a service. A stalled step is reported instead of the check that detects it.
fn of_readiness(service: &ServiceStatus) -> Vec<Finding> {
    if let Some(problem) = &service.problem {
        return vec![unreachable(&service.service, problem)];
    }
    let stalled = service.steps.iter().filter(|step| step.stalled_since.is_some());
    let mut findings: Vec<_> = stalled.map(|step| consumer_stall(service, step)).collect();
    let is_reported = !findings.is_empty();
    let failed = service.failing_checks.iter().filter(|check| check.failed);
    let others = failed.filter(|check| check.check != "consumer_stall" || !is_reported);
    findings.extend(others.map(|check| not_ready(&service.service, check)));
    findings
}

fn unreachable(service: &str, problem: &str) -> Finding {
    let explanation = if service == NAME {
        "The saga view, dead letters and notifications are not updated until it is back. Orders continue without it."
    } else {
        "Messages for it wait at the broker until it is back. Orders that need it wait until their deadline. Its log \
         shows why it does not answer."
    };
    Finding {
        service: Some(service.to_owned()),
        urgent: true,
        may_pass: true,
        ..finding(FindingCode::Unreachable, service, problem.to_owned())
    }
    .explained(explanation, &[])
}

fn not_ready(service: &str, check: &FailingCheck) -> Finding {
    let FailingCheck { check: name, text, since, .. } = check;
    let (explanation, commands): (_, &[&str]) = match name.as_str() {
        "store" => (
            "Its database does not answer: commands get 503, messages wait at the broker. Its log shows the error.",
            &[],
        ),
        "startup" => (
            "It has not reached the broker since its start, and accepts nothing before. Check the broker.",
            &["status"],
        ),
        "overload" => ("It rejects new requests, because it cannot publish fast enough.", &["outbox list"]),
        "consumer_stall" => ("Messages for it wait at the broker.", &["breakers", "faults"]),
        _ => ("It does not accept work.", &[]),
    };
    Finding {
        service: Some(service.to_owned()),
        since: Some(*since),
        may_pass: true,
        ..finding(
            FindingCode::NotReady,
            &format!("{service}/{name}"),
            format!("{service} is not ready ({name}): {text}"),
        )
    }
    .explained(explanation, commands)
}

fn consumer_stall(service: &ServiceStatus, step: &StepStatus) -> Finding {
    let StepStatus { step: name, waiting, stalled_since, paused } = step;
    let backlog = waiting.map(|waiting| counted(waiting, "message waits", "messages wait"));
    let backlog = backlog.unwrap_or_else(|| "messages wait".to_owned());
    let clear = clear_faults(service).filter(|_| *paused);
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
        ..finding(
            FindingCode::ConsumerStall,
            &format!("{}/{name}", service.service),
            format!("{name} of {} is stalled: {backlog}{by_fault}", service.service),
        )
    }
}

/// Command that clears the injected faults of a service, if it has any.
fn clear_faults(service: &ServiceStatus) -> Option<String> {
    (!service.faults.is_empty()).then(|| format!("faults clear {}", service.service))
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
        ..finding(FindingCode::CompensationStuck, "", text)
    };
    let explanation = "Stock or money is not back until the dead letter is resolved. No deadline ends this. Restore what \
                       was discarded. If it can never succeed, do it by hand, then resolve the saga.";
    let list = format!("saga list --status {status}");
    let commands = [&list, "dlq groups", "dlq list --status DISCARDED", RESTORE, RESOLVE_SAGA];
    (count > 0).then(|| found.explained(explanation, &commands))
}

fn of_dead_letters(overview: &Overview, threshold: u64) -> Vec<Finding> {
    let Some(dead_letters) = &overview.dead_letters else { return vec![] };
    let pending = dead_letters.pending;
    let listed: u64 = dead_letters.groups.iter().map(|group| group.count).sum();
    let more = pending.saturating_sub(listed);
    let words = |count| counted(count, "dead letter", "dead letters");
    let mut findings: Vec<_> =
        dead_letters.groups.iter().map(|group| dead_letter_group(overview, group)).collect();
    if more > 0 {
        let text = format!("{} of other causes", words(more));
        let found = Finding { count: Some(more), ..finding(FindingCode::MoreDeadLetters, "", text) };
        findings.push(found.explained("There are more causes than are listed.", &["dlq groups --limit 200"]));
    }
    if pending >= threshold {
        let text = format!("{} in all", words(pending));
        let found =
            Finding { count: Some(pending), urgent: true, ..finding(FindingCode::ManyDeadLetters, "", text) };
        findings
            .push(found.explained("The number of dead letters has reached the threshold.", &["dlq groups"]));
    }
    findings
}

fn dead_letter_group(overview: &Overview, group: &GroupSummary) -> Finding {
    let GroupSummary { fingerprint, newest, step, service, count, .. } = group;
    // A message that an injected fault fails would fail again after any replay.
    let status = overview.services.iter().find(|status| status.service == *service);
    let injected = status.and_then(clear_faults).filter(|_| group.reason.contains("injected: "));
    let mut commands: Vec<_> = injected.into_iter().collect();
    commands.push(format!("dlq show {newest}"));
    if group.first_until.is_some() {
        commands.push(format!(
            "saga extend --fingerprint {fingerprint} --for 10m --reason \"time to fix the cause\""
        ));
    }
    if group.awaited == 0 {
        let because = if group.foreign { "not a message of this system" } else { "no saga waits for it" };
        commands.push(format!("dlq discard --fingerprint {fingerprint} --reason \"{because}\""));
    } else {
        commands.push(format!("dlq redrive --fingerprint {fingerprint} --preview"));
        commands.push(format!("dlq redrive --fingerprint {fingerprint} --reason \"the cause is fixed\""));
        if group.last_until.is_none() {
            commands.push(format!("dlq resolve --fingerprint {fingerprint} --reason \"done by hand\""));
        }
    }
    let text = format!("{} at {step} of {service}", counted(*count, "dead letter", "dead letters"));
    Finding {
        service: Some(service.clone()),
        since: Some(group.newest_at),
        count: Some(*count),
        deadline: group.first_until,
        explanation: format!("Cause: {}\n{}", group.reason, replay_value_text(group)),
        commands,
        ..finding(FindingCode::DeadLetters, fingerprint, format!("{text}, fingerprint {fingerprint}"))
    }
}

fn replay_value_text(group: &GroupSummary) -> String {
    if group.foreign {
        return "These messages are from outside this system: no saga waits for them, and a replay changes nothing. \
                Check who else can publish at the broker."
            .to_owned();
    }
    let no_deadline = match group.last_until {
        None if group.awaited > 0 => {
            ", and no deadline ends the wait: if they can never succeed, do it by hand, then resolve them"
        }
        Some(_) | None => "",
    };
    let waiting = match group.awaited {
        0 => "No saga waits for them any more.".to_owned(),
        1 => format!("1 is awaited by its saga{no_deadline}."),
        count => format!("{} are awaited by their sagas{no_deadline}.", grouped(count)),
    };
    let ended = match group.ended {
        0 => String::new(),
        count => {
            format!(
                " {} ended without them: a replay of those changes nothing.",
                counted(count, "saga", "sagas")
            )
        }
    };
    waiting + &ended
}

fn of_backlog(service: &ServiceStatus, now: Timestamp) -> Vec<Finding> {
    let name = &service.service;
    let is_long =
        |since: Option<Timestamp>, limit| since.is_some_and(|since| now.duration_since(since) > limit);
    let mut findings = Vec::new();
    let rejected = service.outbox.as_ref().map_or(0, |outbox| outbox.failed);
    findings.extend((rejected > 0).then(|| messages_rejected(name, rejected)));
    let open =
        service.breakers.iter().filter(|breaker| breaker.forced || is_long(breaker.since, MAX_BREAKER_OPEN));
    findings.extend(open.map(|breaker| breaker_open(name, breaker)));
    let late = service.tasks.as_ref().filter(|tasks| is_long(tasks.oldest, MAX_TASK_AGE));
    findings.extend(late.map(|tasks| tasks_overdue(name, tasks.open, tasks.oldest)));
    findings
}

fn messages_rejected(service: &str, count: u64) -> Finding {
    let entries = counted(count, "outbox entry", "outbox entries");
    Finding {
        service: Some(service.to_owned()),
        count: Some(count),
        ..finding(
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
        ..finding(FindingCode::BreakerOpen, &subject, format!("breaker {subject} is {state}"))
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
        ..finding(FindingCode::TasksOverdue, service, format!("{calls} of {service} unanswered for too long"))
    };
    // Admin calls nothing but the receiver of notifications.
    if service == NAME {
        return undelivered(found);
    }
    found.explained(
        "The called service does not answer, or its breaker is open. Calls are repeated with the same key until it does. \
         If it never answers, do it by hand, then resolve the payment.",
        &["breakers", "faults", "saga list --status COMPENSATING", RESOLVE_PAYMENT],
    )
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
        ..finding(FindingCode::SagasOverdue, "", text)
    };
    let explanation = "The service that owes the next step has not done it, and no dead letter explains that. Check which \
                       step it is. If it never completes, do it by hand, then resolve the saga.";
    (count > 0)
        .then(|| found.explained(explanation, &["saga list --overdue", "reconcile --wait 5s", RESOLVE_SAGA]))
}

fn ledgers_unbalanced(last: &ReconciliationSummary) -> Finding {
    let count = counted(last.discrepancies, "discrepancy", "discrepancies");
    Finding {
        since: Some(last.at),
        count: Some(last.discrepancies),
        urgent: true,
        ..finding(FindingCode::LedgersUnbalanced, "", format!("the ledgers are UNBALANCED: {count}"))
    }
    .explained(
        "Orders, stock, money or messages disagree, and nothing in flight resolves that. A reconciliation shows the \
         discrepancies and how to repair them. If nothing does, correct them by hand, then resolve the saga.",
        &["reconcile --wait 5s", RESOLVE_SAGA],
    )
}
