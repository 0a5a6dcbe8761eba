//! Pure: problems for people: admin's findings, and local processes that do not run.

use std::fmt::Write as _;

use admin_api::overview::{Finding, FindingCode, UNTRUSTED};
use contract::topology::{OPERATOR, PARTICIPANTS};
use serde::Serialize;

use super::snapshot::Snapshot;
use cli::view::View;

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

/// Lists all problems: processes that do not run, then the findings of admin. `command` is the start of commands.
pub fn problems(snapshot: &Snapshot, command: &str, view: &View) -> Vec<Problem> {
    if is_stopped(snapshot) {
        return vec![stopped(command)];
    }
    let down = snapshot.down.iter().flatten();
    let mut problems: Vec<_> = down.map(|name| not_running(name, snapshot, command, view)).collect();
    if let Some(problem) = snapshot.problem.as_ref().filter(|_| !snapshot.is_down(OPERATOR)) {
        problems.push(Problem {
            code: "admin_unreachable".to_owned(),
            text: format!("admin does not answer: {problem}"),
            explanation:
                "The state of sagas, dead letters and services is unknown until it answers. They continue \
                          without it."
                    .to_owned(),
            commands: restart(OPERATOR, snapshot, command),
        });
    }
    problems.extend(snapshot.findings().map(|finding| problem(finding, snapshot, command, view)));
    problems
}

fn problem(finding: &Finding, snapshot: &Snapshot, command: &str, view: &View) -> Problem {
    let mut commands: Vec<_> = finding.commands.iter().map(|words| format!("{command} {words}")).collect();
    let is_of_process =
        matches!(finding.code, FindingCode::Unreachable | FindingCode::NotReady | FindingCode::ConsumerStall);
    let is_paused = finding.commands.iter().any(|words| words.starts_with("faults clear"));
    // The process may hold the last copy of its database.
    let is_of_store = finding.code == FindingCode::NotReady && finding.key.ends_with("/store");
    // The process runs, and the file of its caller is read again without a restart.
    let is_untrusted = finding.text.contains(UNTRUSTED);
    let is_mended_by_restart = is_of_process && !is_paused && !is_of_store && !is_untrusted;
    if let Some(service) = finding.service.as_ref().filter(|_| is_mended_by_restart) {
        commands.extend(restart(service, snapshot, command));
    }
    let code = finding.code.to_string();
    Problem { code, text: line(finding, view), explanation: explanation(finding, view), commands }
}

/// Describes a finding in one line, with its start.
pub fn line(finding: &Finding, view: &View) -> String {
    let since = finding.since.map(|since| format!(" since {}", view.time(since))).unwrap_or_default();
    format!("{}{since}{}", finding.text, waiting(finding, view))
}

/// Describes the orders that wait while a finding lasts; empty without any.
fn waiting(finding: &Finding, view: &View) -> String {
    match finding.impact.orders {
        Some(_) => format!("; {}", finding.impact.text(|deadline| view.time(deadline))),
        None => String::new(),
    }
}

fn explanation(finding: &Finding, view: &View) -> String {
    let mut text = finding.explanation.clone();
    if let Some(acknowledged) = &finding.acknowledged {
        let _ = write!(text, "\n{}", acknowledged.text(|until| view.time(until)));
    }
    // Where orders wait, the line of the problem says so.
    if finding.impact.orders.is_some() {
        return text;
    }
    if let Some(deadline) = finding.impact.deadline {
        let _ = write!(text, "\nNext deadline: {}", view.time(deadline));
    }
    if let Some(money) = finding.impact.money() {
        let _ = write!(text, "\nAffected money: {money}");
    }
    text
}

/// True if no service of a local system runs.
fn is_stopped(snapshot: &Snapshot) -> bool {
    snapshot.down.is_some() && PARTICIPANTS.iter().all(|participant| snapshot.is_down(participant.name))
}

fn stopped(command: &str) -> Problem {
    Problem {
        code: "stopped".to_owned(),
        text: "the system is stopped".to_owned(),
        explanation: "None of its services runs. scripts/up.sh --detach builds and starts it again, with the same data.".to_owned(),
        commands: vec![format!("{command} up --detach")],
    }
}

fn not_running(name: &str, snapshot: &Snapshot, command: &str, view: &View) -> Problem {
    let mut explanation = match name {
        "nats" => {
            "Without the broker orders are accepted and wait in the outboxes. None is lost, but each is cancelled when its \
             deadline passes (60 s by default)."
        }
        OPERATOR => {
            "The saga view, dead letters and notifications are not updated until it is back. Orders continue without it."
        }
        _ => "Messages for it wait until it is back. Orders that need it wait until their deadline.",
    }
    .to_owned();
    if let Some(why) = snapshot.why_down.get(name) {
        let _ = write!(explanation, "\nWhy: {why}");
    }
    let mut commands = vec![format!("{command} start {name}")];
    let delaying = snapshot.unreachable(name).into_iter().flat_map(|finding| &finding.commands);
    commands.extend(delaying.map(|words| format!("{command} {words}")));
    Problem {
        code: "not_running".to_owned(),
        text: not_running_line(name, snapshot, view),
        explanation,
        commands,
    }
}

/// Describes a process that does not run in one line, with the orders that wait for it.
pub fn not_running_line(name: &str, snapshot: &Snapshot, view: &View) -> String {
    let waiting = snapshot.unreachable(name).map(|finding| waiting(finding, view)).unwrap_or_default();
    format!("{name} does not run{waiting}")
}

/// Returns the commands that restart a service of a local system.
fn restart(service: &str, snapshot: &Snapshot, command: &str) -> Vec<String> {
    match &snapshot.down {
        None => vec![],
        Some(_) if snapshot.is_down(service) => vec![format!("{command} start {service}")],
        Some(_) => vec![format!("{command} stop {service}"), format!("{command} start {service}")],
    }
}

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeMap;

    use admin::overview::affected::Affected;
    use admin::overview::findings::with_findings;
    use admin::overview::waiting_orders::{ByStep, with_waiting_orders};
    use admin::sagas::sums::{SagaSums, WaitingOrders};
    use admin_api::overview::{
        DeadLetterSummary, FailingCheck, FaultSummary, GroupSummary, OldestSaga, OpenBreaker, OutboxSummary,
        OverdueReplays, Overview, SagaSummary, ServiceStatus, StepDuration, StepStatus, TaskSummary,
        Unavailable,
    };
    use admin_api::reconciliation::{ReconciliationSummary, Verdict};
    use clap::Parser as _;
    use contract::saga::SagaStatus;
    use jiff::{SignedDuration, Timestamp};
    use uuid::Uuid;

    use super::super::text;
    use super::*;
    use crate::command::Arguments;

    const COMMAND: &str = "sagactl --data /data";

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
            oldest_at: at(0),
            awaited,
            ended: 1_234 - awaited,
            cancelled: 1_234 - awaited,
            confirmed: 0,
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

    /// Overview with every kind of finding.
    pub fn overview() -> Overview {
        let fault = FaultSummary { kind: "pause".to_owned(), step: Some("payment-processing".to_owned()) };
        let tasks = Some(TaskSummary { open: 2, oldest: Some(at(0)) });
        let services = vec![
            ServiceStatus {
                steps: vec![step("payment-processing", true)],
                failing_checks: ["store", "database", "startup", "overload", "other"].map(check).to_vec(),
                outbox: Some(OutboxSummary { pending: 0, oldest: None, failed: 1 }),
                breakers: vec![breaker("bank", false), breaker("payment-refund", true)],
                tasks: tasks.clone(),
                faults: vec![fault.clone(), fault],
                ..status("payment")
            },
            ServiceStatus {
                failing_checks: vec![
                    check("consumer_stall"),
                    FailingCheck { failed: false, ..check("overrides") },
                ],
                ..status("order")
            },
            ServiceStatus {
                steps: vec![step("inventory-sale", false)],
                retries: Some(3),
                retrying_since: Some(at(0)),
                ..status("inventory")
            },
            ServiceStatus { problem: Some("bank does not answer: refused".to_owned()), ..status("bank") },
            ServiceStatus { breakers: vec![breaker("webhook", false)], tasks, ..status("admin") },
        ];
        let by_status = BTreeMap::from([(SagaStatus::CompensationStuck.as_str().to_owned(), 1)]);
        let oldest = OldestSaga {
            id: Uuid::from_u128(8).to_string(),
            status: SagaStatus::Compensating.as_str().to_owned(),
            waits_for: Some("payment-refund".to_owned()),
            waits_since: Some(at(0)),
            waits_until: None,
        };
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
            sagas: Some(SagaSummary {
                by_status,
                overdue: 2,
                next_deadline: Some(at(410)),
                waiting: BTreeMap::from([("payment-processing".to_owned(), 150)]),
                oldest: Some(oldest),
                ended_counted: true,
                steps: vec![StepDuration {
                    step: "payment-processing".to_owned(),
                    sagas: 200,
                    p50_us: 9_300,
                    p99_us: 61_000_000,
                }],
            }),
            dead_letters: Some(DeadLetterSummary {
                pending: 5_000,
                replaying: 0,
                overdue_replays: vec![OverdueReplays {
                    service: "warehouse".to_owned(),
                    count: 3,
                    since: at(0),
                    repeatable: vec![Uuid::from_u128(8), Uuid::from_u128(9)],
                    edited: Some(Uuid::from_u128(10)),
                }],
                groups,
            }),
            reconciliation: Some(ReconciliationSummary {
                verdict: Verdict::Unbalanced,
                at: at(0),
                discrepancies: 2,
                resolved_to_check: 1,
            }),
            unconsumed: None,
            unavailable: vec![Unavailable { what: "sagas".to_owned(), problem: "too slow".to_owned() }],
        };
        let euro = serde_json::from_str(r#"{"amount_minor": 1299, "currency": "EUR"}"#).expect("money");
        let affected = Affected {
            stuck: SagaSums { amounts: vec![euro], is_partial: true, ..SagaSums::default() },
            stuck_is_discarded: true,
            cancelled: BTreeMap::from([("ended".to_owned(), vec![euro, euro])]),
            dead_letter_threshold: 100,
            ..Affected::default()
        };
        let (amounts, first_deadline) = (vec![euro], Some(at(410)));
        let charges = WaitingOrders { count: 150, first_deadline, amounts, amounts_partial: true };
        let refunds = WaitingOrders { count: 3, ..WaitingOrders::default() };
        let waiting = ByStep::from([("payment-processing", charges), ("payment-refund", refunds)]);
        with_waiting_orders(with_findings(overview, &affected), &waiting)
    }

    fn snapshot() -> Snapshot {
        let down = Some(vec!["nats".to_owned(), "bank".to_owned()]);
        Snapshot { down, overview: Some(overview()), ..Snapshot::default() }
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
        let found = problems(&snapshot(), COMMAND, &View::FILE);
        assert_eq!(found.len(), overview().findings.len() + 1, "the bank once, and nats");
        assert!(found.iter().all(|problem| !problem.explanation.is_empty() && !problem.commands.is_empty()));
        insta::assert_snapshot!("doctor", text::doctor(&found, &snapshot().faults(COMMAND)));
    }

    #[test]
    fn every_suggested_command_parses() {
        for Problem { text, commands, .. } in problems(&snapshot(), COMMAND, &View::FILE) {
            for command in commands {
                let named = command.replace("ORDER", &Uuid::nil().to_string());
                let parsed = Arguments::try_parse_from(words(&named));
                assert!(parsed.is_ok(), "{text}: {command}: {}", parsed.expect_err("rejected"));
            }
        }
    }

    #[test]
    fn problems_of_a_remote_system_suggest_no_restart() {
        let remote = Snapshot { down: None, ..snapshot() };
        let found = problems(&remote, "sagactl --admin http://host:1/", &View::FILE);
        let commands: Vec<_> = found.iter().flat_map(|problem| &problem.commands).collect();
        assert!(commands.iter().all(|command| !command.contains(" start ") && !command.contains(" stop ")));
        assert_eq!(found.len(), overview().findings.len());
    }

    #[test]
    fn stopped_system_is_one_problem_that_names_how_to_start_it() {
        let names = PARTICIPANTS.iter().map(|participant| participant.name).chain(["nats"]);
        let stopped = Snapshot { down: Some(names.map(str::to_owned).collect()), ..Snapshot::default() };
        let found = problems(&stopped, COMMAND, &View::FILE);
        assert_eq!((found.len(), found[0].code.as_str()), (1, "stopped"));
        assert_eq!(found[0].commands, ["sagactl --data /data up --detach"]);
        assert!(found[0].explanation.contains("scripts/up.sh"), "{found:?}");
    }

    #[test]
    fn service_without_its_database_file_is_not_advised_to_stop() {
        let found = problems(&snapshot(), COMMAND, &View::FILE);
        let store =
            found.iter().find(|problem| problem.text.contains("(store)")).expect("a store that fails");
        assert!(!store.commands.iter().any(|command| command.contains(" stop ")), "{store:?}");
        assert!(store.explanation.contains("copy that first"), "{store:?}");
    }

    #[test]
    fn admin_that_does_not_answer_is_the_only_problem() {
        let problem = Some("no answer".to_owned());
        let unreachable = Snapshot { down: Some(vec![]), problem, ..Snapshot::default() };
        let found = problems(&unreachable, COMMAND, &View::FILE);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].text, "admin does not answer: no answer");
        assert_eq!(
            found[0].commands,
            ["sagactl --data /data stop admin", "sagactl --data /data start admin"]
        );
        let stopped = Snapshot { down: Some(vec!["admin".to_owned()]), ..unreachable };
        let found = problems(&stopped, COMMAND, &View::FILE);
        assert_eq!((found.len(), found[0].code.as_str()), (1, "not_running"));
        assert!(stopped.needs_human());
    }

    #[test]
    fn process_that_does_not_run_is_listed_with_its_error() {
        let error = "payment: the database has schema 9, this build knows 7";
        let why_down = [("payment".to_owned(), error.to_owned())].into();
        let down = Some(vec!["bank".to_owned(), "payment".to_owned()]);
        let found = problems(&Snapshot { down, why_down, ..snapshot() }, COMMAND, &View::FILE);
        assert!(!found[0].explanation.contains("Why:"), "{found:#?}");
        assert!(found[1].explanation.ends_with(&format!("Why: {error}")), "{found:#?}");
    }

    #[test]
    fn doctor_without_problems_lists_injected_faults() {
        assert!(text::doctor(&[], &[]).starts_with("no human is needed"));
        let text = text::doctor(&[], &["1 fault is injected".to_owned()]);
        assert!(
            text.starts_with("no human is needed") && text.ends_with("\n1 fault is injected\n"),
            "{text}"
        );
    }
}
