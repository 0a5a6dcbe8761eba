//! Pure: the state of everything as text: first whether a human is needed, then the details.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use admin_api::overview::{
    DeadLetterSummary, GroupSummary, OldestSaga, OpenBreaker, Overview, SagaSummary, ServiceStatus,
    StepDuration,
};
use admin_api::text::{counted, grouped};
use contract::saga::ORDER_SAGA;

use super::problem::{Problem, line, not_running_line};
use super::snapshot::Snapshot;
use cli::table::{Column, left, removable, right, table, time, truncatable};
use cli::text::{NONE, indented, or_none};
use cli::time::duration;
use cli::view::View;

/// Formats the output of `sagactl status`. `processes` is the text for a local system.
pub fn status(snapshot: &Snapshot, processes: Option<&str>, command: &str, view: &View) -> String {
    let mut text = human_needed(snapshot, command, view) + &lines(&snapshot.faults(command));
    if let Some(processes) = processes {
        let _ = writeln!(text, "\n{processes}");
    }
    match (&snapshot.overview, &snapshot.problem) {
        (Some(overview), _) => text + "\n" + &details(overview, view),
        (None, problem) => {
            let problem = or_none(problem.as_ref());
            text + &format!(
                "\nadmin does not answer: {problem}\nsagas, dead letters and breakers are unknown"
            )
        }
    }
}

fn lines(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Formats the output of `sagactl doctor`. `faults` describes injected faults.
pub fn doctor(problems: &[Problem], faults: &[String]) -> String {
    let mut text = String::new();
    if problems.is_empty() {
        text.push_str("no human is needed: there is no problem that does not resolve itself\n");
    }
    for (number, Problem { text: what, explanation, commands, .. }) in problems.iter().enumerate() {
        let _ = write!(text, "{}. {what}\n{}", number + 1, indented(explanation, 3));
        for command in commands {
            let _ = writeln!(text, "     {command}");
        }
        text.push('\n');
    }
    text + &lines(faults)
}

fn human_needed(snapshot: &Snapshot, command: &str, view: &View) -> String {
    if !snapshot.needs_human() {
        return "no human is needed\n".to_owned() + &to_clean_up(snapshot, command, view);
    }
    let mut text = "a human is needed\n".to_owned();
    for name in snapshot.down.iter().flatten() {
        let _ = writeln!(text, "  {}", not_running_line(name, snapshot, view));
    }
    for finding in snapshot.findings().filter(|finding| !finding.to_clean_up) {
        let _ = writeln!(text, "  {}", line(finding, view));
    }
    let _ = writeln!(text, "next: {command} doctor");
    text + &to_clean_up(snapshot, command, view)
}

/// Lists what nobody waits for.
fn to_clean_up(snapshot: &Snapshot, command: &str, view: &View) -> String {
    let left: Vec<_> = snapshot.findings().filter(|finding| finding.to_clean_up).collect();
    if left.is_empty() {
        return String::new();
    }
    let mut text = format!("to clean up, when there is time ({command} doctor):\n");
    for finding in left {
        let _ = writeln!(text, "  {}", line(finding, view));
    }
    text
}

const SERVICES: [Column<ServiceStatus>; 8] = [
    left("service", |status| status.service.clone()),
    left("ready", |status| ready(status).to_owned()),
    right("unpublished", |status| or_none(status.outbox.as_ref().map(|outbox| grouped(outbox.pending)))),
    removable(2, time("oldest", |status| status.outbox.as_ref().and_then(|outbox| outbox.oldest))),
    right("rejected", |status| or_none(status.outbox.as_ref().map(|outbox| grouped(outbox.failed)))),
    removable(3, right("retries", |status| or_none(status.retries.map(grouped)))),
    removable(4, right("tasks", |status| or_none(status.tasks.as_ref().map(|tasks| grouped(tasks.open))))),
    removable(1, time("oldest task", |status| status.tasks.as_ref().and_then(|tasks| tasks.oldest))),
];

/// Readiness of a service in a word.
pub const fn ready(status: &ServiceStatus) -> &'static str {
    match (status.problem.is_some(), status.ready, status.degraded) {
        (true, _, _) => "no answer",
        (false, false, _) => "no",
        (false, true, true) => "degraded",
        (false, true, false) => "yes",
    }
}

fn details(overview: &Overview, view: &View) -> String {
    let mut text = table(&SERVICES, &overview.services, view) + "\n";
    for status in &overview.services {
        for check in &status.failing_checks {
            let since = view.time(check.since);
            let _ =
                writeln!(text, "{}: check {}: {} (since {since})", status.service, check.check, check.text);
        }
        for breaker in &status.breakers {
            let _ = writeln!(text, "{}", breaker_line(&status.service, breaker, view));
        }
    }
    for (remark, services) in remarks(overview) {
        let _ = writeln!(text, "{}: {remark}", services.join(", "));
    }
    let _ = writeln!(text, "{}", waiting(overview));
    if let Some(sagas) = &overview.sagas {
        let _ = write!(text, "\n{}{}", saga_lines(sagas, view), step_lines(&sagas.steps, view));
    }
    if let Some(dead_letters) = &overview.dead_letters {
        let _ = write!(text, "\n{}", dead_letter_lines(dead_letters, view));
    }
    let _ = writeln!(text, "\n{}", reconciliation(overview, view));
    for missing in &overview.unavailable {
        let _ = writeln!(text, "{} could not be read: {}", missing.what, missing.problem);
    }
    text
}

/// Lists remarks on the configuration, each once with its services.
fn remarks(overview: &Overview) -> BTreeMap<&str, Vec<&str>> {
    let mut remarks: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for status in &overview.services {
        for remark in &status.remarks {
            remarks.entry(remark).or_default().push(&status.service);
        }
    }
    remarks
}

/// Describes a breaker in one line.
pub fn breaker_line(service: &str, breaker: &OpenBreaker, view: &View) -> String {
    let OpenBreaker { name, state, since, why, .. } = breaker;
    let since = since.map(|since| format!(" since {}", view.time(since))).unwrap_or_default();
    let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("breaker {service}/{name} is {state}{since}{why}")
}

/// Describes the messages that wait at the broker, and admin's backlog.
fn waiting(overview: &Overview) -> String {
    let unconsumed = match overview.unconsumed {
        Some(0) => "admin has consumed everything".to_owned(),
        Some(count) => format!("{}: counts below lag", admin_backlog(count)),
        None => "admin's backlog is unknown".to_owned(),
    };
    format!("{}; {unconsumed}", broker_backlog(overview))
}

/// Describes admin's backlog.
pub fn admin_backlog(count: u64) -> String {
    format!("admin has yet to consume {}", counted(count, "message", "messages"))
}

/// Describes the messages that wait at the broker.
pub fn broker_backlog(overview: &Overview) -> String {
    let steps = overview.services.iter().flat_map(|status| &status.steps);
    let (mut waiting, mut unknown) = (Vec::new(), 0);
    for step in steps {
        match step.waiting {
            Some(0) => {}
            Some(count) => waiting.push(format!("{} {}", step.step, grouped(count))),
            None => unknown += 1,
        }
    }
    let no_answer = |of: &str| format!("unknown{of}: no answer from the broker");
    let known = match (waiting.join(" · "), unknown) {
        (known, 0) if known.is_empty() => "nothing".to_owned(),
        (known, 0) => known,
        (known, _) if known.is_empty() => no_answer(""),
        (known, count) => {
            format!("{known}; {}", no_answer(&format!(" of {}", counted(count, "step", "steps"))))
        }
    };
    // Each service reports its own steps. The bank has none.
    let has_steps = |service: &str| ORDER_SAGA.iter().any(|stage| stage.owner == service);
    let is_silent = |status: &&ServiceStatus| {
        status.problem.is_some() && status.steps.is_empty() && has_steps(&status.service)
    };
    let silent: Vec<_> =
        overview.services.iter().filter(is_silent).map(|status| status.service.as_str()).collect();
    match silent.as_slice() {
        [] => format!("waiting at the broker: {known}"),
        _ => format!("waiting at the broker: {known}; unknown for {}: no answer", silent.join(", ")),
    }
}

const STEPS: [Column<StepDuration>; 4] = [
    left("step", |step| step.step.clone()),
    right("sagas", |step| grouped(step.sagas)),
    right("p50", |step| took(step.p50_us)),
    right("p99", |step| took(step.p99_us)),
];

fn took(micros: u64) -> String {
    duration(i64::try_from(micros.div_ceil(1_000)).unwrap_or(i64::MAX))
}

fn step_lines(steps: &[StepDuration], view: &View) -> String {
    let head = "duration of each step in the newest sagas, with waiting, retries and calls:\n";
    if steps.is_empty() { String::new() } else { format!("\n{head}{}\n", table(&STEPS, steps, view)) }
}

/// Describes the counts of sagas and the oldest one.
pub fn saga_lines(sagas: &SagaSummary, view: &View) -> String {
    let counts: Vec<_> =
        sagas.by_status.iter().map(|(status, count)| format!("{status} {}", grouped(*count))).collect();
    let counts = if counts.is_empty() { "none".to_owned() } else { counts.join(" · ") };
    let ended = if sagas.ended_counted { "" } else { " (without ended ones)" };
    let mut text = format!("sagas: {counts}{ended}\n");
    if sagas.overdue > 0 {
        let _ = writeln!(text, "  {} OVERDUE", grouped(sagas.overdue));
    }
    if !sagas.waiting.is_empty() {
        let waiting = sagas.waiting.iter().map(|(step, count)| format!("{step} {}", grouped(*count)));
        let _ = writeln!(text, "  waiting for: {}", waiting.collect::<Vec<_>>().join(" · "));
    }
    if let Some(OldestSaga { id, status, waits_for, waits_since, waits_until }) = &sagas.oldest {
        let step = waits_for.as_ref().map(|step| format!(" waits for {step}")).unwrap_or_default();
        let since = waits_since.map(|since| format!(" since {}", view.time(since))).unwrap_or_default();
        let until = waits_until.map(|until| format!(", deadline {}", view.time(until))).unwrap_or_default();
        let _ = writeln!(text, "  oldest: {id} {status}{step}{since}{until}");
    }
    text
}

const GROUPS: [Column<GroupSummary>; 8] = [
    left("fingerprint", |group| group.fingerprint.clone()),
    removable(1, left("service", |group| group.service.clone())),
    left("step", |group| group.step.clone()),
    right("pending", |group| grouped(group.count)),
    removable(4, right("awaited", |group| grouped(group.awaited))),
    removable(2, time("first until", |group| group.first_until)),
    removable(3, time("newest", |group| Some(group.newest_at))),
    truncatable(left("cause", |group| group.reason.clone())),
];

fn dead_letter_lines(summary: &DeadLetterSummary, view: &View) -> String {
    let (pending, replaying) = (grouped(summary.pending), grouped(summary.replaying));
    let head = format!("dead letters: {pending} PENDING · {replaying} REPLAYING\n");
    if summary.groups.is_empty() { head } else { head + &table(&GROUPS, &summary.groups, view) + "\n" }
}

/// Describes the last reconciliation.
pub fn reconciliation(overview: &Overview, view: &View) -> String {
    match &overview.reconciliation {
        None => format!(
            "ledgers: {NONE} (no reconciliation yet, or none since a manual resolution: run sagactl reconcile)"
        ),
        Some(last) => {
            let count = counted(last.discrepancies, "discrepancy", "discrepancies");
            let to_check = match last.resolved_to_check {
                0 => String::new(),
                count => format!(
                    "; {} to check: run sagactl reconcile",
                    counted(count, "manual resolution", "manual resolutions")
                ),
            };
            format!(
                "ledgers: {} at the last reconciliation, {}; {count}{to_check}",
                last.verdict,
                view.time(last.at)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use admin_api::overview::StepStatus;
    use jiff::Timestamp;

    use super::*;

    fn nothing() -> Overview {
        Overview {
            at: Timestamp::UNIX_EPOCH,
            needs_human: false,
            findings: vec![],
            services: vec![],
            sagas: None,
            dead_letters: None,
            reconciliation: None,
            unconsumed: Some(0),
            unavailable: vec![],
        }
    }

    #[test]
    fn broker_backlog_is_known_by_step() {
        let text = |counts: &[Option<u64>]| {
            let step = |waiting: &Option<u64>| StepStatus {
                step: "payment-refund".to_owned(),
                waiting: *waiting,
                stalled_since: None,
                paused: false,
            };
            let service =
                ServiceStatus { steps: counts.iter().map(step).collect(), ..ServiceStatus::default() };
            waiting(&Overview { services: vec![service], ..nothing() })
        };
        let consumed = "; admin has consumed everything";
        assert_eq!(text(&[Some(0), Some(0)]), format!("waiting at the broker: nothing{consumed}"));
        assert_eq!(text(&[Some(3), Some(0)]), format!("waiting at the broker: payment-refund 3{consumed}"));
        let no_answer = "no answer from the broker";
        assert_eq!(text(&[None, None]), format!("waiting at the broker: unknown: {no_answer}{consumed}"));
        let some =
            format!("waiting at the broker: payment-refund 3; unknown of 1 step: {no_answer}{consumed}");
        assert_eq!(text(&[Some(3), None]), some);
    }

    #[test]
    fn backlog_of_a_service_without_answer_is_unknown() {
        let problem = Some("it does not answer".to_owned());
        let silent = ["payment", "bank"].map(|service| ServiceStatus {
            service: service.to_owned(),
            problem: problem.clone(),
            ..ServiceStatus::default()
        });
        let overview = Overview { services: silent.to_vec(), ..nothing() };
        let expected = "waiting at the broker: nothing; unknown for payment: no answer";
        assert_eq!(broker_backlog(&overview), expected);
    }
}
