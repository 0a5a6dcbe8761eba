//! Pure: redrives, as operators steer them and their driver asks.

use admin::audit_log::AuditEntry;
use admin::commands::{Command, CommandKind, Rejection};
use admin::dead_letters::events::Tag;
use admin::dead_letters::view::DeadLetterView;
use admin::policy::AdminService;
use admin::redrive::active::ActiveRejection;
use admin::redrive::decider::{Counted, Redrive};
use admin::redrive::events::{Plan, RedriveCommand};
use admin_api::actor::Actor;
use admin_api::audit_log::Action;
use admin_api::dead_letters::Filter;
use admin_api::redrives::RedriveStatus;
use saga_core::dead_letter::DeadLettered;
use saga_core::decider::{Decider as _, FieldValue};
use serde_json::json;
use uuid::Uuid;

use crate::forced_redrives::send;
use crate::given::{
    Admin, announced, asks, by_ada, command_id, dead_refund, entry, replay, replay_requested, revision,
    with_a_dead_letter,
};
use crate::routes::numbered;

/// Ada starts a redrive under the `number`-th id.
fn starts(number: u128, filter: Filter) -> Command {
    let (canary, rate, force, matching) = (1, None, false, 1);
    let plan = Plan { filter, canary, rate, force, by: by_ada(), matching };
    steers(number, number, RedriveCommand::Start(Box::new(plan)))
}

/// Ada asks something of the `redrive`-th redrive.
fn steers(number: u128, redrive: u128, command: RedriveCommand) -> Command {
    asks(number, CommandKind::Redrive(command_id(redrive), command))
}

fn all_of_payment() -> Filter {
    Filter { service: Some("payment".to_owned()), ..Filter::default() }
}

#[test]
fn only_one_redrive_of_the_same_dead_letters_is_under_way() {
    let mut admin = Admin::of(AdminService);
    admin.executes(starts(1, all_of_payment())).records(&["Started", "Started", "Written"]);
    let second = admin.executes(starts(2, all_of_payment())).rejection();
    assert_eq!(second, Rejection::ActiveRedrives(ActiveRejection::SameFilter(command_id(1))));
    // Another filter is another matter; and what has ended is in nobody's way.
    let of_a_step = Filter { step: Some("payment-refund".to_owned()), ..all_of_payment() };
    admin.executes(starts(3, of_a_step)).has_outcome("done");
    admin.executes(steers(4, 1, RedriveCommand::Pause)).has_outcome("done");
    admin.executes(starts(5, all_of_payment())).rejection();
    admin.executes(steers(6, 1, RedriveCommand::Cancel)).has_outcome("done");
    admin.executes(starts(7, all_of_payment())).has_outcome("done");
    assert_eq!(entry(&admin, 7).1, Action::RedriveStart);
    // What was started is written down, so that somebody can see later what it was meant to do.
    let detail = |number| admin.row::<AuditEntry>(command_id(number)).0.expect("an entry").detail;
    let plan = json!({
        "filter": { "service": "payment" }, "canary": 1, "rate": null, "force": false, "matching": 1,
    });
    assert_eq!((detail(7), detail(6)), (Some(plan), None));
}

#[test]
fn a_stopped_redrive_begins_again_only_while_no_other_of_its_kind_is_under_way() {
    let mut admin = Admin::of(AdminService);
    admin.executes(starts(1, all_of_payment()));
    let stop = RedriveCommand::Stop(1, "the canary failed".to_owned());
    let by = Actor::system(Some("the canary failed".to_owned()));
    admin.executes(Command { by, ..steers(2, 1, stop) }).has_outcome("done");
    assert_eq!(entry(&admin, 2).0, "system");
    admin.executes(starts(3, all_of_payment())).has_outcome("done");
    admin.executes(steers(4, 1, RedriveCommand::Resume)).rejection();
    admin.executes(steers(5, 3, RedriveCommand::Cancel)).has_outcome("done");
    admin.executes(steers(6, 1, RedriveCommand::Resume)).records(&["RoundStarted", "Started", "Written"]);
}

/// What the driver saw a moment ago does not outlive an operator's word.
#[test]
fn nothing_is_sent_once_a_redrive_is_paused_or_in_another_round() {
    let (mut admin, dead) = with_a_dead_letter();
    admin.executes(starts(1, all_of_payment()));
    let send =
        |round| CommandKind::Send { tag: Tag { redrive: command_id(1), round }, dead_letters: vec![dead.id] };
    admin.executes(asks(2, send(2))).rejection();
    admin.executes(steers(3, 1, RedriveCommand::Pause)).has_outcome("done");
    admin.executes(asks(4, send(1))).rejection();
    admin.executes(steers(5, 1, RedriveCommand::Resume)).has_outcome("done");
    admin
        .executes(asks(6, send(1)))
        .records(&["Replayed", "Sent"])
        .publishes([replay_requested(&dead, revision(0))]);
    let dead_letter = admin.row::<DeadLetterView>(dead.id);
    assert_eq!(dead_letter.tag(), Some(Tag { redrive: command_id(1), round: 1 }));
}

#[test]
fn a_dead_letter_says_where_it_stands_in_its_redrive() {
    let (mut admin, dead) = with_a_dead_letter();
    admin.executes(starts(1, all_of_payment()));
    let tag = Tag { redrive: command_id(1), round: 1 };
    admin.executes(asks(2, CommandKind::Send { tag, dead_letters: vec![dead.id] }));
    let course = |admin: &Admin| {
        let dead_letter = admin.row::<DeadLetterView>(dead.id);
        dead_letter.fields("").pop().expect("a field")
    };
    assert_eq!(course(&admin), FieldValue::Text(tag.course("REPLAYING")));
    let again = |fingerprint: &str| {
        let fingerprint = fingerprint.to_owned();
        announced(&DeadLettered { fingerprint, ..dead_refund(1) })
    };
    let mut otherwise = Admin::of(AdminService);
    std::mem::swap(&mut otherwise.store, &mut admin.store);
    otherwise.receives(again("f2"));
    assert_eq!(course(&otherwise), FieldValue::Text(tag.course("PENDING")));
    // By hand it leaves the redrive.
    otherwise.executes(asks(3, replay(dead.id)));
    assert_eq!(course(&otherwise), FieldValue::Null);

    let (mut admin, _) = with_a_dead_letter();
    admin.executes(starts(1, all_of_payment()));
    admin.executes(asks(2, CommandKind::Send { tag, dead_letters: vec![dead.id] }));
    admin.receives(again("f1"));
    assert_eq!(course(&admin), FieldValue::Text(tag.course("AGAIN")));
}

/// Two instances of admin look at the same moment, and each sees a canary that has not been sent yet.
#[test]
fn two_drivers_send_one_canary() {
    let mut admin = Admin::of(AdminService);
    let dead_letters = [1, 2, 3].map(numbered);
    dead_letters.iter().for_each(|dead| drop(admin.receives(announced(dead))));
    admin.executes(starts(1, all_of_payment()));
    let send = |admin: &mut Admin, number, which: &[usize]| {
        let which: Vec<Uuid> = which.iter().map(|index| dead_letters[*index].id).collect();
        send(admin, number, 1, &which)
    };
    assert_eq!((send(&mut admin, 2, &[0, 1]), send(&mut admin, 3, &[1, 2])), (1, 0));
    admin.executes(Command { by: Actor::system(None), ..steers(4, 1, RedriveCommand::PassCanary(1, 1)) });
    assert_eq!(send(&mut admin, 5, &[1, 2]), 2, "the rest");
}

fn ending(admin: &Admin, counted: &Counted) -> Option<RedriveCommand> {
    admin.row::<Redrive>(command_id(1)).drive().expect("it was started").ending(counted)
}

#[test]
fn neither_canary_nor_redrive_ends_while_anything_is_on_its_way() {
    let mut admin = Admin::of(AdminService);
    admin.executes(starts(1, all_of_payment()));
    let (under_way, none) = (Counted { in_flight: 1, ..Counted::default() }, Counted::default());
    assert!(ending(&admin, &under_way).is_none());
    assert!(matches!(ending(&admin, &none), Some(RedriveCommand::PassCanary(1, 0))));
    admin.executes(Command { by: Actor::system(None), ..steers(2, 1, RedriveCommand::PassCanary(1, 0)) });
    assert!(ending(&admin, &under_way).is_none());
    assert!(matches!(ending(&admin, &none), Some(RedriveCommand::Finish(1, 0))));
}

/// Nothing is on its way, and nothing failed again; but somebody gave one up, or handed it back by hand.
#[test]
fn a_canary_of_which_something_else_became_stops_its_redrive() {
    let (mut admin, dead) = with_a_dead_letter();
    admin.executes(starts(1, all_of_payment()));
    let tag = Tag { redrive: command_id(1), round: 1 };
    admin.executes(asks(2, CommandKind::Send { tag, dead_letters: vec![dead.id] }));
    let resolved = |resolved| Counted { resolved, ..Counted::default() };
    let stops = ending(&admin, &resolved(0));
    assert!(
        matches!(&stops, Some(RedriveCommand::Stop(1, because)) if because.contains("only 0 of a canary of 1")),
        "{stops:?}"
    );
    assert!(matches!(ending(&admin, &resolved(1)), Some(RedriveCommand::PassCanary(1, 1))));
}

/// Each driver says what it has seen; another one may have sent something since.
#[test]
fn nothing_ends_on_what_was_seen_before_another_driver_sent_more() {
    let (mut admin, dead) = with_a_dead_letter();
    admin.executes(starts(1, all_of_payment()));
    let seen = ending(&admin, &Counted::default()).expect("the canary passes");
    let tag = Tag { redrive: command_id(1), round: 1 };
    admin.executes(asks(2, CommandKind::Send { tag, dead_letters: vec![dead.id] }));
    admin.executes(Command { by: Actor::system(None), ..steers(3, 1, seen) }).rejection();
    admin.executes(Command { by: Actor::system(None), ..steers(4, 1, RedriveCommand::PassCanary(1, 1)) });
    admin
        .executes(Command { by: Actor::system(None), ..steers(5, 1, RedriveCommand::Finish(1, 0)) })
        .rejection();
    admin
        .executes(Command { by: Actor::system(None), ..steers(6, 1, RedriveCommand::Finish(1, 1)) })
        .has_outcome("done");
}

/// What comes back at once may come back before the second driver has spoken.
#[test]
fn a_round_sends_a_dead_letter_once() {
    let (mut admin, dead) = with_a_dead_letter();
    admin.executes(starts(1, all_of_payment()));
    let tag = Tag { redrive: command_id(1), round: 1 };
    let send = || CommandKind::Send { tag, dead_letters: vec![dead.id] };
    admin.executes(asks(2, send()));
    admin.executes(Command { by: Actor::system(None), ..steers(3, 1, RedriveCommand::PassCanary(1, 1)) });
    admin.receives(announced(&DeadLettered { fingerprint: "f2".to_owned(), ..dead_refund(1) }));
    admin.executes(asks(4, send())).publishes([]);
}

/// What is paused goes on once somebody says so: whoever watches it goes on watching.
#[test]
fn what_stopped_was_cancelled_or_is_done_is_over() {
    use RedriveStatus::{Canary, Cancelled, Done, Paused, Running, Stopped};
    let [on, over] = [[Canary, Running, Paused], [Stopped, Cancelled, Done]];
    assert!(over.iter().all(|status| status.is_over()) && !on.iter().any(|status| status.is_over()));
}
