//! Pure: the rules by which dead letters need a human.

use admin_api::overview::{
    Finding, FindingCode, GroupSummary, Impact, OverdueReplays, Overview, ServiceStatus,
};
use admin_api::text::{counted, grouped, listed};

use super::affected::Affected;
use crate::sagas::sums::SagaSums;
use crate::topology::NAME;

/// Evaluates the pending dead letters, one finding for each listed cause.
pub(super) fn dead_letters(overview: &Overview, affected: &Affected) -> Vec<Finding> {
    let threshold = affected.dead_letter_threshold;
    let Some(dead_letters) = &overview.dead_letters else { return vec![] };
    let pending = dead_letters.pending;
    let listed: u64 = dead_letters.groups.iter().map(|group| group.count).sum();
    let more = pending.saturating_sub(listed);
    let words = |count| counted(count, "dead letter", "dead letters");
    let mut findings: Vec<_> =
        dead_letters.groups.iter().map(|group| dead_letter_group(overview, group, affected)).collect();
    if more > 0 {
        let text = format!("{} of other causes", words(more));
        let found = Finding { count: Some(more), ..Finding::new(FindingCode::MoreDeadLetters, "", text) };
        findings.push(found.explained("There are more causes than are listed.", &["dlq groups --limit 200"]));
    }
    if pending >= threshold {
        let text = format!("{} in all", words(pending));
        let is_awaited = more > 0 || dead_letters.groups.iter().any(|group| group.awaited > 0);
        let found = Finding {
            count: Some(pending),
            urgent: is_awaited,
            to_clean_up: !is_awaited,
            ..Finding::new(FindingCode::ManyDeadLetters, "", text)
        };
        findings
            .push(found.explained("The number of dead letters has reached the threshold.", &["dlq groups"]));
    }
    findings
}

/// Evaluates replays without an outcome, unless one of the other findings explains them.
pub(super) fn replays_overdue(overview: &Overview, others: &[Finding]) -> Vec<Finding> {
    let overdue = overview.dead_letters.iter().flat_map(|dead_letters| &dead_letters.overdue_replays);
    let is_explained =
        |replays: &&OverdueReplays| others.iter().any(|other| delays_replays(other, &replays.service));
    overdue.filter(|replays| !is_explained(replays)).map(replays_of_service).collect()
}

/// True if a finding is about something that keeps a service from replaying, or admin from asking it to.
fn delays_replays(finding: &Finding, service: &str) -> bool {
    let is_of = |name: &str| finding.service.as_deref() == Some(name);
    match finding.code {
        FindingCode::BrokerUnavailable => true,
        FindingCode::MessagesRejected => is_of(NAME),
        FindingCode::Unreachable
        | FindingCode::NotReady
        | FindingCode::ConsumerStall
        | FindingCode::BreakerOpen
        | FindingCode::TasksOverdue
        | FindingCode::BankLedgerRejected
        | FindingCode::RetriesOverdue => is_of(service),
        FindingCode::CompensationStuck
        | FindingCode::DeadLetters
        | FindingCode::MoreDeadLetters
        | FindingCode::ManyDeadLetters
        | FindingCode::ReplaysOverdue
        | FindingCode::DiskSpaceLow
        | FindingCode::CrashLoop
        | FindingCode::OverridesUnreadable
        | FindingCode::SagasOverdue
        | FindingCode::LedgersUnbalanced
        | FindingCode::ReconciliationIncomplete
        | FindingCode::Unavailable => false,
    }
}

fn replays_of_service(replays: &OverdueReplays) -> Finding {
    let OverdueReplays { service, count, since, repeatable, edited } = replays;
    let ids = repeatable.iter().map(|id| format!(" {id}")).collect::<String>();
    let repeat = format!("dlq replay{ids} --force --reason \"its replay was lost\"");
    let edit = edited.map(|id| format!("dlq edit {id} --force --reason \"its edit was lost\""));
    let text =
        format!("{} at {service} without an outcome for too long", counted(*count, "replay", "replays"));
    Finding {
        service: Some(service.clone()),
        since: Some(*since),
        count: Some(*count),
        explanation: "The request to replay is lost, or is a dead letter itself. A forced replay asks again. It changes \
                      nothing that is done already. Repeat it until none is left."
            .to_owned(),
        commands: Some(repeat).filter(|_| !repeatable.is_empty()).into_iter().chain(edit).collect(),
        ..Finding::new(FindingCode::ReplaysOverdue, service, text)
    }
}

fn dead_letter_group(overview: &Overview, group: &GroupSummary, affected: &Affected) -> Finding {
    let GroupSummary { fingerprint, newest, step, service, count, .. } = group;
    // A message that an injected fault fails would fail again after any replay.
    let status = overview.services.iter().find(|status| status.service == *service);
    let injected =
        status.and_then(ServiceStatus::clear_faults_command).filter(|_| group.reason.contains("injected: "));
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
    let state = if group.awaited == 0 { ": to clean up, nobody waits" } else { "" };
    let is_awaited = group.awaited > 0;
    let awaited = affected.awaited.get(step).filter(|_| is_awaited);
    Finding {
        // The deadline cancels orders that could still be confirmed.
        urgent: is_awaited && group.first_until.is_some(),
        to_clean_up: !is_awaited,
        service: Some(service.clone()),
        since: Some(group.newest_at),
        count: Some(*count),
        impact: Impact {
            orders: Some(group.awaited).filter(|_| is_awaited),
            deadline: group.first_until,
            ..awaited.map(SagaSums::impact).unwrap_or_default()
        },
        explanation: format!("Cause: {}\n{}", group.reason, replay_value_text(group, affected)),
        commands,
        ..Finding::new(
            FindingCode::DeadLetters,
            fingerprint,
            format!("{text}, fingerprint {fingerprint}{state}"),
        )
    }
}

fn replay_value_text(group: &GroupSummary, affected: &Affected) -> String {
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
                " {} ended without them{}: a replay of those changes nothing.",
                counted(count, "saga", "sagas"),
                outcome_text(group, affected)
            )
        }
    };
    waiting + &ended
}

/// Describes what happened to the customers of ended sagas.
fn outcome_text(group: &GroupSummary, affected: &Affected) -> String {
    let were = if group.cancelled == 1 { "was" } else { "were" };
    let orders = counted(group.cancelled, "order", "orders");
    let amounts = affected.cancelled.get(&group.fingerprint).filter(|amounts| !amounts.is_empty());
    let of = amounts.map_or_else(String::new, |amounts| format!(" of {}", listed(amounts)));
    let cancelled = format!("{orders}{of} {were} cancelled");
    let confirmed = counted(group.confirmed, "was confirmed", "were confirmed");
    match (group.cancelled, group.confirmed) {
        (0, 0) => String::new(),
        (_, 0) => format!(" ({cancelled}, with any charge refunded)"),
        (0, confirmed) => {
            format!(" ({})", counted(confirmed, "order was confirmed", "orders were confirmed"))
        }
        (_, _) => format!(" ({cancelled}, with any charge refunded; {confirmed})"),
    }
}
