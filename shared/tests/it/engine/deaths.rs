//! How a message fails and what follows from it: whether a try counts, whether there is another, and what a dead
//! letter remembers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use shared::contract::{DeadLettered, Delivery, LetterOrigin};
use shared::engine::Input;
use shared::retry::{FailedTry, Severity};
use shared::store::LetterStatus;

use super::names;
use crate::support::desk::Desk;
use crate::support::rig::{OWNER, Pace};
use crate::support::shop::{FILLING, OPERATING, Shop, ShopCommand, UNLUCKY, UNREADABLE, heard, replenished};
use crate::support::writes::{at, id, look, retry};

/// Law 7: what it needs is away. That lasts as long as it lasts, and costs nothing.
#[tokio::test]
async fn an_outage_of_any_length_consumes_no_attempt() {
    let mut desk = Desk::new().with_attempts(3);
    desk.is_asked(0, ShopCommand::List("tea")).await;
    let away = || in_trouble(heard(replenished(id(1), "tea", 3)), Severity::Outage);
    assert_eq!(desk.hears_one(0, away).await, "retried");
    for second in 1..=100 {
        let retry = waiting(&desk, second).await;
        assert_eq!(retry.attempts, 0, "after {second} tries");
        let outcomes = desk.settles(second, vec![in_trouble(retried(retry), Severity::Outage)]).await;
        assert_eq!(names(&outcomes), ["retried"]);
    }
    // It has all its attempts still.
    for (second, outcome) in [(101, "retried"), (102, "retried"), (103, "dead")] {
        let retry = waiting(&desk, second).await;
        let outcomes = desk.settles(second, vec![in_trouble(retried(retry), Severity::Transient)]).await;
        assert_eq!(names(&outcomes), [outcome]);
    }
    let letter = desk.letter().await.letter;
    assert_eq!((letter.attempts, letter.first_failed_at, letter.last_failed_at), (3, at(0), at(103)));
}

/// Law 7: a short outage between failures neither helps nor hurts.
#[tokio::test]
async fn only_tries_that_failed_by_themselves_are_counted() {
    let mut desk = Desk::new().with_attempts(3);
    let tea = || heard(replenished(id(1), "tea", 3));
    assert_eq!(desk.hears_one(0, || in_trouble(tea(), Severity::Transient)).await, "retried");
    for (severity, attempts, outcome) in [
        (Severity::Outage, 1, "retried"),
        (Severity::Transient, 1, "retried"),
        (Severity::Outage, 2, "retried"),
        (Severity::Permanent, 2, "dead"),
    ] {
        let retry = waiting(&desk, 1).await;
        assert_eq!(retry.attempts, attempts);
        assert_eq!(names(&desk.settles(1, vec![in_trouble(retried(retry), severity)]).await), [outcome]);
    }
    assert_eq!(desk.letter().await.letter.attempts, 3);
}

#[tokio::test]
async fn what_can_never_work_is_parked_at_once() {
    let mut desk = Desk::new().with_attempts(99);
    let tea = || in_trouble(heard(replenished(id(1), "tea", 3)), Severity::Permanent);
    assert_eq!(desk.hears_one(0, tea).await, "dead");
    let letter = desk.letter().await.letter;
    assert_eq!((letter.attempts, letter.reason.as_str()), (1, "injected"));
    assert_eq!(desk.store().stats().await.expect("the store works").retries, 0);
}

/// A fault made on purpose is checked before the inbox has the message: a later replay is not swallowed.
#[tokio::test]
async fn a_message_in_trouble_leaves_no_mark_and_no_effect() {
    let mut desk = Desk::new().with_attempts(3);
    desk.is_asked(0, ShopCommand::List("tea")).await;
    let tea = || heard(replenished(id(1), "tea", 3));
    assert_eq!(desk.hears_one(0, || in_trouble(tea(), Severity::Transient)).await, "retried");
    assert_eq!((desk.tea().await, desk.handled(FILLING.name).await), (0, 0));
    assert_eq!(desk.tries_again(1).await, ["done"]);
    assert_eq!((desk.tea().await, desk.handled(FILLING.name).await), (3, 1));
}

/// Law 2: whoever looks at the letter needs nothing else to understand it, or to send it again by hand.
#[tokio::test]
async fn a_dead_letter_has_everything_about_the_message() {
    let edited = |from: &str, to: &str| {
        let text = String::from_utf8(replenished(id(1), "tea", 3).to_vec()).expect("JSON");
        assert!(text.contains(from), "{text} has no {from}");
        Bytes::from(text.replace(from, to))
    };
    let unreadable = "\"quantity\":3";
    for (payload, step, message_type, links) in [
        (Bytes::from_static(b"\xff\x00 not JSON"), FILLING, None, &["not an envelope", "expected value"][..]),
        (Bytes::from_static(b""), FILLING, None, &["not an envelope", "EOF"]),
        (
            edited("\"version\":1", "\"version\":2"),
            FILLING,
            Some("StockReplenished"),
            &["unknown version 2 of StockReplenished"],
        ),
        (
            edited("StockReplenished", "StockEvaporated"),
            FILLING,
            Some("StockEvaporated"),
            &["unknown type \"StockEvaporated\""],
        ),
        (
            edited(unreadable, "\"quantity\":-1"),
            FILLING,
            Some("StockReplenished"),
            &["data is no StockReplenished", "invalid value"],
        ),
        (
            replenished(id(1), "tea", 3),
            OPERATING,
            Some("StockReplenished"),
            &["shop-operations does not hear StockReplenished"],
        ),
        (replenished(id(1), UNREADABLE, 3), FILLING, Some("StockReplenished"), &["panicked: row"]),
    ] {
        let mut desk = Desk::new().with_attempts(5);
        desk.is_asked(0, ShopCommand::List("tea")).await;
        let message = || Input::message(step, payload.clone(), id(404), 0).delivered(place());
        assert_eq!(desk.hears_one(9, message).await, "dead", "{links:?}");
        let stored = desk.letter().await;
        let letter = stored.letter;
        let is_envelope = message_type.is_some();
        let (message_id, saga) = if is_envelope { (id(1), Some(id(1))) } else { (id(404), None) };
        let origin = if is_envelope { LetterOrigin::Message } else { LetterOrigin::Foreign };
        assert_eq!((stored.status, stored.revision, stored.known_as), (LetterStatus::Pending, 0, message_id));
        let wanted = DeadLettered {
            id: letter.id,
            service: "order".to_owned(),
            step: step.name.to_owned(),
            origin,
            message_id,
            message_type: message_type.map(str::to_owned),
            saga,
            reason: letter.error_chain.join(": "),
            error_chain: letter.error_chain.clone(),
            fingerprint: letter.fingerprint.clone(),
            attempts: 1,
            first_failed_at: at(9),
            last_failed_at: at(9),
            replays: 0,
            delivery: Some(place()),
            payload_base64: STANDARD.encode(&payload),
            original: None,
        };
        assert_eq!(letter, wanted);
        assert_eq!(letter.error_chain.len(), links.len(), "a link each: {:?}", letter.error_chain);
        for (link, words) in letter.error_chain.iter().zip(links) {
            assert!(link.contains(words), "{link:?} does not say {words:?}");
        }
        assert_eq!(letter.fingerprint.len(), 12);
    }
}

/// Where the broker had it is known however long it waited for its tries, and whoever died meanwhile.
#[tokio::test]
async fn a_letter_remembers_its_place_at_the_broker_through_retries_replays_and_crashes() {
    let mut deaths = 0;
    loop {
        let mut desk = Desk::dying_after(deaths).with_attempts(2);
        let tea = || heard(replenished(id(1), "tea", 3)).delivered(place());
        assert_eq!(desk.hears_one(0, tea).await, "retried");
        assert_eq!(desk.tries_again(1).await, ["dead"]);
        let letter = desk.letter().await.letter;
        assert_eq!(letter.delivery, Some(place()));
        assert_eq!(desk.is_told(2, crate::support::wishes::replay(letter.id, 1)).await, "done");
        assert_eq!(desk.tries_again(2).await, ["retried"]);
        assert_eq!(desk.tries_again(3).await, ["dead"]);
        assert_eq!(desk.letter().await.letter.delivery, Some(place()));
        if desk.has_yet_to_die() {
            return;
        }
        deaths += 1;
    }
}

/// Law 2: one poison message delays nothing else, and neither do many.
#[tokio::test]
async fn poison_of_every_kind_delays_nothing_else() {
    let mut desk = Desk::new().with_attempts(3);
    desk.is_asked(0, ShopCommand::List("tea")).await;
    let good = |number| heard(replenished(id(number), "tea", 1));
    let poison = |number: u128| match number % 5 {
        0 => heard(Bytes::from_static(b"{}")),
        1 => heard(replenished(id(number), "tea", UNLUCKY)),
        2 => heard(replenished(id(number), UNREADABLE, 1)),
        3 => in_trouble(heard(replenished(id(number), "tea", 1)), Severity::Outage),
        // Comes before its shelf, and will for a long time.
        _ => heard(replenished(id(number), "nowhere", 1)),
    };
    let mixed = (0..50).flat_map(|number| [poison(1000 + number), good(number)]).collect();
    let outcomes = desk.settles(0, mixed).await;
    let good_ones = outcomes.iter().skip(1).step_by(2);
    assert!(good_ones.clone().all(|outcome| outcome.name() == "done"), "{outcomes:?}");
    assert_eq!(desk.tea().await, 50);
    let stats = desk.store().stats().await.expect("the store works");
    // All the empty objects have one place in the stream here: one letter.
    assert_eq!((stats.dead_letters, stats.retries), (1 + 10 + 10, 10 + 10));
    assert_eq!(desk.letters().await.len(), 21);
}

/// A step may be more patient than the others.
#[tokio::test]
async fn a_step_with_retries_of_its_own_has_those() {
    use shared::engine::batch;
    use shared::store::{Known, Loaded, Retry};
    let mut rules = crate::support::rig::rules(Pace { attempts: 2, ..Pace::default() });
    let own = shared::retry::RetryPolicy { max_attempts: 7, ..rules.retry };
    rules.step_retry.insert(FILLING.name.to_owned(), own);
    let outcome = |step: &'static shared::service::Step, attempts| {
        let waiting = Retry { payload: replenished(id(1), "tea", 3), attempts, ..retry(step.name, 1, at(0)) };
        let input = in_trouble(Input::retried(step, waiting, 0), Severity::Transient);
        let inbox = [((step.name, id(1)), Known::Waiting)].into();
        let loaded = Loaded { inbox, ..Loaded::default() };
        batch::decide(&Shop, &[input], loaded, &rules, at(0)).1.remove(0).name()
    };
    assert_eq!([1, 5, 6].map(|attempts| outcome(FILLING, attempts)), ["retried", "retried", "dead"]);
    assert_eq!([0, 1].map(|attempts| outcome(OPERATING, attempts)), ["retried", "dead"]);
}

fn place() -> Delivery {
    let headers = [("Nats-Msg-Id", "1"), ("traceparent", "00-0af7-b7ad-01")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Delivery { stream: "INVENTORY".to_owned(), sequence: 42, headers }
}

fn in_trouble(input: Input<Shop>, severity: Severity) -> Input<Shop> {
    input.in_trouble(Some(FailedTry::new(severity, "injected")))
}

async fn waiting(desk: &Desk, second: i64) -> shared::store::Retry {
    let due = desk.store().due(look(at(second), 9, OWNER, at(second))).await.expect("the store works");
    let [retry] = &due.retries[..] else { panic!("one retry waits: {:?}", due.retries) };
    retry.clone()
}

fn retried(retry: shared::store::Retry) -> Input<Shop> {
    Input::retried(FILLING, retry, 0)
}
