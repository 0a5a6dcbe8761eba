//! Pure: findings for people: those of admin, and those of local processes.

use std::fmt::Write as _;

use admin_api::overview::{Finding, FindingCode};
use contract::topology::OPERATOR;
use serde::Serialize;

use super::seen::Seen;
use cli::View;

/// A problem that needs a human.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Kind of problem, such as `dead_letters` or `not_running`.
    pub code: String,
    /// Problem in one line.
    pub text: String,
    /// Consequences and likely causes.
    pub explanation: String,
    /// Commands to go on with, in this order, as a shell takes them; `ORDER` stands for the id of an order.
    pub commands: Vec<String>,
}

/// Lists all problems: processes that do not run, then the findings of admin. `call` is how commands start.
pub fn problems(seen: &Seen, call: &str, view: &View) -> Vec<Problem> {
    let down = seen.down.iter().flatten();
    let mut problems: Vec<_> = down.map(|name| not_running(name, seen, call)).collect();
    if let Some(problem) = seen.problem.as_ref().filter(|_| !seen.is_down(OPERATOR)) {
        problems.push(Problem {
            code: "admin_unreachable".to_owned(),
            text: format!("admin does not answer: {problem}"),
            explanation:
                "The state of sagas, dead letters and services is unknown until it answers. They continue \
                          without it."
                    .to_owned(),
            commands: restart(OPERATOR, seen, call),
        });
    }
    problems.extend(seen.findings().map(|finding| problem(finding, seen, call, view)));
    problems
}

fn problem(finding: &Finding, seen: &Seen, call: &str, view: &View) -> Problem {
    let mut commands: Vec<_> = finding.commands.iter().map(|words| format!("{call} {words}")).collect();
    let is_of_process =
        matches!(finding.code, FindingCode::Unreachable | FindingCode::NotReady | FindingCode::ConsumerStall);
    let is_paused = finding.commands.iter().any(|words| words.starts_with("faults clear"));
    if let Some(service) = finding.service.as_ref().filter(|_| is_of_process && !is_paused) {
        commands.extend(restart(service, seen, call));
    }
    let code = finding.code.to_string();
    Problem { code, text: line(finding, view), explanation: explanation(finding, view), commands }
}

/// Describes a finding in one line, with its start.
pub fn line(finding: &Finding, view: &View) -> String {
    let since = finding.since.map(|since| format!(" since {}", view.time(since))).unwrap_or_default();
    format!("{}{since}", finding.text)
}

fn explanation(finding: &Finding, view: &View) -> String {
    let mut text = finding.explanation.clone();
    if let Some(deadline) = finding.deadline {
        let _ = write!(text, "\nNext deadline: {}", view.time(deadline));
    }
    if !finding.amounts.is_empty() {
        let amounts: Vec<_> = finding.amounts.iter().map(ToString::to_string).collect();
        let _ = write!(text, "\nAffected money: {}", amounts.join(", "));
    }
    text
}

fn not_running(name: &str, seen: &Seen, call: &str) -> Problem {
    let mut explanation = match name {
        "nats" => "Without the broker orders are accepted and wait in the outboxes. Nothing is lost.",
        OPERATOR => {
            "The saga view, dead letters and notifications are not updated until it is back. Orders continue without it."
        }
        _ => "Messages for it wait until it is back. Orders that need it wait until their deadline.",
    }
    .to_owned();
    if let Some(why) = seen.why_down.get(name) {
        let _ = write!(explanation, "\nWhy: {why}");
    }
    let commands = vec![format!("{call} start {name}")];
    Problem { code: "not_running".to_owned(), text: format!("{name} does not run"), explanation, commands }
}

/// Returns the commands that restart a service of a local system.
fn restart(service: &str, seen: &Seen, call: &str) -> Vec<String> {
    match &seen.down {
        None => vec![],
        Some(_) if seen.is_down(service) => vec![format!("{call} start {service}")],
        Some(_) => vec![format!("{call} stop {service}"), format!("{call} start {service}")],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use admin::overview::findings::{Affected, with_findings};
    use admin_api::overview::{
        DeadLetterSummary, FailingCheck, FaultSummary, GroupSummary, OpenBreaker, OutboxSummary, Overview,
        SagaSummary, ServiceStatus, StepStatus, TaskSummary, Unavailable,
    };
    use admin_api::reconciliation::{ReconciliationSummary, Verdict};
    use clap::Parser as _;
    use contract::saga::SagaStatus;
    use jiff::{SignedDuration, Timestamp};
    use uuid::Uuid;

    use super::super::shown;
    use super::*;
    use crate::command::Arguments;

    const CALL: &str = "sagactl --data /data";

    fn at(second: i64) -> Timestamp {
        "2026-11-20T14:18:00Z".parse::<Timestamp>().expect("a time") + SignedDuration::from_secs(second)
    }

    fn check(name: &str) -> FailingCheck {
        FailingCheck { check: name.to_owned(), failed: true, text: "is odd".to_owned(), since: at(0) }
    }

    fn group(fingerprint: &str, awaited: u64, until: Option<(i64, i64)>) -> GroupSummary {
        GroupSummary {
            fingerprint: fingerprint.to_owned(),
            count: 1_234,
            service: "payment".to_owned(),
            step: "payment-processing".to_owned(),
            reason: "injected: fail_permanently".to_owned(),
            foreign: fingerprint == "foreign",
            newest: Uuid::from_u128(7),
            newest_at: at(30),
            awaited,
            ended: 1_234 - awaited,
            first_until: until.map(|(first, _)| at(first)),
            last_until: until.map(|(_, last)| at(last)),
        }
    }

    fn breaker(name: &str, forced: bool) -> OpenBreaker {
        let state = if forced { "FORCED_OPEN" } else { "OPEN" }.to_owned();
        let why = Some("6 of 10 calls failed".to_owned());
        OpenBreaker { name: name.to_owned(), state, forced, since: Some(at(0)), why }
    }

    fn status(service: &str) -> ServiceStatus {
        ServiceStatus { service: service.to_owned(), ..ServiceStatus::default() }
    }

    fn step(name: &str, paused: bool) -> StepStatus {
        StepStatus { step: name.to_owned(), waiting: Some(3), stalled_since: Some(at(0)), paused }
    }

    /// Everything that admin has a rule for.
    fn overview() -> Overview {
        let fault = FaultSummary { kind: "pause".to_owned(), step: Some("payment-processing".to_owned()) };
        let tasks = Some(TaskSummary { open: 2, oldest: Some(at(0)) });
        let services = vec![
            ServiceStatus {
                steps: vec![step("payment-processing", true)],
                failing_checks: ["store", "database", "requests", "other"].map(check).to_vec(),
                outbox: Some(OutboxSummary { pending: 0, oldest: None, failed: 1 }),
                breakers: vec![breaker("bank", false), breaker("payment-refund", true)],
                tasks: tasks.clone(),
                faults: vec![fault.clone(), fault],
                ..status("payment")
            },
            ServiceStatus { failing_checks: vec![check("steps")], ..status("order") },
            ServiceStatus { steps: vec![step("inventory-sale", false)], ..status("inventory") },
            ServiceStatus { problem: Some("bank does not answer: refused".to_owned()), ..status("bank") },
            ServiceStatus { breakers: vec![breaker("webhook", false)], tasks, ..status("admin") },
        ];
        let by_status = BTreeMap::from([(SagaStatus::CompensationStuck.as_str().to_owned(), 1)]);
        let groups = vec![
            group("two-deadlines", 1_000, Some((60, 90))),
            group("no-deadline", 1_234, None),
            group("ended", 0, None),
            group("foreign", 0, None),
        ];
        let overview = Overview {
            at: at(400),
            needs_human: true,
            findings: vec![],
            services,
            sagas: Some(SagaSummary { by_status, overdue: 2, ..SagaSummary::default() }),
            dead_letters: Some(DeadLetterSummary { pending: 5_000, replaying: 0, groups }),
            reconciliation: Some(ReconciliationSummary {
                verdict: Verdict::Unbalanced,
                at: at(0),
                discrepancies: 2,
            }),
            unconsumed: None,
            unavailable: vec![Unavailable { what: "sagas".to_owned(), problem: "too slow".to_owned() }],
        };
        let euro = serde_json::from_str(r#"{"amount_minor": 1299, "currency": "EUR"}"#).expect("money");
        let affected = Affected { stuck: vec![euro], overdue: vec![], dead_letter_threshold: 100 };
        with_findings(overview, &affected)
    }

    fn seen() -> Seen {
        let down = Some(vec!["nats".to_owned(), "bank".to_owned()]);
        Seen { down, overview: Some(overview()), ..Seen::default() }
    }

    /// Splits a command into words as a shell does.
    fn words(command: &str) -> Vec<String> {
        let in_quotes = command.split('"').enumerate();
        let words = in_quotes.flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
            _ => vec![part.to_owned()],
        });
        words.collect()
    }

    #[test]
    fn doctor_explains_every_problem_and_suggests_commands() {
        let found = problems(&seen(), CALL, &View::FILE);
        assert_eq!(found.len(), overview().findings.len() + 1, "the bank once, and nats");
        assert!(found.iter().all(|problem| !problem.explanation.is_empty() && !problem.commands.is_empty()));
        insta::assert_snapshot!("doctor", shown::doctor(&found, &seen().faults(CALL)));
    }

    #[test]
    fn every_suggested_command_can_be_typed() {
        for Problem { text, commands, .. } in problems(&seen(), CALL, &View::FILE) {
            for command in commands {
                let named = command.replace("ORDER", &Uuid::nil().to_string());
                let parsed = Arguments::try_parse_from(words(&named));
                assert!(parsed.is_ok(), "{text}: {command}: {}", parsed.expect_err("refused"));
            }
        }
    }

    #[test]
    fn no_process_of_a_system_elsewhere_is_restarted() {
        let elsewhere = Seen { down: None, ..seen() };
        let found = problems(&elsewhere, "sagactl --admin http://host:1/", &View::FILE);
        let commands: Vec<_> = found.iter().flat_map(|problem| &problem.commands).collect();
        assert!(commands.iter().all(|command| !command.contains(" start ") && !command.contains(" stop ")));
        assert_eq!(found.len(), overview().findings.len());
    }

    #[test]
    fn admin_that_does_not_answer_is_the_only_problem() {
        let problem = Some("nobody answers".to_owned());
        let silent = Seen { down: Some(vec![]), problem, ..Seen::default() };
        let found = problems(&silent, CALL, &View::FILE);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].text, "admin does not answer: nobody answers");
        assert_eq!(
            found[0].commands,
            ["sagactl --data /data stop admin", "sagactl --data /data start admin"]
        );
        let stopped = Seen { down: Some(vec!["admin".to_owned()]), ..silent };
        let found = problems(&stopped, CALL, &View::FILE);
        assert_eq!((found.len(), found[0].code.as_str()), (1, "not_running"));
        assert!(stopped.needs_human());
    }

    #[test]
    fn process_that_does_not_run_is_listed_with_its_error() {
        let error = "payment: the database has schema 9, this build knows 7";
        let why_down = [("payment".to_owned(), error.to_owned())].into();
        let down = Some(vec!["bank".to_owned(), "payment".to_owned()]);
        let found = problems(&Seen { down, why_down, ..seen() }, CALL, &View::FILE);
        assert!(!found[0].explanation.contains("Why:"), "{found:#?}");
        assert!(found[1].explanation.ends_with(&format!("Why: {error}")), "{found:#?}");
    }

    #[test]
    fn doctor_without_problems_lists_injected_faults() {
        assert!(shown::doctor(&[], &[]).starts_with("nobody is needed"));
        let text = shown::doctor(&[], &["1 fault is injected".to_owned()]);
        assert!(text.starts_with("nobody is needed") && text.ends_with("\n1 fault is injected\n"), "{text}");
    }
}
