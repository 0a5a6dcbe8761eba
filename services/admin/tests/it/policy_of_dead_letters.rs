//! Pure: requests of operators and reports of services about dead letters.

use std::collections::BTreeMap;
use std::time::Duration;

use admin::commands::{BulkChange, CommandKind, Rejection, Reply};
use admin::dead_letters::events::{DeadLetterCommand, DeadLetterRejection, Forgotten, Replay};
use admin::dead_letters::view::DeadLetterView;
use admin::service::{AdminMessage, AdminService};
use admin_api::audit_log::Action;
use jiff::SignedDuration;
use saga_core::dead_letter::{
    DeadLetterDiscarded, DeadLetterMessage, DeadLetterRestored, DeadLetterStatus, DeadLettered,
    EditedMessage, OriginalMessage,
};
use saga_core::decider::Decider as _;
use saga_core::decision::{self, DecisionConfig, InboxState, Loaded};
use saga_core::input::Input;
use saga_core::message::Envelope;
use saga_core::retry::{FailedAttempt, FailureKind, RetryPolicy};
use saga_core::service::{Service as _, Step};
use saga_core::waiting::Retry;
use saga_engine::testing::NOON;
use saga_engine::testing::service_under_test::envelope;
use uuid::Uuid;

use crate::given::{
    Admin, ORDER, announced, asks, command_id, dead_letter, dead_letter_id, dead_refund, entry, forgotten,
    handled, replay, replay_requested, revision, status, with_a_dead_letter,
};

#[test]
fn dead_letter_without_saga_changes_no_saga() {
    let mut admin = Admin::of(AdminService);
    let dead = dead_letter("payment-processing", None, 0);
    admin.receives(announced(&dead)).records(&["DeadLettered"]);
    assert_eq!(admin.row::<DeadLetterView>(dead.id).status(), Some(DeadLetterStatus::Pending));
    assert_eq!(admin.store.rows.len(), 1);
}

#[test]
fn newer_report_replaces_older_report_in_any_order() {
    let mut admin = Admin::of(AdminService);
    let [first, again] = [0, 1].map(dead_refund);
    admin.receives(announced(&again));
    admin.receives(announced(&first));
    admin.receives(announced(&again)).changes_nothing();
    assert_eq!(admin.row::<DeadLetterView>(dead_letter_id(Some(ORDER))).replays(), 1);
}

#[test]
fn replay_publishes_request_and_writes_audit_entry() {
    let (mut admin, dead) = with_a_dead_letter();
    let then = admin.executes(asks(1, replay(dead.id)));
    let reply =
        then.records(&["Replayed", "Written"]).publishes([replay_requested(&dead, revision(0))]).reply();
    let Reply::Changed(Some(item)) = reply else { panic!("{reply:?} is no dead letter") };
    assert_eq!((item.status, item.version), (DeadLetterStatus::Replaying, 2));
    let why = Some("the bank is back".to_owned());
    let wanted = ("ada".to_owned(), Action::Replay, dead.id.to_string(), why, "done".to_owned());
    assert_eq!(entry(&admin, 1), wanted);
}

#[test]
fn failed_replay_is_pending_again_and_successful_replay_is_resolved() {
    let (mut admin, dead) = with_a_dead_letter();
    admin.executes(asks(1, replay(dead.id)));
    let again = dead_refund(1);
    admin.receives(announced(&again));
    assert_eq!(status(&admin), Some(DeadLetterStatus::Pending));
    admin.executes(asks(2, replay(dead.id))).publishes([replay_requested(&dead, revision(1))]);
    admin.receives(handled(&again));
    assert_eq!(status(&admin), Some(DeadLetterStatus::Resolved));
    // What was said before the end does not undo it.
    admin.receives(announced(&dead_refund(2)));
    assert_eq!(status(&admin), Some(DeadLetterStatus::Resolved));
}

/// The resolution may overtake the report of the failure before it.
#[test]
fn dead_letter_resolved_before_its_report_is_never_pending() {
    let (mut admin, dead) = (Admin::of(AdminService), dead_refund(0));
    admin.receives(handled(&dead));
    assert_eq!(status(&admin), None);
    admin.receives(announced(&dead));
    assert_eq!(status(&admin), Some(DeadLetterStatus::Resolved));
}

#[test]
fn rejected_command_changes_nothing_and_has_no_audit_entry() {
    let (mut admin, dead) = with_a_dead_letter();
    let mut refusal = |number, kind| match admin.executes(asks(number, kind)).rejection() {
        Rejection::DeadLetter(rejection) => rejection,
        other @ (Rejection::Redrive(_)
        | Rejection::ActiveRedrives(_)
        | Rejection::Saga(_)
        | Rejection::Notification(_)) => {
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
fn discard_and_restore_are_published_with_rising_revisions() {
    let (mut admin, dead) = with_a_dead_letter();
    let (dead_letter, service) = (dead.id, || "payment".to_owned());
    let given_up =
        DeadLetterDiscarded { dead_letter, service: service(), revision: revision(0), replays: Some(0) };
    let given_up = DeadLetterMessage::DeadLetterDiscarded(given_up);
    admin.executes(asks(1, CommandKind::Discard(dead_letter))).publishes([given_up.into()]);
    assert_eq!(status(&admin), Some(DeadLetterStatus::Discarded));
    let taken_up = DeadLetterRestored { dead_letter, service: service(), revision: revision(1) };
    let taken_up = DeadLetterMessage::DeadLetterRestored(taken_up);
    admin.executes(asks(2, CommandKind::Restore(dead_letter))).publishes([taken_up.into()]);
    assert_eq!(status(&admin), Some(DeadLetterStatus::Pending));
    assert_eq!(entry(&admin, 2).1, Action::Restore);
}

/// The service deletes discarded dead letters after a while.
#[test]
fn forgotten_dead_letter_is_discarded_until_reported_again() {
    let (mut admin, dead) = with_a_dead_letter();
    admin.executes(asks(1, CommandKind::Discard(dead.id)));
    admin.executes(asks(2, CommandKind::Restore(dead.id)));
    admin.executes(asks(3, replay(dead.id)));
    assert_eq!(status(&admin), Some(DeadLetterStatus::Replaying));
    // What was asked of it before is over with the last.
    admin.receives(forgotten(&dead, revision(2))).records(&["Forgotten"]).publishes([]);
    assert_eq!(status(&admin), Some(DeadLetterStatus::Discarded));
    admin.receives(forgotten(&dead, revision(1))).records(&[]);
    // It may be there again, as after the right copy of a database was put back: only its service knows.
    admin.executes(asks(4, CommandKind::Restore(dead.id)));
    assert_eq!(status(&admin), Some(DeadLetterStatus::Pending));
    let request = admin.row::<DeadLetterView>(dead.id);
    admin.receives(forgotten(&dead, revision(3))).records(&["Forgotten"]);
    assert_eq!(status(&admin), Some(DeadLetterStatus::Discarded), "{request:?}");
    // Parked once more, it waits for somebody again.
    let later = |minutes| NOON + SignedDuration::from_mins(minutes);
    let anew = DeadLettered { last_failed_at: later(60), ..dead };
    admin.receives(announced(&anew)).records(&["DeadLettered", "DeadLettered"]);
    assert_eq!(status(&admin), Some(DeadLetterStatus::Pending));
    admin.executes(asks(5, CommandKind::Discard(anew.id)));
    assert_eq!(status(&admin), Some(DeadLetterStatus::Discarded));
    admin.receives(handled(&anew));
    assert_eq!(status(&admin), Some(DeadLetterStatus::Resolved));
}

#[test]
fn new_report_after_forgetting_counts_replays_from_zero() {
    let mut view = DeadLetterView::default();
    let at = |minutes| NOON + SignedDuration::from_mins(minutes);
    let anew = DeadLettered { last_failed_at: at(60), ..dead_refund(0) };
    let announce = |dead: DeadLettered| DeadLetterCommand::Announce(Box::new(dead));
    let forgotten = DeadLetterCommand::Forget(Forgotten { revision: 1, at: at(10) });
    for (command, status) in [
        (announce(dead_refund(2)), DeadLetterStatus::Pending),
        (forgotten, DeadLetterStatus::Discarded),
        (announce(anew), DeadLetterStatus::Pending),
    ] {
        let events = view.decide(&(command, NOON)).expect("a service is not rejected");
        events.iter().for_each(|event| view.evolve(event));
        assert_eq!((events.len(), view.status()), (1, Some(status)));
    }
    assert_eq!(view.replays(), 0);
}

#[test]
fn lost_replay_can_be_forced() {
    let (mut admin, dead) = with_a_dead_letter();
    admin.executes(asks(1, replay(dead.id)));
    admin.executes(asks(2, replay(dead.id))).rejection();
    let forced = CommandKind::Replay(dead.id, Replay { force: true, ..Replay::default() });
    admin.executes(asks(3, forced)).publishes([replay_requested(&dead, revision(1))]);
}

/// A plain replay that overtakes an edit would supersede it.
#[test]
fn plain_replay_is_rejected_while_an_edit_is_in_flight() {
    let (mut admin, dead) = with_a_dead_letter();
    let edit = |number| {
        let edited = EditedMessage { message_id: Uuid::from_u128(number), payload_base64: String::new() };
        let edit = Replay { force: true, edited: Some(edited), ..Replay::default() };
        CommandKind::Replay(dead.id, edit)
    };
    let forced = || CommandKind::Replay(dead.id, Replay { force: true, ..Replay::default() });
    admin.executes(asks(1, edit(8)));
    let rejection = || Rejection::DeadLetter(DeadLetterRejection::EditInFlight);
    assert_eq!(admin.executes(asks(2, forced())).rejection(), rejection());
    // What its service says of an earlier replay is no answer to the edit.
    let failed = |message_id, replays| announced(&DeadLettered { message_id, ..dead_refund(replays) });
    admin.receives(failed(dead.message_id, 1));
    assert_eq!(admin.executes(asks(3, replay(dead.id))).rejection(), rejection());
    // Another edit is not rejected: it is newer, whichever is heard first.
    admin.executes(asks(4, edit(9))).has_outcome("done");
    admin.receives(failed(Uuid::from_u128(9), 2));
    admin.executes(asks(5, replay(dead.id))).has_outcome("done");
}

/// Otherwise dead letters about dead letters would never end.
#[test]
fn dead_letter_reported_after_an_edit_is_marked_edited() {
    let mut admin = Admin::of(AdminService);
    let dead = dead_refund(0);
    admin.receives(announced(&dead));
    assert!(!admin.row::<DeadLetterView>(dead.id).is_edited());
    let (message_id, payload_base64) = (dead.message_id, dead.payload_base64);
    let original = Some(OriginalMessage { message_id, payload_base64 });
    admin.receives(announced(&DeadLettered { original, message_id: command_id(9), ..dead_refund(1) }));
    assert!(admin.row::<DeadLetterView>(dead.id).is_edited());
    admin.receives(announced(&DeadLettered { original: None, ..dead_refund(2) }));
    assert!(admin.row::<DeadLetterView>(dead.id).is_edited());
}

#[test]
fn reports_of_dead_letters_are_never_dead_lettered() {
    let step = AdminService::steps().iter().find(|step| step.name == "admin-dead-letters").expect("it");
    let dead_lettered = announced(&dead_refund(0));
    let payload = envelope("payment", &dead_lettered);
    let id = Envelope::from_bytes(&payload).expect("an envelope").id;
    let failed = |kind| Some(FailedAttempt::new(kind, "injected"));
    let mut longest = SignedDuration::ZERO;
    for (attempts, payload, failure) in [
        (0, payload.clone(), failed(FailureKind::Permanent)),
        (8, payload.clone(), failed(FailureKind::Transient)),
        (u32::MAX, payload.clone(), failed(FailureKind::Permanent)),
    ] {
        let retry = Retry { attempts, ..retry(step, id, payload) };
        let input = Input::retry(step, retry, u32::MAX).with_injected_failure(failure);
        let loaded = Loaded { inbox: [((step.name, id), InboxState::Retrying)].into(), ..Loaded::default() };
        let (writes, outcomes) = decision::decide(&AdminService, &[input], loaded, &rules(), NOON);
        assert_eq!(outcomes[0].name(), "retried", "{attempts}");
        assert_eq!((writes.new_dead_letters.len(), writes.outbox.len()), (0, 0));
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
        assert_eq!(
            (outcomes[0].name(), writes.new_dead_letters.len(), writes.outbox.len()),
            ("dead_lettered", 1, 1)
        );
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

fn rules() -> DecisionConfig {
    let retry =
        RetryPolicy { max_attempts: 10, base: Duration::from_millis(100), cap: Duration::from_secs(30) };
    let (owner, task_lease) = ("admin".to_owned(), SignedDuration::from_mins(2));
    DecisionConfig {
        retry,
        step_retry: BTreeMap::new(),
        task_retry: retry,
        owner,
        task_lease,
        keep_failed: false,
        lost_before: None,
        use_inbox: true,
    }
}

#[test]
fn bulk_replay_lists_rejections_and_replays_the_rest() {
    let (mut admin, dead) = with_a_dead_letter();
    let (other, unknown) = (dead_letter("payment-refund", None, 0), Uuid::from_u128(404));
    admin.receives(announced(&other));
    admin.executes(asks(1, CommandKind::Discard(dead.id)));
    let dead_letters = vec![dead.id, other.id, unknown];
    let many = CommandKind::Many { dead_letters, change: BulkChange::Replay(Replay::default()) };
    let then = admin.executes(asks(2, many)).publishes([replay_requested(&other, revision(0))]);
    let reply = then.records(&["Replayed"]).reply();
    let Reply::Many(many) = reply else { panic!("{reply:?} is not about many") };
    let rejected: Vec<_> = many.rejected.iter().map(|one| (one.id, one.detail.as_str())).collect();
    let wanted = [(dead.id, "the dead letter is DISCARDED"), (unknown, "there is no such dead letter")];
    assert_eq!((many.done, rejected), (1, wanted.to_vec()));
}

#[test]
fn notes_publish_nothing() {
    let (mut admin, dead) = with_a_dead_letter();
    let note = CommandKind::Note(dead.id, "called the bank".to_owned());
    admin.executes(asks(1, note)).records(&["Noted", "Written"]).publishes([]);
    for number in 2..=100 {
        admin.executes(asks(number, CommandKind::Note(dead.id, "and again".to_owned()))).has_outcome("done");
    }
    let one_more = admin.executes(asks(101, CommandKind::Note(dead.id, "enough".to_owned()))).rejection();
    assert_eq!(one_more, Rejection::DeadLetter(DeadLetterRejection::TooManyNotes));
}

/// The service ignores older revisions, and admin may have lost its database.
#[test]
fn revision_of_request_grows_after_loss_of_database_and_clock_change() {
    let mut received = 0;
    for minutes in [0, 1] {
        let (mut admin, DeadLettered { id: dead, .. }) = with_a_dead_letter();
        admin.now = NOON + SignedDuration::from_mins(minutes);
        for command in [CommandKind::Discard(dead), CommandKind::Restore(dead), CommandKind::Discard(dead)] {
            admin.executes(asks(1, command)).has_outcome("done");
            let messages = admin.published().into_iter().filter_map(|messages| match messages {
                AdminMessage::DeadLetter(DeadLetterMessage::DeadLetterDiscarded(request)) => {
                    Some(request.revision)
                }
                AdminMessage::DeadLetter(DeadLetterMessage::DeadLetterRestored(request)) => {
                    Some(request.revision)
                }
                AdminMessage::DeadLetter(_) | AdminMessage::Fact(_) => None,
            });
            let revision = messages.max().expect("its service is told");
            assert!(revision > received, "{revision}, after {received}");
            received = revision;
            admin.now -= SignedDuration::from_secs(1);
        }
    }
}
