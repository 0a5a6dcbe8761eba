//! Pure: how everything is, for people: first whether somebody is needed, then everything there is to see.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use admin_api::overview::{
    DeadLetterSummary, GroupSummary, OldestSaga, OpenBreaker, Overview, SagaSummary, ServiceStatus,
};
use admin_api::text::{counted, grouped};

use super::finding::{Problem, line};
use super::seen::Seen;
use cli::text::{NONE, indented, or_none};
use cli::{Column, View, left, removable, right, table, time, truncatable};

/// What `sagactl status` shows: `processes` are those of a local system, shown already.
pub fn status(seen: &Seen, processes: Option<&str>, call: &str, view: &View) -> String {
    let mut text = need(seen, call, view) + &lines(&seen.faults(call));
    if let Some(processes) = processes {
        let _ = writeln!(text, "\n{processes}");
    }
    match (&seen.overview, &seen.problem) {
        (Some(overview), _) => text + "\n" + &everything(overview, view),
        (None, problem) => {
            let problem = or_none(problem.as_ref());
            text + &format!(
                "\nadmin cannot be asked: {problem}\nnothing is known of sagas, dead letters and breakers"
            )
        }
    }
}

fn lines(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// What `sagactl doctor` says: `faults` are those that are injected, in words.
pub fn doctor(problems: &[Problem], faults: &[String]) -> String {
    let mut text = String::new();
    if problems.is_empty() {
        text.push_str("nobody is needed: nothing is wrong that does not mend itself\n");
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

fn need(seen: &Seen, call: &str, view: &View) -> String {
    if !seen.needs_human() {
        return "nobody is needed\n".to_owned();
    }
    let mut text = "a human is needed\n".to_owned();
    for name in seen.down.iter().flatten() {
        let _ = writeln!(text, "  {name} does not run");
    }
    for finding in seen.findings() {
        let _ = writeln!(text, "  {}", line(finding, view));
    }
    let _ = writeln!(text, "what to do: {call} doctor");
    text
}

const SERVICES: [Column<ServiceStatus>; 8] = [
    left("service", |look| look.service.clone()),
    left("ready", |look| ready(look).to_owned()),
    right("to publish", |look| or_none(look.outbox.as_ref().map(|outbox| grouped(outbox.pending)))),
    removable(2, time("oldest", |look| look.outbox.as_ref().and_then(|outbox| outbox.oldest))),
    right("refused", |look| or_none(look.outbox.as_ref().map(|outbox| grouped(outbox.failed)))),
    removable(3, right("retries", |look| or_none(look.retries.map(grouped)))),
    removable(4, right("calls", |look| or_none(look.tasks.as_ref().map(|calls| grouped(calls.open))))),
    removable(1, time("oldest call", |look| look.tasks.as_ref().and_then(|calls| calls.oldest))),
];

/// How a service is, in a word.
pub const fn ready(look: &ServiceStatus) -> &'static str {
    match (look.problem.is_some(), look.ready, look.degraded) {
        (true, _, _) => "no answer",
        (false, false, _) => "no",
        (false, true, true) => "degraded",
        (false, true, false) => "yes",
    }
}

fn everything(overview: &Overview, view: &View) -> String {
    let mut text = table(&SERVICES, &overview.services, view) + "\n";
    for look in &overview.services {
        for complaint in &look.failing_checks {
            let since = view.time(complaint.since);
            let _ = writeln!(
                text,
                "{} says: {}: {} (since {since})",
                look.service, complaint.check, complaint.text
            );
        }
        for breaker in &look.breakers {
            let _ = writeln!(text, "{}", breaker_line(&look.service, breaker, view));
        }
    }
    for (remark, services) in remarks(overview) {
        let _ = writeln!(text, "{}: {remark}", services.join(", "));
    }
    let _ = writeln!(text, "{}", waiting(overview));
    if let Some(sagas) = &overview.sagas {
        let _ = write!(text, "\n{}", sagas_lines(sagas, view));
    }
    if let Some(dead_letters) = &overview.dead_letters {
        let _ = write!(text, "\n{}", dead_letter_lines(dead_letters, view));
    }
    let _ = writeln!(text, "\n{}", books(overview, view));
    for missing in &overview.unavailable {
        let _ = writeln!(text, "{} could not be asked: {}", missing.what, missing.problem);
    }
    text
}

/// What services say of how they were set up, each thing once, with who says it.
fn remarks(overview: &Overview) -> BTreeMap<&str, Vec<&str>> {
    let mut remarks: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for look in &overview.services {
        for remark in &look.remarks {
            remarks.entry(remark).or_default().push(&look.service);
        }
    }
    remarks
}

/// A breaker in one line.
pub fn breaker_line(service: &str, breaker: &OpenBreaker, view: &View) -> String {
    let OpenBreaker { name, state, since, why, .. } = breaker;
    let since = since.map(|since| format!(" since {}", view.time(since))).unwrap_or_default();
    let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("breaker {service}/{name} is {state}{since}{why}")
}

/// What the broker has for steps, and how far admin is behind.
fn waiting(overview: &Overview) -> String {
    let behind = match overview.unconsumed {
        Some(0) => "admin has heard everything".to_owned(),
        Some(count) => format!("{}: what follows is behind", still_to_hear(count)),
        None => "how far admin is behind is not known".to_owned(),
    };
    format!("{}; {behind}", at_the_broker(overview))
}

/// How far admin is behind.
pub fn still_to_hear(count: u64) -> String {
    format!("admin has still to hear {}", counted(count, "message", "messages"))
}

/// What the broker has for steps.
pub fn at_the_broker(overview: &Overview) -> String {
    let steps = overview.services.iter().flat_map(|look| &look.steps);
    let (mut waiting, mut unknown) = (Vec::new(), 0);
    for step in steps {
        match step.waiting {
            Some(0) => {}
            Some(count) => waiting.push(format!("{} {}", step.step, grouped(count))),
            None => unknown += 1,
        }
    }
    let silent = |of: &str| format!("not known{of}: the broker does not say");
    let known = match (waiting.join(" · "), unknown) {
        (known, 0) if known.is_empty() => "nothing".to_owned(),
        (known, 0) => known,
        (known, _) if known.is_empty() => silent(""),
        (known, count) => format!("{known}; {}", silent(&format!(" of {}", counted(count, "step", "steps")))),
    };
    format!("waits at the broker: {known}")
}

/// Where the sagas stand.
pub fn sagas_lines(sagas: &SagaSummary, view: &View) -> String {
    let counts: Vec<_> =
        sagas.by_status.iter().map(|(status, count)| format!("{status} {}", grouped(*count))).collect();
    let counts = if counts.is_empty() { "none".to_owned() } else { counts.join(" · ") };
    let ended = if sagas.ended_counted { "" } else { " (those that have ended were not counted)" };
    let mut text = format!("sagas: {counts}{ended}\n");
    if sagas.overdue > 0 {
        let _ = writeln!(text, "  {} OVERDUE", grouped(sagas.overdue));
    }
    if let Some(OldestSaga { id, status, waits_for, waits_since, waits_until }) = &sagas.oldest {
        let step = waits_for.as_ref().map(|step| format!(" waits for {step}")).unwrap_or_default();
        let since = waits_since.map(|since| format!(" since {}", view.time(since))).unwrap_or_default();
        let until = waits_until.map(|until| format!(", until {}", view.time(until))).unwrap_or_default();
        let _ = writeln!(text, "  the oldest: {id} {status}{step}{since}{until}");
    }
    text
}

const GROUPS: [Column<GroupSummary>; 8] = [
    left("fingerprint", |group| group.fingerprint.clone()),
    removable(1, left("service", |group| group.service.clone())),
    left("step", |group| group.step.clone()),
    right("waiting", |group| grouped(group.count)),
    removable(4, right("awaited", |group| grouped(group.awaited))),
    removable(2, time("first until", |group| group.first_until)),
    removable(3, time("newest", |group| Some(group.newest_at))),
    truncatable(left("cause", |group| group.reason.clone())),
];

fn dead_letter_lines(look: &DeadLetterSummary, view: &View) -> String {
    let (pending, replaying) = (grouped(look.pending), grouped(look.replaying));
    let head = format!("dead letters: {pending} PENDING · {replaying} REPLAYING\n");
    if look.groups.is_empty() { head } else { head + &table(&GROUPS, &look.groups, view) + "\n" }
}

/// What the last look at the books came to.
pub fn books(overview: &Overview, view: &View) -> String {
    match &overview.reconciliation {
        None => format!(
            "ledgers: {NONE} (no reconciliation yet, or none since a manual resolution: run sagactl reconcile)"
        ),
        Some(books) => {
            let count = grouped(books.discrepancies);
            format!(
                "ledgers: {} at the last reconciliation, {}; {count} discrepancies",
                books.verdict,
                view.time(books.at)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use admin_api::overview::StepStatus;
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn what_waits_is_told_as_far_as_it_is_known() {
        let told = |counts: &[Option<u64>]| {
            let step = |waiting: &Option<u64>| StepStatus {
                step: "payment-refund".to_owned(),
                waiting: *waiting,
                stalled_since: None,
                paused: false,
            };
            let service =
                ServiceStatus { steps: counts.iter().map(step).collect(), ..ServiceStatus::default() };
            waiting(&Overview {
                at: Timestamp::UNIX_EPOCH,
                needs_human: false,
                findings: vec![],
                services: vec![service],
                sagas: None,
                dead_letters: None,
                reconciliation: None,
                unconsumed: Some(0),
                unavailable: vec![],
            })
        };
        let heard = "; admin has heard everything";
        assert_eq!(told(&[Some(0), Some(0)]), format!("waits at the broker: nothing{heard}"));
        assert_eq!(told(&[Some(3), Some(0)]), format!("waits at the broker: payment-refund 3{heard}"));
        let silent = "the broker does not say";
        assert_eq!(told(&[None, None]), format!("waits at the broker: not known: {silent}{heard}"));
        let some = format!("waits at the broker: payment-refund 3; not known of 1 step: {silent}{heard}");
        assert_eq!(told(&[Some(3), None]), some);
    }
}
