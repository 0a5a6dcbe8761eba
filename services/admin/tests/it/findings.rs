//! Pure: the rules by which a problem needs a human, and what notifications take of their result.

use std::collections::BTreeMap;

use admin::notifications::content::NOTIFICATION_TASK;
use admin::notifications::settings::RECEIVER;
use admin::overview::affected::Affected;
use admin::overview::findings::with_findings;
use admin::overview::notifiable::{notifiable, unknown_keys};
use admin::overview::waiting_orders::{ByStep, delayed_steps, with_waiting_orders};
use admin::sagas::sums::{SagaSums, WaitingOrders};
use admin_api::overview::{
    DeadLetterSummary, FailingCheck, FaultSummary, FindingCode, GroupSummary, OpenBreaker, OutboxSummary,
    OverdueReplays, Overview, SagaSummary, ServiceStatus, StepStatus, TaskSummary, Unavailable,
};
use admin_api::reconciliation::{ReconciliationSummary, Verdict};
use contract::bank::{LedgerCheck, LedgerRejection};
use contract::money::Money;
use contract::saga::SagaStatus;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn before(seconds: i64) -> Timestamp {
    NOW - SignedDuration::from_secs(seconds)
}

fn service(name: &str) -> ServiceStatus {
    let outbox = Some(OutboxSummary { pending: 0, oldest: None, failed: 0 });
    ServiceStatus { service: name.to_owned(), ready: true, outbox, ..ServiceStatus::default() }
}

fn group(service: &str, step: &str) -> GroupSummary {
    GroupSummary {
        fingerprint: "f".to_owned(),
        count: 2,
        service: service.to_owned(),
        step: step.to_owned(),
        reason: "no way".to_owned(),
        foreign: false,
        newest: Uuid::nil(),
        newest_at: NOW,
        oldest_at: NOW,
        awaited: 1,
        ended: 1,
        cancelled: 1,
        confirmed: 0,
        first_until: Some(NOW),
        last_until: Some(NOW),
    }
}

fn breaker(name: &str, seconds: i64, forced: bool) -> OpenBreaker {
    OpenBreaker {
        name: name.to_owned(),
        state: "OPEN".to_owned(),
        forced,
        since: Some(before(seconds)),
        why: None,
    }
}

fn check(name: &str, failed: bool) -> FailingCheck {
    FailingCheck { check: name.to_owned(), failed, text: "gone".to_owned(), since: NOW }
}

fn stalled(step: &str, paused: bool) -> StepStatus {
    StepStatus { step: step.to_owned(), waiting: Some(3), stalled_since: Some(before(60)), paused }
}

fn well() -> Overview {
    Overview {
        at: NOW,
        needs_human: false,
        findings: vec![],
        services: vec![service("admin"), service("payment")],
        sagas: Some(SagaSummary::default()),
        dead_letters: Some(DeadLetterSummary::default()),
        reconciliation: Some(ReconciliationSummary {
            verdict: Verdict::Balanced,
            at: NOW,
            discrepancies: 0,
            resolved_to_check: 0,
        }),
        unconsumed: Some(0),
        unavailable: vec![],
    }
}

fn evaluated(change: impl FnOnce(&mut Overview)) -> Overview {
    let mut overview = well();
    change(&mut overview);
    with_findings(overview, &Affected { dead_letter_threshold: 100, ..Affected::default() })
}

fn keys(change: impl FnOnce(&mut Overview)) -> Vec<String> {
    let overview = evaluated(change);
    assert_eq!(overview.needs_human, overview.findings.iter().any(|finding| !finding.to_clean_up));
    overview.findings.into_iter().map(|finding| finding.key).collect()
}

fn rejected_ledger() -> LedgerCheck {
    let rejected = LedgerRejection { by: Some(Uuid::from_u128(2)), why: "it is empty".to_owned() };
    LedgerCheck { named: Some(Uuid::from_u128(1)), rejected: Some(rejected) }
}

#[test]
fn rejected_ledger_is_a_finding_with_both_ledgers_and_the_words_of_the_bank() {
    let finding = |ledger: Option<LedgerCheck>| {
        let overview = evaluated(|all| all.services[1].bank_ledger = ledger);
        overview.findings.into_iter().next()
    };
    let found = finding(Some(rejected_ledger())).expect("a finding");
    for ledger in [Uuid::from_u128(1), Uuid::from_u128(2)] {
        assert!(found.text.contains(&ledger.to_string()), "{found:?}");
    }
    assert!(found.explanation.contains("it is empty"), "{found:?}");
    assert_eq!(finding(Some(LedgerCheck { rejected: None, ..rejected_ledger() })), None);
    assert_eq!(finding(None), None);
}

/// An overview with every problem that has a rule.
fn everything(all: &mut Overview) {
    let payment = &mut all.services[1];
    let checks = [
        ("consumer_stall", true),
        ("store", true),
        ("disk", false),
        ("crashes", false),
        ("overrides", false),
    ];
    payment.failing_checks = checks.map(|(name, failed)| check(name, failed)).into();
    payment.steps = vec![stalled("payment-refund", false)];
    payment.outbox = Some(OutboxSummary { pending: 0, oldest: None, failed: 1 });
    payment.breakers = vec![breaker("bank", 3_600, false)];
    payment.tasks = Some(TaskSummary { open: 1, oldest: Some(before(3_600)) });
    payment.bank_ledger = Some(rejected_ledger());
    (all.services[0].retries, all.services[0].retrying_since) = (Some(3), Some(before(3_600)));
    all.services[0].failing_checks = vec![check("broker", false)];
    all.services
        .push(ServiceStatus { problem: Some("order does not answer".to_owned()), ..service("order") });
    let by_status = BTreeMap::from([(SagaStatus::CompensationStuck.as_str().to_owned(), 1)]);
    all.sagas = Some(SagaSummary { by_status, overdue: 1, ..SagaSummary::default() });
    let groups = vec![group("payment", "payment-refund")];
    all.dead_letters =
        Some(DeadLetterSummary { pending: 100, replaying: 0, groups, ..DeadLetterSummary::default() });
    all.reconciliation = Some(ReconciliationSummary {
        verdict: Verdict::Unbalanced,
        at: NOW,
        discrepancies: 1,
        resolved_to_check: 0,
    });
    all.unavailable = vec![Unavailable { what: "sagas".to_owned(), problem: "too slow".to_owned() }];
}

#[test]
fn every_problem_is_a_finding_with_a_key_of_its_own() {
    let wanted = [
        "consumer_stall:payment/payment-refund",
        "not_ready:payment/store",
        "disk_space_low:payment",
        "crash_loop:payment",
        "overrides_unreadable:payment",
        "unreachable:order",
        "broker_unavailable",
        "compensation_stuck",
        "dead_letters:f",
        "more_dead_letters",
        "many_dead_letters",
        "retries_overdue:admin",
        "messages_rejected:payment",
        "breaker_open:payment/bank",
        "tasks_overdue:payment",
        "bank_ledger_rejected:payment",
        "sagas_overdue",
        "ledgers_unbalanced",
        "unavailable:sagas",
    ];
    assert_eq!(keys(everything), wanted);
    let urgent = evaluated(everything).findings.into_iter().filter(|finding| finding.urgent);
    let wanted = [
        "consumer_stall:payment/payment-refund",
        "not_ready:payment/store",
        "disk_space_low:payment",
        "crash_loop:payment",
        "unreachable:order",
        "broker_unavailable",
        "compensation_stuck",
        "dead_letters:f",
        "many_dead_letters",
        "messages_rejected:payment",
        "breaker_open:payment/bank",
        "tasks_overdue:payment",
        "bank_ledger_rejected:payment",
        "sagas_overdue",
        "ledgers_unbalanced",
    ];
    assert_eq!(urgent.map(|finding| finding.key).collect::<Vec<_>>(), wanted);
}

#[test]
fn every_finding_has_text_explanation_and_commands() {
    for finding in evaluated(everything).findings {
        assert!(!finding.text.is_empty() && finding.text.lines().count() == 1, "{finding:?}");
        assert!(!finding.explanation.is_empty(), "{finding:?}");
        let is_of_process = finding.may_pass;
        assert!(!finding.commands.is_empty() || is_of_process, "{finding:?}");
    }
}

#[test]
fn problems_that_resolve_themselves_are_no_findings() {
    assert_eq!(keys(|_| {}), [""; 0]);
    let degraded = keys(|all| {
        let payment = &mut all.services[1];
        (payment.degraded, payment.failing_checks) = (true, vec![check("outbox", false)]);
        payment.outbox = Some(OutboxSummary { pending: 9, oldest: Some(before(999)), failed: 0 });
        payment.breakers = vec![breaker("bank", 60, false)];
        payment.tasks = Some(TaskSummary { open: 3, oldest: Some(before(90)) });
        payment.faults = vec![FaultSummary { kind: "pause".to_owned(), step: None }];
        all.dead_letters = Some(DeadLetterSummary {
            pending: 0,
            replaying: 3,
            groups: vec![],
            ..DeadLetterSummary::default()
        });
    });
    assert_eq!(degraded, [""; 0]);
}

#[test]
fn broker_that_services_cannot_use_is_one_urgent_finding_that_names_them() {
    let found = |checks: [&str; 2]| {
        let overview = evaluated(|all| {
            for (service, name) in all.services.iter_mut().zip(checks) {
                service.failing_checks = vec![check(name, false)];
            }
        });
        overview
            .findings
            .into_iter()
            .map(|finding| (finding.key, finding.text, finding.urgent))
            .collect::<Vec<_>>()
    };
    for checks in [["broker", "publish_stall"], ["publish_stall", "broker"]] {
        let text = "admin, payment cannot use the broker: gone".to_owned();
        assert_eq!(found(checks), [("broker_unavailable".to_owned(), text, true)]);
    }
    assert_eq!(found(["broker", "clock"])[0].1, "admin cannot use the broker: gone");
}

#[test]
fn breaker_and_task_are_findings_after_their_limits() {
    let late = keys(|all| {
        all.services[1].breakers = vec![breaker("bank", 61, false), breaker("other", 0, true)];
        all.services[1].tasks = Some(TaskSummary { open: 3, oldest: Some(before(91)) });
    });
    assert_eq!(late, ["breaker_open:payment/bank", "breaker_open:payment/other", "tasks_overdue:payment"]);
}

/// Regression: dead letters were missing from admin's list, and nothing said so.
#[test]
fn message_retried_for_long_is_finding_unless_breaker_explains_it() {
    let retrying = |seconds: i64, breakers: Vec<OpenBreaker>| {
        keys(|all| {
            let admin = &mut all.services[0];
            (admin.retries, admin.retrying_since, admin.breakers) =
                (Some(1), Some(before(seconds)), breakers);
        })
    };
    assert_eq!(retrying(300, vec![]), [""; 0]);
    assert_eq!(retrying(301, vec![]), ["retries_overdue:admin"]);
    assert_eq!(retrying(301, vec![breaker("admin-saga-view", 1, false)]), [""; 0]);
}

#[test]
fn finding_has_money_deadline_and_count_of_what_it_affects() {
    let mut overview = well();
    everything(&mut overview);
    let euro: Money = serde_json::from_str(r#"{"amount_minor": 1299, "currency": "EUR"}"#).expect("money");
    let stuck = SagaSums { amounts: vec![euro], ..SagaSums::default() };
    let affected = Affected { stuck, dead_letter_threshold: 1_000, ..Affected::default() };
    let findings = with_findings(overview, &affected).findings;
    let of = |key: &str| findings.iter().find(|finding| finding.key == key).expect("a finding");
    assert_eq!(
        (&of("compensation_stuck").impact.amounts, of("compensation_stuck").count),
        (&vec![euro], Some(1))
    );
    assert_eq!((of("dead_letters:f").impact.deadline, of("dead_letters:f").count), (Some(NOW), Some(2)));
    assert!(findings.iter().all(|finding| finding.key != "many_dead_letters"), "below the threshold");
}

#[test]
fn finding_that_delays_orders_counts_them_and_suggests_to_extend_those_with_a_deadline() {
    let euro: Money = serde_json::from_str(r#"{"amount_minor": 1299, "currency": "EUR"}"#).expect("money");
    let orders = |count, until: Option<Timestamp>| WaitingOrders {
        count,
        first_deadline: until,
        amounts: vec![euro],
        amounts_partial: count > 2,
    };
    let waiting = ByStep::from([
        ("inventory-stock-reservation", orders(7, Some(before(3)))),
        ("payment-processing", orders(2, Some(NOW))),
        ("payment-refund", orders(3, None)),
    ]);
    let found = |change: &dyn Fn(&mut Overview)| {
        let overview = evaluated(change);
        let delayed: Vec<_> = delayed_steps(&overview.findings).into_iter().collect();
        let overview = with_waiting_orders(overview, &waiting);
        let [finding] = overview.findings.as_slice() else { panic!("one finding: {overview:?}") };
        (delayed, finding.clone())
    };
    let extend = "saga extend --stuck-at payment-processing --for 10m --reason \"time to fix the cause\"";
    let list = "saga list --stuck-at payment-processing";
    let of_payment = ["payment-processing", "payment-refund"];

    let gone = Some("gone".to_owned());
    let (delayed, bank) = found(&|all| {
        all.services.push(ServiceStatus { problem: gone.clone(), ..service("bank") });
    });
    assert_eq!(delayed, of_payment, "payment calls the bank");
    assert_eq!(
        (bank.impact.orders, bank.impact.cancelled_orders, bank.impact.deadline),
        (Some(2), Some(3), Some(NOW))
    );
    assert_eq!(
        (&bank.impact.amounts, bank.impact.amounts_partial),
        (&vec![euro], false),
        "of those that may be confirmed"
    );
    assert_eq!(bank.commands, [extend, list, "saga list --stuck-at payment-refund"]);

    let (delayed, stall) = found(&|all| all.services[1].steps = vec![stalled("payment-processing", false)]);
    assert_eq!((delayed.as_slice(), stall.impact.orders), (["payment-processing"].as_slice(), Some(2)));
    assert_eq!(stall.commands, ["faults", list, extend], "each once");

    let overview = evaluated(|all| all.services[1].failing_checks = vec![check("broker", true)]);
    let overview = with_waiting_orders(overview, &waiting);
    let counted: Vec<_> = overview.findings.iter().map(|found| (found.code, found.impact.orders)).collect();
    assert_eq!(counted, [(FindingCode::NotReady, Some(2)), (FindingCode::BrokerUnavailable, Some(9))]);
    assert!(overview.findings[1].impact.orders_partial, "admin does not hear of more");
    let mut commands = overview.findings.iter().flat_map(|found| &found.commands);
    assert!(!commands.any(|command| command.contains("extend")), "order does not hear of it");

    // A step that no order waits for, some messages, new requests.
    for change in [
        &(|all: &mut Overview| all.services[1].steps = vec![stalled("payment-extension", false)])
            as &dyn Fn(&mut _),
        &|all: &mut Overview| all.services[1].failing_checks = vec![check("overload", false)],
        &|all: &mut Overview| all.services[1].failing_checks = vec![check("crashes", false)],
        &|all: &mut Overview| {
            (all.services[1].retries, all.services[1].retrying_since) = (Some(1), Some(before(400)))
        },
    ] {
        assert_eq!(found(change).0, [""; 0], "it delays no order");
    }

    let many = ByStep::from([("payment-processing", orders(100_001, Some(NOW)))]);
    let overview = evaluated(|all| all.services[1].problem = gone.clone());
    let found_many = with_waiting_orders(overview, &many);
    assert_eq!(found_many.findings[0].commands, [list], "too many for one request");

    let (delayed, admin) = found(&|all| all.services[0].problem = gone.clone());
    assert_eq!(
        (delayed.as_slice(), admin.impact.orders, admin.impact.amounts.len()),
        ([].as_slice(), None, 0)
    );
}

#[test]
fn dead_letters_that_an_injected_fault_causes_start_with_the_command_that_clears_it() {
    let commands = |reason: &str| {
        let overview = evaluated(|all| {
            all.services[1].faults = vec![FaultSummary { kind: "fail_permanently".to_owned(), step: None }];
            let groups =
                vec![GroupSummary { reason: reason.to_owned(), ..group("payment", "payment-refund") }];
            all.dead_letters =
                Some(DeadLetterSummary { pending: 2, replaying: 0, groups, ..DeadLetterSummary::default() });
        });
        overview.findings[0].commands.clone()
    };
    assert_eq!(commands("injected: fail_permanently")[0], "faults clear payment");
    assert!(commands("no way")[0].starts_with("dlq show "));
}

#[test]
fn overdue_replays_are_a_finding_unless_another_one_explains_them() {
    let found = |other: fn(&mut Overview)| {
        keys(|all| {
            other(all);
            let overdue_replays = vec![OverdueReplays {
                service: "payment".to_owned(),
                count: 1,
                since: before(601),
                repeatable: vec![Uuid::nil()],
                edited: None,
            }];
            all.dead_letters = Some(DeadLetterSummary { overdue_replays, ..DeadLetterSummary::default() });
        })
        .contains(&"replays_overdue:payment".to_owned())
    };
    assert!(found(|_| {}));
    let explanations: [fn(&mut Overview); 4] = [
        |all| all.services[1].problem = Some("does not answer".to_owned()),
        |all| all.services[1].breakers = vec![breaker("payment-refund", 61, false)],
        |all| all.services[0].outbox = Some(OutboxSummary { pending: 1, oldest: None, failed: 1 }),
        |all| all.services[0].failing_checks = vec![check("broker", false)],
    ];
    for explanation in explanations {
        assert!(!found(explanation));
    }
    assert!(found(|all| all.services[0].breakers = vec![breaker("admin-saga-view", 61, false)]));
}

#[test]
fn paused_step_with_injected_fault_is_reported_with_the_command_that_clears_it() {
    let overview = evaluated(|all| {
        all.services[1].steps = vec![stalled("payment-processing", true)];
        all.services[1].faults = vec![FaultSummary { kind: "pause".to_owned(), step: None }];
    });
    let finding = &overview.findings[0];
    assert!(finding.text.ends_with("3 messages wait, paused by an injected fault"), "{}", finding.text);
    assert_eq!(finding.commands, ["faults clear payment", "saga list --stuck-at payment-processing"]);
}

#[test]
fn foreign_and_ended_dead_letters_are_to_be_discarded() {
    let commands = |foreign: bool, awaited: u64| {
        let overview = evaluated(|all| {
            let one = GroupSummary { foreign, awaited, ..group("payment", "payment-refund") };
            let groups = vec![GroupSummary { first_until: None, last_until: None, ..one }];
            all.dead_letters =
                Some(DeadLetterSummary { pending: 2, replaying: 0, groups, ..DeadLetterSummary::default() });
        });
        overview.findings[0].commands.join("\n")
    };
    assert!(commands(true, 0).contains("dlq discard --fingerprint f"));
    assert!(commands(false, 0).contains("dlq discard --fingerprint f"));
    let without_deadline = commands(false, 1);
    assert!(without_deadline.contains("dlq redrive") && without_deadline.contains("dlq resolve"));
}

/// A service that rejects new work is ready, so that reads and cancellations go on. Its customers are rejected all the same.
#[test]
fn service_that_rejects_requests_is_a_finding_although_it_is_ready() {
    let rejecting = evaluated(|all| all.services[1].failing_checks = vec![check("overload", false)]);
    let [finding] = rejecting.findings.as_slice() else { panic!("{:?}", rejecting.findings) };
    assert_eq!((finding.key.as_str(), finding.urgent), ("not_ready:payment/overload", false));
    let full = evaluated(|all| {
        all.services[1].failing_checks = vec![check("overload", false), check("disk", false)];
    });
    let [finding, disk] = full.findings.as_slice() else { panic!("{:?}", full.findings) };
    assert_eq!((finding.key.as_str(), finding.urgent), ("not_ready:payment/overload", true));
    assert_eq!((finding.may_pass, disk.key.as_str()), (false, "disk_space_low:payment"));
    let late = keys(|all| all.services[1].failing_checks = vec![check("outbox", false)]);
    assert_eq!(late, [""; 0], "what is only late is no finding of its own");
}

#[test]
fn findings_about_notifications_are_in_the_overview_and_not_notified() {
    let overview = evaluated(|all| {
        all.services[0].breakers = vec![breaker(RECEIVER, 3_600, false)];
        all.services[0].tasks = Some(TaskSummary { open: 1, oldest: Some(before(3_600)) });
        let groups = vec![group("admin", NOTIFICATION_TASK)];
        all.dead_letters =
            Some(DeadLetterSummary { pending: 2, replaying: 0, groups, ..DeadLetterSummary::default() });
    });
    assert_eq!((overview.findings.len(), notifiable(&overview)), (3, vec![]));
    let other = evaluated(|all| all.services[0].breakers = vec![breaker("admin-saga-view", 3_600, false)]);
    assert_eq!(notifiable(&other).len(), 1);
}

#[test]
fn keys_that_could_not_be_evaluated_are_unknown() {
    let is_unknown = |overview: &Overview, key: &str| {
        unknown_keys(overview).iter().any(|prefix| key.starts_with(prefix.as_str()))
    };
    let silent = evaluated(|all| all.services[1].problem = Some("does not answer".to_owned()));
    for key in [
        "breaker_open:payment/bank",
        "messages_rejected:payment",
        "tasks_overdue:payment",
        "retries_overdue:payment",
        "disk_space_low:payment",
        "crash_loop:payment",
        "overrides_unreadable:payment",
        "not_ready:payment/store",
    ] {
        assert!(is_unknown(&silent, key), "{key}");
    }
    assert!(is_unknown(&silent, "broker_unavailable"));
    for key in ["unreachable:payment", "breaker_open:admin/x", "compensation_stuck"] {
        assert!(!is_unknown(&silent, key), "{key}");
    }
    assert!(is_unknown(&evaluated(|_| {}), "bank_ledger_rejected:payment"));
    let known = evaluated(|all| all.services[1].bank_ledger = Some(LedgerCheck::default()));
    assert!(!is_unknown(&known, "bank_ledger_rejected:payment"));
    let blind = evaluated(|all| (all.sagas, all.dead_letters) = (None, None));
    for key in
        ["compensation_stuck", "sagas_overdue", "dead_letters:f", "many_dead_letters", "more_dead_letters"]
    {
        assert!(is_unknown(&blind, key), "{key}");
    }
    let cut = evaluated(|all| {
        all.dead_letters = Some(DeadLetterSummary {
            pending: 9,
            replaying: 0,
            groups: vec![],
            ..DeadLetterSummary::default()
        })
    });
    assert!(is_unknown(&cut, "dead_letters:f") && !is_unknown(&cut, "many_dead_letters"));
    for last in [
        None,
        Some(ReconciliationSummary {
            verdict: Verdict::InFlight,
            at: NOW,
            discrepancies: 0,
            resolved_to_check: 0,
        }),
    ] {
        assert!(is_unknown(&evaluated(|all| all.reconciliation = last), "ledgers_unbalanced"));
    }
    assert!(!is_unknown(&evaluated(|_| {}), "ledgers_unbalanced"));
}

#[test]
fn half_open_breaker_is_a_problem_only_while_something_waits_for_it() {
    let half_open = |waiting, open, retries| {
        keys(|all| {
            let payment = &mut all.services[1];
            payment.breakers =
                vec![OpenBreaker { state: "HALF_OPEN".to_owned(), ..breaker("bank", 3_600, false) }];
            payment.steps = vec![StepStatus {
                step: "payment-processing".to_owned(),
                waiting: Some(waiting),
                stalled_since: None,
                paused: false,
            }];
            payment.tasks = Some(TaskSummary { open, oldest: None });
            payment.retries = Some(retries);
        })
    };
    assert_eq!(half_open(0, 0, 0), [""; 0], "the next call closes it");
    for (waiting, open, retries) in [(1, 0, 0), (0, 1, 0), (0, 0, 1)] {
        assert_eq!(half_open(waiting, open, retries), ["breaker_open:payment/bank"]);
    }
    assert_eq!(
        keys(|all| all.services[1].breakers = vec![breaker("bank", 3_600, false)]),
        ["breaker_open:payment/bank"]
    );
}

#[test]
fn dead_letters_that_nobody_waits_for_need_no_human() {
    let with = |awaited, pending| {
        evaluated(|all| {
            let first_until = (awaited > 0).then_some(NOW);
            let groups = vec![GroupSummary {
                awaited,
                count: pending,
                first_until,
                ..group("payment", "payment-processing")
            }];
            all.dead_letters =
                Some(DeadLetterSummary { pending, replaying: 0, groups, ..DeadLetterSummary::default() });
        })
    };
    for pending in [2, 500] {
        let over = with(0, pending);
        assert!(!over.needs_human && !over.findings.is_empty(), "{over:?}");
        assert!(over.findings.iter().all(|finding| finding.to_clean_up && !finding.urgent), "{over:?}");
        let awaited = with(1, pending);
        assert!(awaited.needs_human, "{awaited:?}");
        assert!(awaited.findings.iter().all(|finding| finding.urgent), "the deadline comes: {awaited:?}");
    }
}

#[test]
fn reconciliation_without_answers_is_a_finding_that_names_service_and_error() {
    let unanswered = vec![admin_api::reconciliation::Unanswered {
        service: "order".to_owned(),
        why: "its rows: order answers 500".to_owned(),
    }];
    let overview =
        with_findings(well(), &Affected { unanswered, dead_letter_threshold: 100, ..Affected::default() });
    assert!(overview.needs_human);
    let [found] = overview.findings.as_slice() else { panic!("one finding: {overview:?}") };
    assert_eq!((found.key.as_str(), found.service.as_deref()), ("reconciliation_incomplete", Some("order")));
    assert!(found.explanation.contains("order answers 500"), "{}", found.explanation);
}
