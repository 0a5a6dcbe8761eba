//! Pure: whatever the services say, admin keeps a view of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use admin::audit_log::{Action, AuditEntry};
use admin::books::{Books, THE_BOOKS};
use admin::commands::{CommandKind, Rejection, Reply, Wish};
use admin::dead_letter::events::{DeadLetterEvent, DeadLetterRejection, Replay};
use admin::dead_letter::view::DeadLetterView;
use admin::policy::{AdminMessage, AdminService};
use admin::push::alerts::{Alert, Look};
use admin::push::settings::PushSettings;
use admin::push::told::{THE_TOLD, Told, ToldCommand};
use admin::settling::{Case, Named, Settling};
use contract::Fact;
use contract::order::CancelReason;
use contract::overview::{BooksLook, Verdict};
use contract::saga::SagaStatus;
use contract::saga_view::SagaView;
use contract::settlement::Accepted;
use jiff::SignedDuration;
use saga_core::dead_letter::{
    DeadLetterDiscarded, DeadLetterMessage, DeadLetterRestored, DeadLetterStatus, DeadLettered,
    EditedMessage, OriginalMessage,
};
use saga_core::decider::{Decider, FieldValue};
use saga_core::decision::{self, InboxState, Loaded, Rules};
use saga_core::input::Input;
use saga_core::message::{Envelope, Message};
use saga_core::retry::{FailedTry, FailureKind, RetryPolicy};
use saga_core::row::RowKey;
use saga_core::service::{Service as _, Step};
use saga_core::waiting::Retry;
use saga_engine::testing::service_under_test::{Stimulus, envelope};
use saga_engine::testing::{NOON, facts_heard};
use uuid::Uuid;

use crate::given::{
    Admin, ORDER, all_types, announced, asks, cancelled, command_id, dead_letter, dead_letter_id,
    dead_refund, deadline, fact, forgotten, handled, replay, replay_requested, revision, total,
};

#[test]
fn a_completed_saga_owes_nothing() {
    let mut admin = Admin::of(AdminService);
    for (heard, next) in [
        ("OrderCreated", Some("inventory-stock-reservation")),
        ("StockReserved", Some("payment-processing")),
        ("PaymentProcessed", Some("order-confirmation")),
        ("OrderConfirmed", None),
    ] {
        admin.hears(fact(heard, ORDER)).records(&[heard]).tells([]);
        let owed = admin.row::<SagaView>(ORDER).remaining().into_iter().next();
        assert_eq!(owed.map(|owed| owed.step).as_deref(), next, "after {heard}");
    }
    let view: SagaView = admin.row(ORDER);
    assert_eq!(
        (view.status(), view.total, view.deadline),
        (SagaStatus::Completed, Some(total()), Some(deadline()))
    );
}

#[test]
fn a_saga_is_compensated_when_everybody_has_answered_however_late() {
    let mut admin = Admin::of(AdminService);
    let mut status_after = |heard: AdminMessage| {
        admin.hears(heard).comes_out("done");
        admin.row::<SagaView>(ORDER).status()
    };
    status_after(fact("OrderCreated", ORDER));
    status_after(fact("StockReserved", ORDER));
    assert_eq!(status_after(cancelled(ORDER, CancelReason::TimedOut)), SagaStatus::TimedOut);
    assert_eq!(status_after(fact("StockReleased", ORDER)), SagaStatus::Compensating);
    assert_eq!(status_after(fact("PaymentProcessed", ORDER)), SagaStatus::Compensating);
    assert_eq!(status_after(fact("PaymentRefunded", ORDER)), SagaStatus::Compensated);
}

#[test]
fn a_saga_whose_compensation_is_parked_has_failed() {
    let mut admin = Admin::of(AdminService);
    for heard in ["OrderCreated", "StockReserved", "PaymentProcessed"] {
        admin.hears(fact(heard, ORDER));
    }
    admin.hears(cancelled(ORDER, CancelReason::CustomerRequest));
    let parked = admin.hears(announced(&dead_refund(0)));
    parked.records(&["DeadLettered", "DeadLettered"]).tells([]);
    assert_eq!(admin.row::<SagaView>(ORDER).status(), SagaStatus::Failed);
}

#[test]
fn a_saga_whose_compensation_was_replayed_and_handled_has_not_failed() {
    let mut admin = Admin::of(AdminService);
    for heard in ["OrderCreated", "StockReserved", "PaymentProcessed"] {
        admin.hears(fact(heard, ORDER));
    }
    admin.hears(cancelled(ORDER, CancelReason::CustomerRequest));
    admin.hears(fact("DeadLettered", ORDER));
    admin.hears(fact("DeadLetterResolved", ORDER)).records(&["DeadLetterResolved", "Resolved"]);
    assert_eq!(admin.row::<SagaView>(ORDER).status(), SagaStatus::Compensating);
    assert_eq!(status(&admin), Some(DeadLetterStatus::Resolved));
}

#[test]
fn a_dead_letter_without_a_saga_touches_none() {
    let mut admin = Admin::of(AdminService);
    let dead = dead_letter("payment-processing", None, 0);
    admin.hears(announced(&dead)).records(&["DeadLettered"]);
    assert_eq!(admin.row::<DeadLetterView>(dead.id).status(), Some(DeadLetterStatus::Pending));
    assert_eq!(admin.kept.rows.len(), 1);
}

#[test]
fn a_dead_letter_that_failed_again_replaces_the_older_one_and_never_the_other_way_round() {
    let mut admin = Admin::of(AdminService);
    let [first, again] = [0, 1].map(dead_refund);
    admin.hears(announced(&again));
    admin.hears(announced(&first));
    admin.hears(announced(&again)).changes_nothing();
    assert_eq!(admin.row::<DeadLetterView>(dead_letter_id(Some(ORDER))).replays(), 1);
}

/// An admin that knows of one dead letter.
pub fn with_a_dead_letter() -> (Admin, DeadLettered) {
    let (mut admin, dead) = (Admin::of(AdminService), dead_refund(0));
    admin.hears(announced(&dead));
    (admin, dead)
}

fn status(admin: &Admin) -> Option<DeadLetterStatus> {
    admin.row::<DeadLetterView>(dead_letter_id(Some(ORDER))).status()
}

pub fn entry(admin: &Admin, number: u128) -> (String, Action, String, Option<String>, String) {
    let entry = admin.row::<AuditEntry>(command_id(number)).0.expect("an entry");
    (entry.by.operator, entry.action, entry.target, entry.by.reason, entry.outcome)
}

#[test]
fn a_replay_tells_the_service_and_is_written_down_all_at_once() {
    let (mut admin, dead) = with_a_dead_letter();
    let then = admin.is_asked(asks(1, replay(dead.id)));
    let reply = then.records(&["Replayed", "Written"]).tells([replay_requested(&dead, revision(0))]).reply();
    let Reply::Changed(Some(item)) = reply else { panic!("{reply:?} is no dead letter") };
    assert_eq!((item.status, item.version), (DeadLetterStatus::Replaying, 2));
    let why = Some("the bank is back".to_owned());
    let wanted = ("ada".to_owned(), Action::Replay, dead.id.to_string(), why, "done".to_owned());
    assert_eq!(entry(&admin, 1), wanted);
}

#[test]
fn a_replay_that_failed_waits_for_a_human_again_and_one_that_went_well_is_over() {
    let (mut admin, dead) = with_a_dead_letter();
    admin.is_asked(asks(1, replay(dead.id)));
    let again = dead_refund(1);
    admin.hears(announced(&again));
    assert_eq!(status(&admin), Some(DeadLetterStatus::Pending));
    admin.is_asked(asks(2, replay(dead.id))).tells([replay_requested(&dead, revision(1))]);
    admin.hears(handled(&again));
    assert_eq!(status(&admin), Some(DeadLetterStatus::Resolved));
    // What was said before the end does not undo it.
    admin.hears(announced(&dead_refund(2)));
    assert_eq!(status(&admin), Some(DeadLetterStatus::Resolved));
}

/// The resolution may overtake the announcement of the failure before it.
#[test]
fn a_dead_letter_that_is_handled_before_it_is_announced_is_never_pending() {
    let (mut admin, dead) = (Admin::of(AdminService), dead_refund(0));
    admin.hears(handled(&dead));
    assert_eq!(status(&admin), None);
    admin.hears(announced(&dead));
    assert_eq!(status(&admin), Some(DeadLetterStatus::Resolved));
}

#[test]
fn a_refused_command_changes_nothing_and_is_not_written_down() {
    let (mut admin, dead) = with_a_dead_letter();
    let mut refusal = |number, kind| match admin.is_asked(asks(number, kind)).rejection() {
        Rejection::DeadLetter(rejection) => rejection,
        other @ (Rejection::Redrive(_) | Rejection::Roster(_) | Rejection::Saga(_) | Rejection::Push(_)) => {
            panic!("{other:?}")
        }
    };
    assert_eq!(
        refusal(1, CommandKind::Restore(dead.id)),
        DeadLetterRejection::Status(DeadLetterStatus::Pending)
    );
    assert_eq!(refusal(2, replay(Uuid::from_u128(404))), DeadLetterRejection::Unknown);
    let stale = CommandKind::Replay(dead.id, Replay { version: Some(9), ..Replay::default() });
    assert_eq!(refusal(3, stale), DeadLetterRejection::Changed(1));
}

#[test]
fn what_is_given_up_and_taken_up_again_is_told_with_rising_revisions() {
    let (mut admin, dead) = with_a_dead_letter();
    let (dead_letter, service) = (dead.id, || "payment".to_owned());
    let given_up =
        DeadLetterDiscarded { dead_letter, service: service(), revision: revision(0), replays: Some(0) };
    let given_up = DeadLetterMessage::DeadLetterDiscarded(given_up);
    admin.is_asked(asks(1, CommandKind::Discard(dead_letter))).tells([given_up.into()]);
    assert_eq!(status(&admin), Some(DeadLetterStatus::Discarded));
    let taken_up = DeadLetterRestored { dead_letter, service: service(), revision: revision(1) };
    let taken_up = DeadLetterMessage::DeadLetterRestored(taken_up);
    admin.is_asked(asks(2, CommandKind::Restore(dead_letter))).tells([taken_up.into()]);
    assert_eq!(status(&admin), Some(DeadLetterStatus::Pending));
    assert_eq!(entry(&admin, 2).1, Action::Restore);
}

/// Its service deletes what was given up, after a while. Whoever takes it up again must not wait for ever.
#[test]
fn what_its_service_has_no_more_is_given_up_until_it_is_there_again() {
    let (mut admin, dead) = with_a_dead_letter();
    admin.is_asked(asks(1, CommandKind::Discard(dead.id)));
    admin.is_asked(asks(2, CommandKind::Restore(dead.id)));
    admin.is_asked(asks(3, replay(dead.id)));
    assert_eq!(status(&admin), Some(DeadLetterStatus::Replaying));
    // What was asked of it before is over with the last.
    admin.hears(forgotten(&dead, revision(2))).records(&["Forgotten"]).tells([]);
    assert_eq!(status(&admin), Some(DeadLetterStatus::Discarded));
    admin.hears(forgotten(&dead, revision(1))).records(&[]);
    // It may be there again, as after the right copy of a database was put back: only its service knows.
    admin.is_asked(asks(4, CommandKind::Restore(dead.id)));
    assert_eq!(status(&admin), Some(DeadLetterStatus::Pending));
    let asked = admin.row::<DeadLetterView>(dead.id);
    admin.hears(forgotten(&dead, revision(3))).records(&["Forgotten"]);
    assert_eq!(status(&admin), Some(DeadLetterStatus::Discarded), "{asked:?}");
    // Parked once more, it waits for somebody again, however often it had been replayed.
    let later = |minutes| NOON + SignedDuration::from_mins(minutes);
    let anew = DeadLettered { last_failed_at: later(60), ..dead };
    admin.hears(announced(&anew)).records(&["DeadLettered", "DeadLettered"]);
    assert_eq!(status(&admin), Some(DeadLetterStatus::Pending));
    admin.is_asked(asks(5, CommandKind::Discard(anew.id)));
    assert_eq!(status(&admin), Some(DeadLetterStatus::Discarded));
    admin.hears(handled(&anew));
    assert_eq!(status(&admin), Some(DeadLetterStatus::Resolved));
}

/// A request to replay that got lost: whoever forces another must not be told that it is under way.
#[test]
fn a_lost_replay_can_be_forced() {
    let (mut admin, dead) = with_a_dead_letter();
    admin.is_asked(asks(1, replay(dead.id)));
    admin.is_asked(asks(2, replay(dead.id))).rejection();
    let forced = CommandKind::Replay(dead.id, Replay { force: true, ..Replay::default() });
    admin.is_asked(asks(3, forced)).tells([replay_requested(&dead, revision(1))]);
}

/// A plain replay that overtakes an edit on its way would swallow it: the operator would be told yes for nothing.
#[test]
fn a_plain_replay_is_refused_while_an_edit_is_under_way() {
    let (mut admin, dead) = with_a_dead_letter();
    let edit = |number| {
        let edited = EditedMessage { message_id: Uuid::from_u128(number), payload_base64: String::new() };
        let edit = Replay { force: true, edited: Some(edited), ..Replay::default() };
        CommandKind::Replay(dead.id, edit)
    };
    let forced = || CommandKind::Replay(dead.id, Replay { force: true, ..Replay::default() });
    admin.is_asked(asks(1, edit(8)));
    let refused = || Rejection::DeadLetter(DeadLetterRejection::EditUnderWay);
    assert_eq!(admin.is_asked(asks(2, forced())).rejection(), refused());
    // What its service says of an earlier replay is no answer to the edit.
    let failed = |message_id, replays| announced(&DeadLettered { message_id, ..dead_refund(replays) });
    admin.hears(failed(dead.message_id, 1));
    assert_eq!(admin.is_asked(asks(3, replay(dead.id))).rejection(), refused());
    // Another edit is not refused: it is newer, whichever is heard first.
    admin.is_asked(asks(4, edit(9))).comes_out("done");
    admin.hears(failed(Uuid::from_u128(9), 2));
    admin.is_asked(asks(5, replay(dead.id))).comes_out("done");
}

/// It would be announced to the very step that fails: dead letters about dead letters, without an end.
/// Admin may hear of the failed edit without having asked for it: its database was made anew.
#[test]
fn a_dead_letter_that_failed_in_an_edited_form_is_an_edited_one() {
    let mut admin = Admin::of(AdminService);
    let dead = dead_refund(0);
    admin.hears(announced(&dead));
    assert!(!admin.row::<DeadLetterView>(dead.id).is_edited());
    let (message_id, payload_base64) = (dead.message_id, dead.payload_base64);
    let original = Some(OriginalMessage { message_id, payload_base64 });
    admin.hears(announced(&DeadLettered { original, message_id: command_id(9), ..dead_refund(1) }));
    assert!(admin.row::<DeadLetterView>(dead.id).is_edited());
    admin.hears(announced(&DeadLettered { original: None, ..dead_refund(2) }));
    assert!(admin.row::<DeadLetterView>(dead.id).is_edited());
}

#[test]
fn what_is_said_of_a_dead_letter_is_never_parked_itself() {
    let step = AdminService::steps().iter().find(|step| step.name == "admin-dead-letters").expect("it");
    let parked = announced(&dead_refund(0));
    let payload = envelope("payment", &parked);
    let id = Envelope::from_bytes(&payload).expect("an envelope").id;
    let failed = |kind| Some(FailedTry::new(kind, "injected"));
    let mut longest = SignedDuration::ZERO;
    for (attempts, payload, failure) in [
        (0, payload.clone(), failed(FailureKind::Permanent)),
        (8, payload.clone(), failed(FailureKind::Transient)),
        (u32::MAX, payload.clone(), failed(FailureKind::Permanent)),
    ] {
        let retry = Retry { attempts, ..retry(step, id, payload) };
        let input = Input::retried(step, retry, u32::MAX).failing(failure);
        let loaded = Loaded { inbox: [((step.name, id), InboxState::Waiting)].into(), ..Loaded::default() };
        let (writes, outcomes) = decision::decide(&AdminService, &[input], loaded, &rules(), NOON);
        assert_eq!(outcomes[0].name(), "retried", "{attempts}");
        assert_eq!((writes.parked.len(), writes.outbox.len()), (0, 0));
        let [next] = &writes.retries[..] else { panic!("one retry") };
        assert!(next.attempts >= attempts, "it is counted on");
        longest = longest.max(next.next_attempt.duration_since(NOON));
    }
    assert!(
        SignedDuration::from_secs(25) < longest && longest <= SignedDuration::from_secs(30),
        "{longest:?}"
    );
    // What cannot be read is parked as everything else is, and announced, once: that can be read.
    let newer = String::from_utf8(payload).expect("text").replace("\"version\":1", "\"version\":2");
    for unreadable in [newer.into_bytes(), b"garbage".to_vec()] {
        let input = Input::message(step, unreadable.into(), id, 0);
        let (writes, outcomes) = decision::decide(&AdminService, &[input], Loaded::default(), &rules(), NOON);
        assert_eq!((outcomes[0].name(), writes.parked.len(), writes.outbox.len()), ("dead", 1, 1));
    }
}

fn retry(step: &Step, message_id: Uuid, payload: Vec<u8>) -> Retry {
    Retry {
        step: step.name.to_owned(),
        message_id,
        payload: payload.into(),
        attempts: 0,
        next_attempt: NOON,
        first_failed_at: NOON,
        last_error: "injected".to_owned(),
        delivery: None,
        dead_letter: None,
    }
}

fn rules() -> Rules {
    let retry =
        RetryPolicy { max_attempts: 10, base: Duration::from_millis(100), cap: Duration::from_secs(30) };
    let (owner, task_lease) = ("admin".to_owned(), SignedDuration::from_mins(2));
    Rules {
        retry,
        step_retry: BTreeMap::new(),
        task_retry: retry,
        owner,
        task_lease,
        keep_gone_wrong: false,
        use_inbox: true,
    }
}

#[test]
fn of_many_those_that_can_be_are_replayed_and_the_others_are_named() {
    let (mut admin, dead) = with_a_dead_letter();
    let (other, unknown) = (dead_letter("payment-refund", None, 0), Uuid::from_u128(404));
    admin.hears(announced(&other));
    admin.is_asked(asks(1, CommandKind::Discard(dead.id)));
    let dead_letters = vec![dead.id, other.id, unknown];
    let many = CommandKind::Many { dead_letters, wish: Wish::Replay(Replay::default()) };
    let then = admin.is_asked(asks(2, many)).tells([replay_requested(&other, revision(0))]);
    let reply = then.records(&["Replayed"]).reply();
    let Reply::Many(many) = reply else { panic!("{reply:?} is not about many") };
    let refused: Vec<_> = many.refused.iter().map(|refused| (refused.id, refused.detail.as_str())).collect();
    let wanted = [(dead.id, "the dead letter is DISCARDED"), (unknown, "there is no such dead letter")];
    assert_eq!((many.done, refused), (1, wanted.to_vec()));
}

#[test]
fn notes_are_for_people_and_tell_nobody() {
    let (mut admin, dead) = with_a_dead_letter();
    let note = CommandKind::Note(dead.id, "called the bank".to_owned());
    admin.is_asked(asks(1, note)).records(&["Noted", "Written"]).tells([]);
    for number in 2..=100 {
        admin.is_asked(asks(number, CommandKind::Note(dead.id, "and again".to_owned()))).comes_out("done");
    }
    let one_more = admin.is_asked(asks(101, CommandKind::Note(dead.id, "enough".to_owned()))).rejection();
    assert_eq!(one_more, Rejection::DeadLetter(DeadLetterRejection::TooManyNotes));
}

/// Somebody looked what is in its way, and then another was parked.
#[test]
fn a_saga_is_not_settled_with_a_dead_letter_when_another_has_come_since() {
    let (mut admin, dead) = with_a_dead_letter();
    let later = DeadLettered { id: Uuid::from_u128(9), message_id: Uuid::from_u128(8), ..dead.clone() };
    admin.hears(announced(&later));
    let rule = "cancelled = money back".to_owned();
    let accepted = vec![Accepted { rule, detail: "payment OPEN".to_owned(), difference: None }];
    let settle = |named: Uuid, seen: &[Uuid]| {
        let with = vec![Named::Saga(ORDER, accepted.clone())];
        let in_the_way = seen.iter().copied().collect();
        CommandKind::Settle(Settling::Settle, Case { named: Named::DeadLetter(named), with, in_the_way })
    };
    admin.is_asked(asks(1, settle(dead.id, &[dead.id]))).comes_out("done");
    assert_eq!(status(&admin), Some(DeadLetterStatus::Settled));
    assert_eq!(admin.row::<SagaView>(ORDER).settled, None);
    let detail = admin.row::<AuditEntry>(command_id(1)).0.expect("an entry").detail;
    assert_eq!(detail, Some(serde_json::json!({"with": [], "accepted": []})));
    admin.is_asked(asks(2, settle(later.id, &[dead.id, later.id]))).comes_out("done");
    assert_eq!(admin.row::<SagaView>(ORDER).settled.expect("it is settled").accepted, accepted);
}

/// Payment remembers what it heard last, and takes nothing older; admin may have lost its database since.
#[test]
fn what_is_settled_is_newer_than_all_before_though_the_database_was_lost_or_the_clock_put_back() {
    let rule = "cancelled = money back".to_owned();
    let accepted = vec![Accepted { rule, detail: "payment OPEN".to_owned(), difference: None }];
    let asked = |admin: &mut Admin, settling: Settling| {
        let case = Case { named: Named::Saga(ORDER, accepted.clone()), with: vec![], in_the_way: [].into() };
        admin.is_asked(asks(1, CommandKind::Settle(settling, case))).comes_out("done");
        let told = admin.told().into_iter().filter_map(|told| match told {
            AdminMessage::Fact(Fact::SettlementRequested(asked)) => Some(asked.revision),
            AdminMessage::Fact(_) | AdminMessage::DeadLetter(_) => None,
        });
        told.max().expect("payment is told")
    };
    let mut heard = 0;
    for minutes in [0, 1] {
        let mut admin = with_a_dead_letter().0;
        admin.now = NOON + SignedDuration::from_mins(minutes);
        for settling in [Settling::Settle, Settling::Unsettle, Settling::Settle] {
            let revision = asked(&mut admin, settling);
            assert!(revision > heard, "{settling:?} is {revision}, after {heard}");
            heard = revision;
            admin.now -= SignedDuration::from_secs(1);
        }
    }
}

/// The service that parked it remembers what it was asked last, and does nothing older.
#[test]
fn what_is_asked_of_a_dead_letter_is_newer_than_all_before_though_the_database_was_lost_or_the_clock_put_back()
 {
    let mut heard = 0;
    for minutes in [0, 1] {
        let (mut admin, DeadLettered { id: dead, .. }) = with_a_dead_letter();
        admin.now = NOON + SignedDuration::from_mins(minutes);
        for command in [CommandKind::Discard(dead), CommandKind::Restore(dead), CommandKind::Discard(dead)] {
            admin.is_asked(asks(1, command)).comes_out("done");
            let told = admin.told().into_iter().filter_map(|told| match told {
                AdminMessage::DeadLetter(DeadLetterMessage::DeadLetterDiscarded(asked)) => {
                    Some(asked.revision)
                }
                AdminMessage::DeadLetter(DeadLetterMessage::DeadLetterRestored(asked)) => {
                    Some(asked.revision)
                }
                AdminMessage::DeadLetter(_) | AdminMessage::Fact(_) => None,
            });
            let revision = told.max().expect("its service is told");
            assert!(revision > heard, "{revision}, after {heard}");
            heard = revision;
            admin.now -= SignedDuration::from_secs(1);
        }
    }
}

#[test]
fn an_entry_of_the_log_is_written_once_and_ended_once() {
    let mut admin = Admin::of(AdminService);
    let (action, target) = (Action::BreakerOpen, "payment/bank".to_owned());
    admin.is_asked(asks(1, CommandKind::OpenEntry { action, target, detail: None })).records(&["Written"]);
    assert_eq!(entry(&admin, 1).4, "asked");
    let end = |outcome: &str| CommandKind::CloseEntry(command_id(1), outcome.to_owned());
    admin.is_asked(asks(2, end("there is no breaker bank"))).records(&["Ended"]);
    admin.is_asked(asks(3, end("done"))).changes_nothing();
    assert_eq!(entry(&admin, 1).4, "there is no breaker bank");
}

/// Rows that the first build wrote are folded by this one.
#[test]
fn dead_letters_of_the_first_build_are_read() {
    let dead = dead_refund(0);
    let bare = serde_json::to_string(&dead).expect("JSON");
    let event: DeadLetterEvent = serde_json::from_str(&bare).expect("an event");
    assert_eq!(event, DeadLetterEvent::Announced(Box::new(dead)));
    assert_eq!(serde_json::to_string(&event).expect("JSON"), bare);
}

/// A row that an earlier build wrote is the fold of its events, byte for byte.
#[test]
fn the_row_of_a_saga_names_what_was_heard_in_the_order_of_the_contract() {
    let mut admin = Admin::of(AdminService);
    let heard = facts_heard::<AdminService>();
    let is_of_a_saga = |name: &&str| heard.contains(name) && fact(name, ORDER).saga().is_some();
    let of_a_saga: Vec<_> = all_types().filter(is_of_a_saga).collect();
    of_a_saga.iter().rev().for_each(|name| drop(admin.hears(fact(name, ORDER)).comes_out("done")));
    let state = &admin.kept.rows[&RowKey::of::<SagaView>(ORDER)].1.state;
    let places: Vec<_> = of_a_saga.iter().map(|name| state.find(&format!("\"{name}\":"))).collect();
    assert!(places.is_sorted() && places[0].is_some(), "{state}");
}

#[test]
fn what_operators_look_for_is_searchable() {
    let mut admin = Admin::of(AdminService);
    admin.hears(fact("OrderCreated", ORDER));
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

    let (mut admin, dead) = with_a_dead_letter();
    admin.is_asked(asks(1, CommandKind::Discard(dead.id)));
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
    assert_eq!(named(DeadLetterView::FIELDS, admin.row::<DeadLetterView>(dead.id).fields("1")), wanted);
}

/// Admin hears everything that belongs to a saga; of products it hears nothing.
#[test]
fn every_fact_of_a_saga_is_heard_and_kept() {
    // What operators wish is admin's own word: what comes of it the services say.
    let own = ["DeadlineExtensionRequested", "SettlementRequested"];
    let is_heard = |said: &&str| fact(said, ORDER).saga().is_some() && !own.contains(said);
    let of_sagas = all_types().filter(is_heard);
    // Of which saga it was, nobody knows any more.
    let heard = of_sagas.clone().chain(["DeadLetterForgotten"]).collect::<BTreeSet<_>>();
    assert_eq!(heard, facts_heard::<AdminService>());
    for heard in of_sagas {
        let mut admin = Admin::of(AdminService);
        admin.hears(fact(heard, ORDER)).comes_out("done");
        admin.hears(fact(heard, ORDER)).comes_out("done").changes_nothing();
        assert!(admin.row::<SagaView>(ORDER).heard.contains_key(heard), "{heard}");
    }
}

/// Or nobody would be told anything any more: there is no other notice before the last has arrived.
#[test]
fn a_notice_that_cannot_be_read_any_more_is_given_up_and_told_again() {
    let mut admin = Admin::of(AdminService);
    let alert = Alert { text: "it burns".to_owned(), count: None, may_pass: false, is_grave: false };
    let look = Look { alerts: [("fire".to_owned(), alert)].into(), ..Look::default() };
    let command = asks(1, CommandKind::Push(ToldCommand::Look(look, PushSettings::default().pace())));
    let (id, saga) = (command.id, command.correlation_id());
    admin.takes(Stimulus::Command { id, saga, command, key: None });
    let task = admin.open_task();
    admin.kept.tasks.get_mut(&task.id).expect("it is open").payload = "{".to_owned();
    admin.is_refused_for_good(&task, "a notice that is none").comes_out("done").records(&["GivenUp"]);
    let told = admin.row::<Told>(THE_TOLD);
    assert_eq!(told.under_way(), None);
    assert!(told.known()["fire"].told_at.is_none(), "it is to be told again");
    let given_up = told.recent().next().and_then(|sent| sent.given_up.as_ref());
    assert!(given_up.is_some_and(|why| why.contains("a notice that is none")), "{told:?}");
}

/// Admin looks by itself, also while a service is away: what was found must not be hidden by that.
#[test]
fn books_that_did_not_balance_stay_so_until_a_look_can_tell() {
    let mut admin = Admin::of(AdminService);
    let look = |verdict, second| {
        let at = NOON + SignedDuration::from_secs(second);
        asks(
            1,
            CommandKind::Audited {
                look: BooksLook { verdict, at, discrepancies: 1 },
                forgotten: 0,
                closing: None,
            },
        )
    };
    admin.is_asked(look(Verdict::InFlight, 1)).records(&["Looked"]);
    admin.is_asked(look(Verdict::Unbalanced, 2)).records(&["Looked"]);
    admin.is_asked(look(Verdict::InFlight, 3)).changes_nothing();
    admin.is_asked(look(Verdict::Unbalanced, 4)).records(&["Looked"]);
    admin.is_asked(look(Verdict::Balanced, 5)).records(&["Looked"]);
    admin.is_asked(look(Verdict::InFlight, 6)).records(&["Looked"]);
}

/// What was wrong is still wrong, and nobody is told that it is not known.
#[test]
fn what_could_not_be_settled_leaves_the_last_look_at_the_books_as_it_is() {
    let mut admin = Admin::of(AdminService);
    let look = BooksLook { verdict: Verdict::Unbalanced, at: NOON, discrepancies: 1 };
    admin
        .is_asked(asks(1, CommandKind::Audited { look: look.clone(), forgotten: 0, closing: None }))
        .records(&["Looked"]);
    let settle_many = |named| {
        let cases = vec![Case { named, with: vec![], in_the_way: BTreeSet::new() }];
        CommandKind::SettleMany { settling: Settling::Settle, cases, entry: command_id(9) }
    };
    let dead = dead_refund(0);
    admin.is_asked(asks(2, settle_many(Named::DeadLetter(dead.id)))).comes_out("done");
    assert_eq!(admin.row::<Books>(THE_BOOKS), Books { look: Some(look), forgotten: 0 }, "there is none yet");
    admin.hears(announced(&dead)).comes_out("done");
    admin.is_asked(asks(3, settle_many(Named::DeadLetter(dead.id)))).comes_out("done");
    assert_eq!(admin.row::<Books>(THE_BOOKS), Books { look: None, forgotten: 1 });
}
