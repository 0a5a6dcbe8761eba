//! Pure: whatever the services say, admin keeps a view of it.

use std::collections::BTreeSet;

use admin::commands::{Command, Rejection, Steer, Wish};
use admin::filter::Filter;
use admin::letters::{By, Letter, LetterEvent, LetterRejection, Tag};
use admin::operations::{Action, Operation};
use admin::policy::AdminService;
use admin::redrive::{Plan, RedriveCommand};
use admin::roster::RosterRejection;
use shared::contract::{CancelReason, DeadLetterDiscarded, DeadLetterRestored, DeadLettered, Fact, FactType};
use shared::decider::{Decider, FieldValue};
use shared::saga::{SagaStatus, SagaView};
use shared::store::LetterStatus;
use uuid::Uuid;

use crate::given::{
    ORDER, asks, by_ada, cancelled, command_id, deadline, fact, letter, letter_id, replay, replay_requested,
    resolved, total,
};
use crate::world::World;
use crate::world::message::facts_heard;

#[test]
fn a_completed_saga_owes_nothing() {
    let mut admin = World::of(AdminService);
    use FactType::{OrderConfirmed, OrderCreated, PaymentProcessed, StockReserved};
    for (heard, next) in [
        (OrderCreated, Some("inventory-stock-reservation")),
        (StockReserved, Some("payment-processing")),
        (PaymentProcessed, Some("order-confirmation")),
        (OrderConfirmed, None),
    ] {
        admin.hears(fact(heard, ORDER)).records(&[heard.name()]).tells([]);
        let owed = admin.row::<SagaView>(ORDER).remaining().into_iter().next();
        assert_eq!(owed.map(|owed| owed.step).as_deref(), next, "after {heard:?}");
    }
    let view: SagaView = admin.row(ORDER);
    assert_eq!(
        (view.status(), view.total, view.deadline),
        (SagaStatus::Completed, Some(total()), Some(deadline()))
    );
}

#[test]
fn a_late_capture_takes_a_compensated_saga_back_to_work() {
    use FactType::{OrderCreated, PaymentProcessed, PaymentRefunded, StockReleased, StockReserved};
    let mut admin = World::of(AdminService);
    let mut status_after = |heard: Fact| {
        admin.hears(heard).comes_out("done");
        admin.row::<SagaView>(ORDER).status()
    };
    status_after(fact(OrderCreated, ORDER));
    status_after(fact(StockReserved, ORDER));
    assert_eq!(status_after(cancelled(ORDER, CancelReason::TimedOut)), SagaStatus::TimedOut);
    assert_eq!(status_after(fact(StockReleased, ORDER)), SagaStatus::Compensated);
    assert_eq!(status_after(fact(PaymentProcessed, ORDER)), SagaStatus::Compensating);
    assert_eq!(status_after(fact(PaymentRefunded, ORDER)), SagaStatus::Compensated);
}

#[test]
fn a_saga_whose_compensation_is_parked_has_failed() {
    let mut admin = World::of(AdminService);
    for heard in [FactType::OrderCreated, FactType::StockReserved, FactType::PaymentProcessed] {
        admin.hears(fact(heard, ORDER));
    }
    admin.hears(cancelled(ORDER, CancelReason::CustomerRequest));
    let parked = admin.hears(Fact::DeadLettered(Box::new(letter("payment-refund", Some(ORDER), 0))));
    parked.records(&["DeadLettered", "DeadLettered"]).tells([]);
    assert_eq!(admin.row::<SagaView>(ORDER).status(), SagaStatus::Failed);
}

#[test]
fn a_saga_whose_compensation_was_replayed_and_handled_has_not_failed() {
    let mut admin = World::of(AdminService);
    for heard in [FactType::OrderCreated, FactType::StockReserved, FactType::PaymentProcessed] {
        admin.hears(fact(heard, ORDER));
    }
    admin.hears(cancelled(ORDER, CancelReason::CustomerRequest));
    admin.hears(fact(FactType::DeadLettered, ORDER));
    admin.hears(fact(FactType::DeadLetterResolved, ORDER)).records(&["DeadLetterResolved", "Resolved"]);
    assert_eq!(admin.row::<SagaView>(ORDER).status(), SagaStatus::Compensating);
    assert_eq!(status(&admin), Some(LetterStatus::Resolved));
}

#[test]
fn a_dead_letter_without_a_saga_touches_none() {
    let mut admin = World::of(AdminService);
    let letter = letter("payment-processing", None, 0);
    admin.hears(Fact::DeadLettered(Box::new(letter.clone()))).records(&["DeadLettered"]);
    assert_eq!(admin.row::<Letter>(letter.id).status(), Some(LetterStatus::Pending));
    assert_eq!(admin.kept.rows.len(), 1);
}

#[test]
fn a_letter_that_failed_again_replaces_the_older_one_and_never_the_other_way_round() {
    let mut admin = World::of(AdminService);
    let [first, again] = [0, 1].map(|replays| letter("payment-refund", Some(ORDER), replays));
    admin.hears(Fact::DeadLettered(Box::new(again.clone())));
    admin.hears(Fact::DeadLettered(Box::new(first)));
    admin.hears(Fact::DeadLettered(Box::new(again))).changes_nothing();
    assert_eq!(admin.row::<Letter>(letter_id(Some(ORDER))).replays(), 1);
}

/// An admin that knows of one dead letter.
fn with_a_letter() -> (World<AdminService>, DeadLettered) {
    let (mut admin, dead) = (World::of(AdminService), letter("payment-refund", Some(ORDER), 0));
    admin.hears(Fact::DeadLettered(Box::new(dead.clone())));
    (admin, dead)
}

fn status(admin: &World<AdminService>) -> Option<LetterStatus> {
    admin.row::<Letter>(letter_id(Some(ORDER))).status()
}

fn entry(admin: &World<AdminService>, number: u128) -> (String, Action, String, Option<String>, String) {
    let entry = admin.row::<Operation>(command_id(number)).0.expect("an entry");
    (entry.by.operator, entry.action, entry.target, entry.by.reason, entry.outcome)
}

#[test]
fn a_replay_tells_the_service_and_is_written_down_all_at_once() {
    let (mut admin, dead) = with_a_letter();
    let then = admin.is_asked(asks(1, replay(dead.id)));
    let reply = then.records(&["Replayed", "Written"]).tells([replay_requested(&dead, 2)]).reply();
    let item = reply.letter.expect("the letter");
    assert_eq!((item.status, item.version), (LetterStatus::Replaying, 2));
    let why = Some("the bank is back".to_owned());
    let wanted = ("ada".to_owned(), Action::Replay, dead.id.to_string(), why, "done".to_owned());
    assert_eq!(entry(&admin, 1), wanted);
}

#[test]
fn a_replay_that_failed_waits_for_a_human_again_and_one_that_went_well_is_over() {
    let (mut admin, dead) = with_a_letter();
    admin.is_asked(asks(1, replay(dead.id)));
    let again = letter("payment-refund", Some(ORDER), 1);
    admin.hears(Fact::DeadLettered(Box::new(again.clone())));
    assert_eq!(status(&admin), Some(LetterStatus::Pending));
    let revision = 4; // parked, replayed, parked again, replayed
    admin.is_asked(asks(2, replay(dead.id))).tells([replay_requested(&dead, revision)]);
    admin.hears(Fact::DeadLetterResolved(resolved(&again)));
    assert_eq!(status(&admin), Some(LetterStatus::Resolved));
    // What was said before the end does not undo it.
    admin.hears(Fact::DeadLettered(Box::new(letter("payment-refund", Some(ORDER), 2))));
    assert_eq!(status(&admin), Some(LetterStatus::Resolved));
}

/// The resolution may overtake the announcement of the failure before it.
#[test]
fn a_letter_that_is_handled_before_it_is_announced_is_never_pending() {
    let (mut admin, dead) = (World::of(AdminService), letter("payment-refund", Some(ORDER), 0));
    admin.hears(Fact::DeadLetterResolved(resolved(&dead)));
    assert_eq!(status(&admin), None);
    admin.hears(Fact::DeadLettered(Box::new(dead)));
    assert_eq!(status(&admin), Some(LetterStatus::Resolved));
}

#[test]
fn a_refused_wish_changes_nothing_and_is_not_written_down() {
    let (mut admin, dead) = with_a_letter();
    let mut refusal = |number, wish| match admin.is_asked(asks(number, wish)).rejection() {
        Rejection::Letter(rejection) => rejection,
        other @ (Rejection::Redrive(_) | Rejection::Roster(_)) => panic!("{other:?}"),
    };
    assert_eq!(refusal(1, Wish::Restore(dead.id)), LetterRejection::Status(LetterStatus::Pending));
    assert_eq!(refusal(2, replay(Uuid::from_u128(404))), LetterRejection::Unknown);
    let stale = Wish::Replay { letter: dead.id, force: false, version: Some(9), edited: None };
    assert_eq!(refusal(3, stale), LetterRejection::Changed(1));
}

#[test]
fn what_is_given_up_and_taken_up_again_is_told_with_rising_revisions() {
    let (mut admin, dead) = with_a_letter();
    let (letter, service) = (dead.id, || "payment".to_owned());
    let given_up = DeadLetterDiscarded { letter, service: service(), revision: 2 };
    admin.is_asked(asks(1, Wish::Discard(letter))).tells([Fact::DeadLetterDiscarded(given_up)]);
    assert_eq!(status(&admin), Some(LetterStatus::Discarded));
    let taken_up = DeadLetterRestored { letter, service: service(), revision: 3 };
    admin.is_asked(asks(2, Wish::Restore(letter))).tells([Fact::DeadLetterRestored(taken_up)]);
    assert_eq!(status(&admin), Some(LetterStatus::Pending));
    assert_eq!(entry(&admin, 2).1, Action::Restore);
}

/// A request to replay that got lost: whoever forces another must not be told that it is under way.
#[test]
fn a_lost_replay_can_be_forced() {
    let (mut admin, dead) = with_a_letter();
    admin.is_asked(asks(1, replay(dead.id)));
    admin.is_asked(asks(2, replay(dead.id))).rejection();
    let forced = Wish::Replay { letter: dead.id, force: true, version: None, edited: None };
    admin.is_asked(asks(3, forced)).tells([replay_requested(&dead, 3)]);
}

#[test]
fn of_many_those_that_can_be_are_replayed_and_the_others_are_named() {
    let (mut admin, dead) = with_a_letter();
    let (other, unknown) = (letter("payment-refund", None, 0), Uuid::from_u128(404));
    admin.hears(Fact::DeadLettered(Box::new(other.clone())));
    admin.is_asked(asks(1, Wish::Discard(dead.id)));
    let letters = vec![dead.id, other.id, unknown];
    let many = Wish::ReplayMany { letters, force: false, target: "3 letters".to_owned() };
    let then = admin.is_asked(asks(2, many)).tells([replay_requested(&other, 2)]);
    let reply = then.records(&["Replayed", "Written"]).reply();
    let refused: Vec<_> = reply.refused.iter().map(|refused| (refused.id, refused.detail.as_str())).collect();
    let wanted = [(dead.id, "the dead letter is DISCARDED"), (unknown, "there is no such dead letter")];
    assert_eq!((reply.replayed, refused), (1, wanted.to_vec()));
}

#[test]
fn notes_are_for_people_and_tell_nobody() {
    let (mut admin, dead) = with_a_letter();
    let note = Wish::Note(dead.id, "called the bank".to_owned());
    admin.is_asked(asks(1, note)).records(&["Noted", "Written"]).tells([]);
    for number in 2..=100 {
        admin.is_asked(asks(number, Wish::Note(dead.id, "and again".to_owned()))).comes_out("done");
    }
    let one_more = admin.is_asked(asks(101, Wish::Note(dead.id, "enough".to_owned()))).rejection();
    assert_eq!(one_more, Rejection::Letter(LetterRejection::TooManyNotes));
}

fn plan(filter: Filter) -> Wish {
    let (canary, rate, force, matching) = (1, None, false, 1);
    Wish::Start(Box::new(Plan { filter, canary, rate, force, by: by_ada(), matching }))
}

fn all_of_payment() -> Filter {
    Filter { service: Some("payment".to_owned()), ..Filter::default() }
}

#[test]
fn only_one_redrive_of_the_same_letters_is_under_way() {
    let mut admin = World::of(AdminService);
    admin.is_asked(asks(1, plan(all_of_payment()))).records(&["Started", "Entered", "Written"]);
    let second = admin.is_asked(asks(2, plan(all_of_payment()))).rejection();
    assert_eq!(second, Rejection::Roster(RosterRejection::SameFilter(command_id(1))));
    // Another filter is another matter; and what has ended is in nobody's way.
    let of_a_step = Filter { step: Some("payment-refund".to_owned()), ..all_of_payment() };
    admin.is_asked(asks(3, plan(of_a_step))).comes_out("done");
    admin.is_asked(asks(4, Wish::Steer(command_id(1), Steer::Pause))).comes_out("done");
    admin.is_asked(asks(5, plan(all_of_payment()))).rejection();
    admin.is_asked(asks(6, Wish::Steer(command_id(1), Steer::Cancel))).comes_out("done");
    admin.is_asked(asks(7, plan(all_of_payment()))).comes_out("done");
    assert_eq!(entry(&admin, 7).1, Action::RedriveStart);
}

#[test]
fn a_stopped_redrive_begins_again_only_while_no_other_of_its_kind_is_under_way() {
    let mut admin = World::of(AdminService);
    admin.is_asked(asks(1, plan(all_of_payment())));
    let stop = RedriveCommand::Stop(1, "the canary failed".to_owned());
    let by = By::system(Some("the canary failed".to_owned()));
    admin.is_asked(Command { by, ..asks(2, Wish::Drive(command_id(1), stop)) }).comes_out("done");
    assert_eq!(entry(&admin, 2).0, "system");
    admin.is_asked(asks(3, plan(all_of_payment()))).comes_out("done");
    let resume = || Wish::Steer(command_id(1), Steer::Resume);
    admin.is_asked(asks(4, resume())).rejection();
    admin.is_asked(asks(5, Wish::Steer(command_id(3), Steer::Cancel))).comes_out("done");
    admin.is_asked(asks(6, resume())).records(&["BegunAgain", "Entered", "Written"]);
}

/// What the driver saw a moment ago does not outlive an operator's word.
#[test]
fn nothing_is_sent_once_a_redrive_is_paused_or_in_another_round() {
    let (mut admin, dead) = with_a_letter();
    admin.is_asked(asks(1, plan(all_of_payment())));
    let send = |round| Wish::Send { tag: Tag { redrive: command_id(1), round }, letters: vec![dead.id] };
    admin.is_asked(asks(2, send(2))).rejection();
    admin.is_asked(asks(3, Wish::Steer(command_id(1), Steer::Pause))).comes_out("done");
    admin.is_asked(asks(4, send(1))).rejection();
    admin.is_asked(asks(5, Wish::Steer(command_id(1), Steer::Resume))).comes_out("done");
    admin.is_asked(asks(6, send(1))).records(&["Replayed"]).tells([replay_requested(&dead, 2)]);
    let letter = admin.row::<Letter>(dead.id);
    assert_eq!(letter.tag(), Some(Tag { redrive: command_id(1), round: 1 }));
}

#[test]
fn a_letter_says_where_it_stands_in_its_redrive() {
    let (mut admin, dead) = with_a_letter();
    admin.is_asked(asks(1, plan(all_of_payment())));
    let tag = Tag { redrive: command_id(1), round: 1 };
    admin.is_asked(asks(2, Wish::Send { tag, letters: vec![dead.id] }));
    let course = |admin: &World<AdminService>| {
        let letter = admin.row::<Letter>(dead.id);
        letter.fields("").pop().expect("a field")
    };
    assert_eq!(course(&admin), FieldValue::Text(tag.course("REPLAYING")));
    let again = |fingerprint: &str| {
        let fingerprint = fingerprint.to_owned();
        Fact::DeadLettered(Box::new(DeadLettered { fingerprint, ..letter("payment-refund", Some(ORDER), 1) }))
    };
    let mut otherwise = World::of(AdminService);
    std::mem::swap(&mut otherwise.kept, &mut admin.kept);
    otherwise.hears(again("f2"));
    assert_eq!(course(&otherwise), FieldValue::Text(tag.course("PENDING")));
    // By hand it leaves the redrive.
    otherwise.is_asked(asks(3, replay(dead.id)));
    assert_eq!(course(&otherwise), FieldValue::Null);

    let (mut admin, _) = with_a_letter();
    admin.is_asked(asks(1, plan(all_of_payment())));
    admin.is_asked(asks(2, Wish::Send { tag, letters: vec![dead.id] }));
    admin.hears(again("f1"));
    assert_eq!(course(&admin), FieldValue::Text(tag.course("AGAIN")));
}

#[test]
fn an_entry_of_the_log_is_written_once_and_ended_once() {
    let mut admin = World::of(AdminService);
    let (action, target) = (Action::BreakerOpen, "payment/bank".to_owned());
    admin.is_asked(asks(1, Wish::Log { action, target, detail: None })).records(&["Written"]);
    assert_eq!(entry(&admin, 1).4, "asked");
    let end =
        |outcome: &str| Wish::EndLog { entry: command_id(1), outcome: outcome.to_owned(), detail: None };
    admin.is_asked(asks(2, end("there is no breaker bank"))).records(&["Ended"]);
    admin.is_asked(asks(3, end("done"))).changes_nothing();
    assert_eq!(entry(&admin, 1).4, "there is no breaker bank");
}

/// Rows that the first build wrote are folded by this one.
#[test]
fn letters_of_the_first_build_are_read() {
    let dead = letter("payment-refund", Some(ORDER), 0);
    let bare = serde_json::to_string(&dead).expect("JSON");
    let event: LetterEvent = serde_json::from_str(&bare).expect("an event");
    assert_eq!(event, LetterEvent::Announced(Box::new(dead)));
    assert_eq!(serde_json::to_string(&event).expect("JSON"), bare);
}

#[test]
fn what_operators_look_for_is_searchable() {
    let mut admin = World::of(AdminService);
    admin.hears(fact(FactType::OrderCreated, ORDER));
    let fields = admin.row::<SagaView>(ORDER).fields(&ORDER.to_string());
    let wanted = [
        ("status", "STARTED".into()),
        ("next_step", "inventory-stock-reservation".into()),
        ("customer", "ada".into()),
        ("deadline", deadline().as_microsecond().into()),
        ("finished", 0.into()),
    ];
    let named = |names: &[&'static str], fields: Vec<FieldValue>| {
        names.iter().copied().zip(fields).collect::<Vec<_>>()
    };
    assert_eq!(named(SagaView::FIELDS, fields), wanted);

    let (mut admin, dead) = with_a_letter();
    admin.is_asked(asks(1, Wish::Discard(dead.id)));
    let wanted = [
        ("status", "DISCARDED".into()),
        ("service", "payment".into()),
        ("step", "payment-refund".into()),
        ("type", "OrderCancelled".into()),
        ("fingerprint", "f1".into()),
        ("saga", FieldValue::Text(ORDER.to_string())),
        ("failed_at", dead.last_failed_at.as_microsecond().into()),
        ("replays", 0.into()),
        ("redrive", FieldValue::Null),
    ];
    assert_eq!(named(Letter::FIELDS, admin.row::<Letter>(dead.id).fields("1")), wanted);
}

/// Admin hears everything that belongs to a saga; of products it hears nothing.
#[test]
fn every_fact_of_a_saga_is_heard_and_kept() {
    let of_sagas = FactType::ALL.into_iter().filter(|heard| fact(*heard, ORDER).saga().is_some());
    assert_eq!(of_sagas.clone().collect::<BTreeSet<_>>(), facts_heard::<AdminService>());
    for heard in of_sagas {
        let mut admin = World::of(AdminService);
        admin.hears(fact(heard, ORDER)).comes_out("done");
        admin.hears(fact(heard, ORDER)).comes_out("done").changes_nothing();
        assert!(admin.row::<SagaView>(ORDER).heard.contains_key(&heard), "{heard:?}");
    }
}
