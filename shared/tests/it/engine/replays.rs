//! Dead letters that go back in line, are given up, or are edited: law 8, whatever is repeated and whoever dies.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value;
use shared::contract::{
    DeadLetterResolved, DeadLettered, Fact, LetterOrigin, OriginalMessage, ReplayRequested,
};
use shared::engine::Input;
use shared::retry::{FailedTry, Severity};
use shared::store::{LetterStatus, StoreFault, StoredLetter};
use uuid::Uuid;

use super::{done, names};
use crate::support::desk::Desk;
use crate::support::rig::{Deed, Pace, Rig, Supplier, in_memory};
use crate::support::shop::{FILLING, LISTENING, OPERATING, Shop, ShopCommand, UNLUCKY, heard, replenished};
use crate::support::wait_until;
use crate::support::wishes::{discard, edit, replay, restore, wished};
use crate::support::writes::{at, id, letters, state};

/// Law 8: the letter goes back in line at once, to the step that failed and to no other, and is no duplicate.
#[tokio::test]
async fn a_replay_reaches_only_the_step_that_failed_and_is_not_taken_for_a_duplicate() {
    let mut desk = Desk::new();
    let tea = || replenished(id(1), "tea", 3);
    let outcomes = desk.hears(0, || vec![heard(tea()), Input::message(LISTENING, tea(), id(9), 0)]).await;
    assert_eq!(names(&outcomes), ["dead", "done"]);
    let letter = desk.letter().await.letter;
    desk.is_asked(1, ShopCommand::List("tea")).await;

    assert_eq!(desk.is_told(2, replay(letter.id, 1)).await, "done");
    assert_eq!(desk.letter().await.status, LetterStatus::Replaying);
    assert_eq!(desk.tries_again(2).await, ["done"], "due at once");
    assert_eq!(desk.tea().await, 3);
    assert_eq!(desk.letter().await.status, LetterStatus::Resolved);
    let resolved = DeadLetterResolved {
        letter: letter.id,
        service: "order".to_owned(),
        step: FILLING.name.to_owned(),
        saga: Some(id(1)),
        message_id: id(1),
        replays: 1,
    };
    assert_eq!(facts(&desk).await, [Fact::DeadLettered(letter.into()), Fact::DeadLetterResolved(resolved)]);
    assert_eq!((desk.handled(FILLING.name).await, desk.handled(LISTENING.name).await), (1, 1));

    // Nobody hears it a second time.
    assert_eq!(desk.hears_one(3, || heard(tea())).await, "duplicate");
    assert_eq!(desk.tries_again(9).await, [""; 0]);
    assert_eq!((desk.tea().await, in_line(&desk).await), (3, (0, 0, 0)));
}

/// Law 8, with the engine's loops: nobody waits for the next look at the timers.
#[tokio::test]
async fn a_replayed_message_is_handled_at_once() -> Result<(), StoreFault> {
    let rig = Rig::over(in_memory(), Pace { attempts: 1, ..Pace::default() }).await;
    assert_eq!(names(&rig.settle_together(vec![heard(replenished(id(1), "tea", 3))]).await), ["dead"]);
    done(rig.ask(ShopCommand::List("tea")).await);
    let letter = letters(rig.store.as_ref(), 9).await?.remove(0);
    done(rig.settle_together(vec![wished(&replay(letter.id, 1))]).await.remove(0));
    let is_handled = async || {
        let shelf = state(rig.store.as_ref(), "tea").await.expect("the store works");
        shelf.is_some_and(|shelf| shelf.pieces == 3)
    };
    wait_until("the replayed message is handled", is_handled).await;
    assert_eq!(rig.store.stats().await?.dead_letters, 0);
    Ok(())
}

/// Law 8, for a call: nobody waits for the next look at the timers either.
#[tokio::test]
async fn a_replayed_call_is_made_at_once_under_the_same_key() -> Result<(), StoreFault> {
    let pace = Pace { attempts: 1, ..Pace::default() };
    let rig = Rig::with_supplier(in_memory(), pace, Supplier::will([Deed::Refuse, Deed::Answer(5)])).await;
    done(rig.ask(ShopCommand::Insist("tea")).await);
    wait_until("it is parked", async || rig.store.stats().await.is_ok_and(|stats| stats.dead_letters == 1))
        .await;
    let letter = letters(rig.store.as_ref(), 9).await?.remove(0);
    done(rig.settle_together(vec![wished(&replay(letter.id, 1))]).await.remove(0));
    wait_until("it is resolved", async || rig.store.stats().await.is_ok_and(|stats| stats.dead_letters == 0))
        .await;
    let called = rig.supplier.called();
    assert_eq!(called, [called[0]; 2], "one key, or the supplier would deliver twice");
    assert_eq!(state(rig.store.as_ref(), "tea").await?.map(|shelf| shelf.pieces), Some(5));
    Ok(())
}

/// A letter keeps its identity and its history through replays that fail, and each failure is announced anew.
#[tokio::test]
async fn a_replay_that_fails_again_is_the_same_letter_with_one_more_replay() {
    let mut desk = Desk::new().with_attempts(2);
    let tea = || heard(replenished(id(1), "tea", 3));
    assert_eq!(desk.hears_one(0, tea).await, "retried");
    assert_eq!(desk.tries_again(5).await, ["dead"]);
    let first = desk.letter().await.letter;
    assert_eq!((first.attempts, first.replays), (2, 0));
    assert_eq!((first.first_failed_at, first.last_failed_at), (at(0), at(5)));

    for (replays, second) in [(1, 100), (2, 200)] {
        assert_eq!(desk.is_told(second, replay(first.id, replays)).await, "done");
        assert_eq!(desk.tries_again(second).await, ["retried"], "a replay has all its attempts");
        assert_eq!(desk.letter().await.status, LetterStatus::Replaying);
        assert_eq!(desk.tries_again(second + 5).await, ["dead"]);
        let StoredLetter { letter, status, .. } = desk.letter().await;
        assert_eq!(status, LetterStatus::Pending);
        let wanted = DeadLettered {
            replays: u32::try_from(replays).expect("a small number"),
            attempts: first.attempts + 2 * u32::try_from(replays).expect("a small number"),
            last_failed_at: at(second + 5),
            ..first.clone()
        };
        assert_eq!(letter, wanted, "id, first failure, payload and place stay");
    }
    let announced = desk.announced().await;
    assert_eq!(announced.len(), 3);
    assert_eq!(announced[2].1, Fact::DeadLettered(desk.letter().await.letter.into()));
    let ids: std::collections::BTreeSet<Uuid> = announced.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids.len(), 3, "none of them is taken for another by whoever hears them");

    // And in the end it works.
    desk.is_asked(300, ShopCommand::List("tea")).await;
    assert_eq!(desk.is_told(300, replay(first.id, 3)).await, "done");
    assert_eq!(desk.tries_again(300).await, ["done"]);
    let Some((_, Fact::DeadLetterResolved(resolved))) = desk.announced().await.pop() else {
        panic!("it is resolved")
    };
    assert_eq!(resolved.replays, 3);
}

/// Wishes come again, late, and out of order: the newest one counts, and each has its effect once.
#[tokio::test]
async fn an_older_or_repeated_wish_has_no_effect() {
    let (mut desk, letter) = parked_tea().await;
    assert_eq!(desk.is_told(1, discard(letter, 5)).await, "done");
    for old in [replay(letter, 4), restore(letter, 5), replay(letter, 5), edit(letter, 3, id(2), b"x")] {
        assert_eq!(desk.is_told(2, old.clone()).await, "done", "{old:?}");
        let stored = desk.letter().await;
        assert_eq!((stored.status, stored.revision), (LetterStatus::Discarded, 5), "{old:?}");
        assert_eq!(stored.letter.original, None, "{old:?}");
    }
    assert_eq!(in_line(&desk).await, (0, 0, 0));
    assert_eq!(desk.is_told(3, restore(letter, 6)).await, "done");
    assert_eq!(desk.is_told(4, replay(letter, 7)).await, "done");
    assert_eq!(desk.is_told(4, replay(letter, 7)).await, "duplicate", "the same message");
    assert_eq!(desk.tries_again(4).await, ["dead"]);
    assert_eq!(desk.tries_again(9).await, [""; 0], "one wish, one replay");
    assert_eq!(desk.letter().await.letter.replays, 1);
}

/// Two operators: the second wish finds the letter under way.
#[tokio::test]
async fn a_letter_that_is_being_replayed_is_left_alone() {
    let (mut desk, letter) = parked_tea().await;
    assert_eq!(desk.is_told(1, replay(letter, 1)).await, "done");
    let under_way = in_line(&desk).await;
    for (revision, wish) in [
        (2, replay(letter, 2)),
        (3, edit(letter, 3, id(2), &replenished(id(2), "tea", 4))),
        (4, discard(letter, 4)),
        (5, restore(letter, 5)),
    ] {
        assert_eq!(desk.is_told(2, wish).await, "done");
        let stored = desk.letter().await;
        assert_eq!((stored.status, stored.revision), (LetterStatus::Replaying, revision));
        assert_eq!((stored.letter.message_id, stored.letter.original), (id(1), None));
    }
    assert_eq!(in_line(&desk).await, under_way);
    desk.is_asked(3, ShopCommand::List("tea")).await;
    assert_eq!(desk.tries_again(3).await, ["done"]);
    assert_eq!(desk.tea().await, 3, "once");
}

/// A letter that is handled is done with: a wish that comes too late is answered, not parked.
#[tokio::test]
async fn a_wish_for_a_letter_that_was_resolved_meanwhile_changes_nothing() {
    let (mut desk, letter) = parked_tea().await;
    desk.is_asked(1, ShopCommand::List("tea")).await;
    assert_eq!(desk.is_told(1, replay(letter, 1)).await, "done");
    assert_eq!(desk.tries_again(1).await, ["done"]);
    for wish in [replay(letter, 2), discard(letter, 3), restore(letter, 4)] {
        assert_eq!(desk.is_told(2, wish).await, "done");
        assert_eq!(desk.letter().await.status, LetterStatus::Resolved);
    }
    assert_eq!((desk.tries_again(9).await, desk.tea().await), (vec![], 3));
}

/// Everything about one letter in one transaction, in every order: the engine's batches are arbitrary.
#[tokio::test]
async fn wishes_and_replays_of_one_batch_do_what_they_do_one_by_one() {
    // The replay fails, and the operator's next wish is in the same batch.
    for wish in [|letter| discard(letter, 2), |letter| replay(letter, 2)] {
        let (desk, letter) = parked_tea().await;
        let told = desk.settles(1, vec![wished(&replay(letter, 1))]).await;
        assert_eq!(names(&told), ["done"]);
        let due = due_retry(&desk, 1).await;
        let together = desk.settles(1, vec![due, wished(&wish(letter))]).await;
        assert_eq!(names(&together), ["dead", "done"]);
        let stored = desk.letter().await;
        let is_in_line = in_line(&desk).await.0 == 1;
        assert_eq!(stored.letter.replays, 1, "the failed replay is counted");
        assert_eq!(stored.status == LetterStatus::Replaying, is_in_line, "{:?}", stored.status);
        assert_ne!(stored.status, LetterStatus::Pending, "the wish came after the failure");
    }
    // The replay succeeds, and a late wish is in the same batch.
    let (mut desk, letter) = parked_tea().await;
    desk.is_asked(1, ShopCommand::List("tea")).await;
    desk.settles(1, vec![wished(&replay(letter, 1))]).await;
    let due = due_retry(&desk, 1).await;
    let together = desk.settles(1, vec![due, wished(&discard(letter, 2))]).await;
    assert_eq!(names(&together), ["done", "done"]);
    assert_eq!(desk.letter().await.status, LetterStatus::Resolved);
    // A redelivery in the same batch as the wish: what goes back in line is not handled beside it.
    let (mut desk, letter) = parked_tea().await;
    desk.is_asked(1, ShopCommand::List("tea")).await;
    let tea = || heard(replenished(id(1), "tea", 3));
    let together = desk.settles(1, vec![tea(), wished(&replay(letter, 1)), tea()]).await;
    assert_eq!(names(&together), ["duplicate", "done", "duplicate"]);
    assert_eq!(desk.tries_again(1).await, ["done"]);
    assert_eq!(desk.tea().await, 3);
}

/// A wish that cannot be done is a dead letter of its own, and the one it is about stays as it is.
#[tokio::test]
async fn a_wish_that_cannot_be_done_is_parked_itself_and_the_letter_it_is_about_stays() {
    let (mut desk, letter) = parked_tea().await;
    let before = desk.letter().await;
    let for_another = |mut wish: Fact| {
        if let Fact::ReplayRequested(wish) = &mut wish {
            wish.service = "payment".to_owned();
        }
        wish
    };
    let not_base64 = ReplayRequested {
        edited: Some(shared::contract::EditedMessage {
            message_id: id(2),
            payload_base64: "no base64!".to_owned(),
        }),
        letter,
        service: "order".to_owned(),
        revision: 2,
    };
    let impossible = [
        (for_another(replay(letter, 1)), "this is for payment, not for order"),
        (replay(id(77), 1), "there is no dead letter 00000000-0000-0000-0000-00000000004d here"),
        (discard(id(77), 1), "there is no dead letter"),
        (Fact::ReplayRequested(not_base64), "payload: "),
    ];
    for (count, (wish, why)) in impossible.iter().enumerate() {
        assert_eq!(desk.is_told(1, wish.clone()).await, "dead", "{wish:?}");
        let all = desk.letters().await;
        assert_eq!(all.len(), count + 2, "{wish:?}");
        let of_the_wish = all.iter().filter(|stored| stored.letter.step == OPERATING.name);
        let said = of_the_wish.map(|stored| &stored.letter.reason).filter(|reason| reason.contains(why));
        assert!(said.count() >= 1, "nobody says {why:?}");
        assert!(all.contains(&before), "{wish:?} changed it: {all:?}");
    }
    // Not even a trace that would keep a good wish from working.
    assert_eq!(desk.is_told(2, replay(letter, 3)).await, "done");
    assert_eq!(desk.tries_again(2).await, ["dead"]);
}

/// The same in one batch: what the bad wish left behind must not be taken over by the good one.
#[tokio::test]
async fn a_wish_that_cannot_be_done_spoils_no_other_of_its_batch() {
    let (mut desk, letter) = parked_tea().await;
    let bad = || {
        // Its revision is the higher one: it must not stay either.
        let mut wish = edit(letter, 5, id(2), b"");
        if let Fact::ReplayRequested(ReplayRequested { edited: Some(edited), .. }) = &mut wish {
            edited.payload_base64 = "no base64!".to_owned();
        }
        wished(&wish)
    };
    let outcomes = desk.settles(1, vec![bad(), wished(&replay(letter, 2))]).await;
    assert_eq!(names(&outcomes), ["dead", "done"]);
    desk.is_asked(1, ShopCommand::List("tea")).await;
    assert_eq!(desk.tries_again(1).await, ["done"]);
    assert_eq!(desk.tea().await, 3, "the message as it was parked");
}

/// Whatever makes a wish fail: a fault made on purpose, an outage of the store, the broker giving it up.
#[tokio::test]
async fn a_wish_in_trouble_does_not_touch_its_letter() {
    let (desk, letter) = parked_tea().await;
    let before = desk.letter().await;
    let trouble = |severity| Some(FailedTry::new(severity, "injected"));
    for (wish, severity, outcome) in [
        (replay(letter, 1), Severity::Permanent, "dead"),
        (discard(letter, 2), Severity::Transient, "dead"),
        (restore(letter, 3), Severity::Outage, "retried"),
    ] {
        let outcomes = desk.settles(1, vec![wished(&wish).in_trouble(trouble(severity))]).await;
        assert_eq!(names(&outcomes), [outcome]);
        assert!(desk.letters().await.contains(&before), "{wish:?}");
    }
    assert_eq!(desk.letters().await.len(), 3, "the letter and the two wishes that died");
}

/// "Given up" must mean it: the broker may still bring the message again.
#[tokio::test]
async fn a_discarded_letter_keeps_its_message_from_being_handled_until_it_is_restored() {
    let (mut desk, letter) = parked_tea().await;
    desk.is_asked(1, ShopCommand::List("tea")).await;
    assert_eq!(desk.is_told(2, discard(letter, 1)).await, "done");
    assert_eq!(desk.letter().await.status, LetterStatus::Discarded);
    assert_eq!(desk.store().stats().await.expect("the store works").dead_letters, 0, "nobody waits for it");
    assert_eq!(dead_in_the_books(&desk).await, 1, "but the books know where it is");
    let tea = || heard(replenished(id(1), "tea", 3));
    assert_eq!(desk.hears_one(3, tea).await, "duplicate");
    assert_eq!(desk.tries_again(9).await, [""; 0]);
    assert_eq!(desk.tea().await, 0);

    assert_eq!(desk.is_told(10, restore(letter, 2)).await, "done");
    assert_eq!(desk.letter().await.status, LetterStatus::Pending);
    assert_eq!(desk.hears_one(11, tea).await, "duplicate", "restored is not replayed");
    assert_eq!(desk.is_told(12, replay(letter, 3)).await, "done");
    assert_eq!(desk.tries_again(12).await, ["done"]);
    assert_eq!((desk.tea().await, dead_in_the_books(&desk).await), (3, 0));
}

/// A letter that was given up may be taken up again directly.
#[tokio::test]
async fn a_discarded_letter_can_be_replayed() {
    let (mut desk, letter) = parked_tea().await;
    desk.is_asked(1, ShopCommand::List("tea")).await;
    assert_eq!(desk.is_told(2, discard(letter, 1)).await, "done");
    assert_eq!(desk.is_told(3, replay(letter, 2)).await, "done");
    assert_eq!(desk.tries_again(3).await, ["done"]);
    assert_eq!(desk.tea().await, 3);
}

/// The bug of others: edit and retry that sent both copies. Here it is the edited one alone, whatever comes again.
#[tokio::test]
async fn an_edited_message_is_handled_in_place_of_its_original_and_never_beside_it() {
    let mut desk = Desk::new();
    desk.is_asked(0, ShopCommand::List("tea")).await;
    let original = replenished(id(1), "tea", UNLUCKY);
    let redelivered = || heard(replenished(id(1), "tea", UNLUCKY));
    assert_eq!(desk.hears_one(0, redelivered).await, "dead");
    let letter = desk.letter().await.letter.id;

    let edited = replenished(id(2), "tea", 12);
    assert_eq!(desk.is_told(1, edit(letter, 1, id(2), &edited)).await, "done");
    assert_eq!(desk.hears_one(1, redelivered).await, "duplicate");
    assert_eq!(desk.tries_again(1).await, ["done"]);
    assert_eq!(desk.tea().await, 12);
    for _ in 0..2 {
        assert_eq!(desk.hears_one(2, redelivered).await, "duplicate");
    }
    assert_eq!((desk.tea().await, desk.handled(FILLING.name).await), (12, 1));

    // What it causes names the edited message as its cause, and the resolution names it as handled.
    let events = desk.store().events(crate::support::writes::shelf("tea")).await.expect("the store works");
    assert_eq!(events.last().map(|event| event.causation_id), Some(id(2)));
    let Some((_, Fact::DeadLetterResolved(resolved))) = desk.announced().await.pop() else {
        panic!("it is resolved")
    };
    assert_eq!((resolved.letter, resolved.message_id), (letter, id(2)));
    let original = OriginalMessage { message_id: id(1), payload_base64: STANDARD.encode(original) };
    assert_eq!(desk.letter().await.letter.original, Some(original));
}

/// An edit that does not help either: the letter shows the edit, and what was parked at first.
#[tokio::test]
async fn an_edited_message_that_fails_again_is_the_same_letter_and_remembers_its_original() {
    let mut desk = Desk::new();
    desk.is_asked(0, ShopCommand::List("tea")).await;
    let original = replenished(id(1), "tea", UNLUCKY);
    assert_eq!(desk.hears_one(0, || heard(replenished(id(1), "tea", UNLUCKY))).await, "dead");
    let letter = desk.letter().await.letter.id;
    for (revision, message_id) in [(1, id(2)), (2, id(3))] {
        let edited = replenished(message_id, "tea", UNLUCKY);
        assert_eq!(desk.is_told(1, edit(letter, revision, message_id, &edited)).await, "done");
        assert_eq!(desk.tries_again(1).await, ["dead"]);
        let now = desk.letter().await;
        assert_eq!((now.letter.id, now.known_as, now.letter.message_id), (letter, id(1), message_id));
        assert_eq!(STANDARD.decode(&now.letter.payload_base64).expect("base64"), edited);
        let first = OriginalMessage { message_id: id(1), payload_base64: STANDARD.encode(&original) };
        assert_eq!(now.letter.original, Some(first), "the very first one");
    }
    // A plain replay repeats the last edit.
    assert_eq!(desk.is_told(5, replay(letter, 3)).await, "done");
    assert_eq!(desk.tries_again(5).await, ["dead"]);
    assert_eq!(desk.letter().await.letter.message_id, id(3));
}

/// What nobody of this system sent is in nobody's books: published = handled + waiting + dead must hold without.
#[tokio::test]
async fn foreign_bytes_are_in_no_tally_not_even_when_they_were_edited_into_a_message() {
    let mut desk = Desk::new();
    desk.is_asked(0, ShopCommand::List("tea")).await;
    let garbage = || heard(Bytes::from_static(b"\xff garbage"));
    assert_eq!(desk.hears_one(0, garbage).await, "dead");
    let letter = desk.letter().await.letter;
    assert_eq!((letter.origin, letter.message_type, letter.saga), (LetterOrigin::Foreign, None, None));
    let in_no_book = async |desk: &Desk| {
        let tallies = desk.store().tallies().await.expect("the store works");
        let of =
            |counts: &std::collections::BTreeMap<String, u64>| counts.get(FILLING.name).copied().unwrap_or(0);
        assert_eq!((of(&tallies.handled), of(&tallies.retrying), of(&tallies.dead)), (0, 0, 0));
    };
    in_no_book(&desk).await;
    assert_eq!(desk.store().stats().await.expect("the store works").dead_letters, 1, "a human sees it");

    assert_eq!(desk.is_told(1, edit(letter.id, 1, id(2), &replenished(id(2), "tea", 4))).await, "done");
    in_no_book(&desk).await;
    assert_eq!(desk.tries_again(1).await, ["done"]);
    assert_eq!(desk.tea().await, 4);
    in_no_book(&desk).await;
    assert_eq!(desk.hears_one(2, garbage).await, "duplicate", "it is known all the same");
    assert_eq!(desk.letter().await.status, LetterStatus::Resolved);
}

/// Law 4: money owed is called for again under the key it always had.
#[tokio::test]
async fn a_replayed_task_is_open_again_under_its_id_and_its_answer_resolves_it() {
    let mut desk = Desk::new();
    let (task, letter) = parked_call(&mut desk).await;
    assert_eq!(
        (letter.origin, letter.message_id, letter.step.as_str()),
        (LetterOrigin::Task, task, "insist")
    );
    assert_eq!(desk.is_told(10, replay(letter.id, 1)).await, "done");
    let [again] = &desk.calls(10).await[..] else { panic!("one call") };
    assert_eq!((again.id, again.attempts, again.kind.as_str()), (task, 0, "insist"));
    assert_eq!((again.payload.as_str(), again.letter), (r#"{"sku":"tea"}"#, Some(letter.id)));
    let settled = desk.settles(11, vec![Input::called(again.clone(), Ok(Value::from(5)), 0)]).await;
    assert_eq!(names(&settled), ["done"]);
    assert_eq!((desk.tea().await, in_line(&desk).await), (5, (0, 0, 0)));
    let Some((_, Fact::DeadLetterResolved(resolved))) = desk.announced().await.pop() else {
        panic!("it is resolved")
    };
    let wanted = (letter.id, "insist", letter.saga, 1);
    assert_eq!((resolved.letter, resolved.step.as_str(), resolved.saga, resolved.replays), wanted);
    // The answer of an earlier try comes after all: there is only one.
    let late = desk.settles(12, vec![Input::called(again.clone(), Ok(Value::from(5)), 0)]).await;
    assert_eq!((names(&late), desk.tea().await), (vec!["duplicate"], 5));
}

#[tokio::test]
async fn a_replayed_task_that_fails_again_is_the_same_letter() {
    let mut desk = Desk::new();
    let (task, first) = parked_call(&mut desk).await;
    assert_eq!(desk.is_told(10, replay(first.id, 1)).await, "done");
    let again = desk.calls(10).await.remove(0);
    let failed = Err(FailedTry::new(Severity::Transient, "still closed"));
    assert_eq!(names(&desk.settles(11, vec![Input::called(again, failed, 0)]).await), ["dead"]);
    let StoredLetter { letter, status, known_as, .. } = desk.letter().await;
    assert_eq!((letter.id, status, known_as), (first.id, LetterStatus::Pending, task));
    assert_eq!((letter.replays, letter.attempts), (1, 2));
    assert_eq!((letter.first_failed_at, letter.last_failed_at), (first.first_failed_at, at(11)));
    assert_eq!(letter.reason, "no supply: still closed");
    assert_eq!(desk.announced().await.len(), 2);
}

/// An operator who mends the data of a call: the call is another, the key stays.
#[tokio::test]
async fn an_edited_task_is_called_with_the_edit_under_its_old_key() {
    let mut desk = Desk::new();
    let (task, letter) = parked_call(&mut desk).await;
    assert_eq!(desk.is_told(10, edit(letter.id, 1, id(2), br#"{"sku":"coffee"}"#)).await, "done");
    let again = desk.calls(10).await.remove(0);
    assert_eq!((again.id, again.payload.as_str()), (task, r#"{"sku":"coffee"}"#));
    let settled = desk.settles(11, vec![Input::called(again, Ok(Value::from(5)), 0)]).await;
    assert_eq!(names(&settled), ["done"]);
    let coffee = state(desk.store(), "coffee").await.expect("the store works");
    assert_eq!((coffee.map(|shelf| shelf.pieces), desk.tea().await), (Some(5), 0));
}

/// Laws 1, 2, 4 and 8: whoever dies after whichever commit, before anything is acknowledged, loses and doubles
/// nothing.
#[tokio::test]
async fn a_crash_after_any_commit_loses_and_doubles_nothing() {
    let mut deaths = 0;
    loop {
        let mut desk = Desk::dying_after(deaths);
        let tea = || heard(replenished(id(1), "tea", 3));
        assert_eq!(desk.hears_one(0, tea).await, "dead");
        let letter = desk.letter().await.letter.id;
        // It fails again, is given up, is restored, is edited, and is handled.
        assert_eq!(desk.is_told(1, replay(letter, 1)).await, "done");
        assert_eq!(desk.tries_again(1).await, ["dead"]);
        assert_eq!(desk.is_told(2, discard(letter, 2)).await, "done");
        assert_eq!(desk.is_told(3, restore(letter, 3)).await, "done");
        desk.is_asked(4, ShopCommand::List("tea")).await;
        let edited = replenished(id(2), "tea", 4);
        assert_eq!(desk.is_told(5, edit(letter, 4, id(2), &edited)).await, "done");
        assert_eq!(desk.tries_again(5).await, ["done"]);
        assert_eq!(desk.hears_one(6, tea).await, "duplicate");

        let (_, call) = parked_call(&mut desk).await;
        assert_eq!(desk.is_told(20, replay(call.id, 1)).await, "done");
        let again = desk.calls(20).await.remove(0);
        let answer = Input::called(again, Ok(Value::from(5)), 0);
        assert_eq!(names(&desk.settles(21, vec![answer]).await), ["done"]);
        desk.dies();

        assert_eq!((desk.tea().await, in_line(&desk).await), (4 + 5, (0, 0, 0)), "death {deaths}");
        let said: Vec<_> =
            desk.announced().await.into_iter().map(|(_, fact)| fact.fact_type().name()).collect();
        let wanted =
            ["DeadLettered", "DeadLettered", "DeadLetterResolved", "DeadLettered", "DeadLetterResolved"];
        assert_eq!(said, wanted, "death {deaths}");
        assert!(desk.store().verify().await.expect("the store works").differing.is_empty());
        if desk.has_yet_to_die() {
            break;
        }
        deaths += 1;
    }
    assert!(deaths >= 13, "every commit was a death once: {deaths}");
}

/// A desk with tea that came before its shelf, and the dead letter.
async fn parked_tea() -> (Desk, Uuid) {
    let mut desk = Desk::new();
    assert_eq!(desk.hears_one(0, || heard(replenished(id(1), "tea", 3))).await, "dead");
    let letter = desk.letter().await.letter.id;
    (desk, letter)
}

/// A call that must be made and could not be: its key and its dead letter.
async fn parked_call(desk: &mut Desk) -> (Uuid, DeadLettered) {
    desk.is_asked(7, ShopCommand::Insist("tea")).await;
    // The task belongs to the writer until its lease lapses, or it starts anew.
    let mut recovering = crate::support::writes::look(at(8), 9, crate::support::rig::OWNER, at(60));
    recovering.recover = true;
    let task = desk.store().due(recovering).await.expect("the store works").tasks.remove(0);
    let failed = Err(FailedTry::new(Severity::Transient, "closed"));
    assert_eq!(names(&desk.settles(8, vec![Input::called(task.clone(), failed, 0)]).await), ["dead"]);
    desk.dies();
    (task.id, desk.letters().await.remove(0).letter)
}

/// Retries, open tasks, and letters that wait or are being replayed.
async fn in_line(desk: &Desk) -> (u64, u64, u64) {
    let stats = desk.store().stats().await.expect("the store works");
    (stats.retries, stats.tasks, stats.dead_letters)
}

async fn due_retry(desk: &Desk, second: i64) -> Input<Shop> {
    let look = crate::support::writes::look(at(second), 9, "shop-1", at(second));
    let retry = desk.store().due(look).await.expect("the store works").retries.remove(0);
    Input::retried(FILLING, retry, 0)
}

async fn dead_in_the_books(desk: &Desk) -> u64 {
    let tallies = desk.store().tallies().await.expect("the store works");
    tallies.dead.get(FILLING.name).copied().unwrap_or(0)
}

async fn facts(desk: &Desk) -> Vec<Fact> {
    desk.announced().await.into_iter().map(|(_, fact)| fact).collect()
}
