//! Pure: what of a look at everything people are told, under which key, and what a look that is not whole says nothing
//! about.

use std::collections::BTreeMap;

use admin::push::alerts::Look;
use admin::push::notice::NOTICE;
use contract::overview::{
    BooksLook, BreakerLook, CallsLook, Complaint, DeadLettersLook, GroupLook, NotAsked, OutboxLook, Overview,
    RECEIVER, SagasLook, ServiceLook, StepLook, Verdict,
};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn long_ago() -> Timestamp {
    NOW - SignedDuration::from_hours(1)
}

fn service(name: &str) -> ServiceLook {
    let outbox = Some(OutboxLook { pending: 0, oldest: None, failed: 0 });
    ServiceLook { service: name.to_owned(), ready: true, outbox, ..ServiceLook::default() }
}

fn group(service: &str, step: &str) -> GroupLook {
    GroupLook {
        fingerprint: "f".to_owned(),
        count: 2,
        service: service.to_owned(),
        step: step.to_owned(),
        reason: "no\u{1b}[31m\n way".to_owned(),
        foreign: false,
        newest: Uuid::nil(),
        newest_at: NOW,
        awaited: 0,
        ended: 0,
        first_until: None,
        last_until: None,
    }
}

fn breaker(name: &str) -> BreakerLook {
    let since = Some(long_ago());
    BreakerLook { name: name.to_owned(), state: "OPEN".to_owned(), forced: false, since, why: None }
}

fn well() -> Overview {
    Overview {
        at: NOW,
        needs_human: false,
        reasons: vec![],
        services: vec![service("admin"), service("payment")],
        sagas: Some(SagasLook::default()),
        dead_letters: Some(DeadLettersLook::default()),
        books: Some(BooksLook { verdict: Verdict::Balanced, at: NOW, discrepancies: 0 }),
        behind: Some(0),
        not_asked: vec![],
    }
}

fn look(change: impl FnOnce(&mut Overview)) -> Look {
    let mut overview = well();
    change(&mut overview);
    Look::of(&overview.judged(), 100)
}

fn keys(change: impl FnOnce(&mut Overview)) -> Vec<String> {
    look(change).alerts.into_keys().collect()
}

/// Everything that may be wrong is.
fn everything(all: &mut Overview) {
    let mut silent = service("order");
    silent.problem = Some("does not answer".to_owned());
    let complaint =
        Complaint { check: "store".to_owned(), failed: true, text: "gone".to_owned(), since: NOW };
    let still = Some(long_ago());
    let payment = &mut all.services[1];
    payment.complaints = vec![complaint];
    payment.steps = vec![StepLook {
        step: "payment-refund".to_owned(),
        waiting: Some(3),
        stalled_since: still,
        paused: false,
    }];
    payment.outbox = Some(OutboxLook { pending: 0, oldest: None, failed: 1 });
    payment.breakers = vec![breaker("bank")];
    payment.calls = Some(CallsLook { open: 1, oldest: Some(long_ago()) });
    all.services.push(silent);
    let by_status = BTreeMap::from([("FAILED".to_owned(), 1)]);
    all.sagas = Some(SagasLook { by_status, overdue: 1, ..SagasLook::default() });
    let groups = vec![group("payment", "payment-refund")];
    all.dead_letters = Some(DeadLettersLook { pending: 100, replaying: 0, groups });
    all.books = Some(BooksLook { verdict: Verdict::Unbalanced, at: NOW, discrepancies: 1 });
    all.not_asked = vec![NotAsked { what: "sagas".to_owned(), problem: "too slow".to_owned() }];
}

#[test]
fn everything_that_needs_somebody_is_told_under_a_key_of_its_own() {
    assert_eq!(look(|_| {}), Look::default(), "all is well, and all is known");
    let all = keys(everything);
    let wanted = [
        "breaker:payment/bank",
        "dead_letters:f",
        "failed_outbox:payment",
        "failed_sagas",
        "many_dead_letters",
        "more_dead_letters",
        "not_ready:payment/store",
        "overdue_calls:payment",
        "overdue_sagas",
        "silent:order",
        "stands_still:payment/payment-refund",
        "unbalanced",
        "unknown:sagas",
    ];
    assert_eq!(all, wanted);
    let grave = look(everything).alerts.into_iter().filter(|(_, alert)| alert.is_grave).map(|(key, _)| key);
    let wanted = [
        "failed_sagas",
        "many_dead_letters",
        "overdue_sagas",
        "silent:order",
        "stands_still:payment/payment-refund",
        "unbalanced",
    ];
    assert_eq!(grave.collect::<Vec<_>>(), wanted);
}

/// Whoever is told, and then looks, finds the same words.
#[test]
fn what_is_told_begins_as_it_does_in_the_overview() {
    let mut overview = well();
    everything(&mut overview);
    let overview = overview.judged();
    let told: Vec<_> = Look::of(&overview, 1_000).alerts.into_values().map(|alert| alert.text).collect();
    for reason in &overview.reasons {
        let headline = reason.headline(|at| at.strftime("%Y-%m-%d %H:%M:%SZ").to_string());
        assert!(told.iter().any(|told| told.starts_with(&headline)), "{headline}: {told:#?}");
    }
    assert_eq!(told.len(), overview.reasons.len());
}

/// Who does not answer gets no notice that he does not answer; the overview has it.
#[test]
fn notices_are_not_told_of_notices() {
    let told = keys(|all| {
        all.services[0].breakers = vec![breaker(RECEIVER)];
        all.services[0].calls = Some(CallsLook { open: 1, oldest: Some(long_ago()) });
        let groups = vec![group("admin", NOTICE)];
        all.dead_letters = Some(DeadLettersLook { pending: 2, replaying: 0, groups });
    });
    assert_eq!(told, [""; 0]);
    let others = keys(|all| all.services[0].breakers = vec![breaker("admin-saga-view")]);
    assert_eq!(others, ["breaker:admin/admin-saga-view"]);
}

#[test]
fn a_look_says_nothing_of_what_it_could_not_ask() {
    let silent = look(|all| all.services[1].problem = Some("does not answer".to_owned()));
    for key in
        ["breaker:payment/bank", "failed_outbox:payment", "overdue_calls:payment", "not_ready:payment/store"]
    {
        assert!(!silent.knows(key), "{key}");
    }
    assert!(
        silent.knows("silent:payment") && silent.knows("breaker:admin/x") && silent.knows("failed_sagas")
    );
    let blind = look(|all| (all.sagas, all.dead_letters) = (None, None));
    for key in ["failed_sagas", "overdue_sagas", "dead_letters:f", "many_dead_letters", "more_dead_letters"] {
        assert!(!blind.knows(key), "{key}");
    }
    let cut = look(|all| {
        all.dead_letters = Some(DeadLettersLook { pending: 9, replaying: 0, groups: vec![] });
    });
    assert!(!cut.knows("dead_letters:f") && cut.knows("many_dead_letters"));
    for books in [None, Some(BooksLook { verdict: Verdict::InFlight, at: NOW, discrepancies: 0 })] {
        assert!(
            !look(|all| all.books = books).knows("unbalanced"),
            "only a look that finds them balanced knows"
        );
    }
}

#[test]
fn what_is_told_is_one_short_line_whatever_it_quotes() {
    let quoting = |reason: &str| {
        let groups = vec![GroupLook { reason: reason.to_owned(), ..group("payment", "payment-refund") }];
        let told = look(|all| all.dead_letters = Some(DeadLettersLook { pending: 2, replaying: 0, groups }));
        told.alerts["dead_letters:f"].text.clone()
    };
    let said = quoting("no\u{1b}[31m\n way");
    assert_eq!(said, "2 dead letters at payment-refund of payment, fingerprint f: no [31m way");
    assert_eq!(quoting(&"ä".repeat(10_000)).chars().count(), 301);
}
