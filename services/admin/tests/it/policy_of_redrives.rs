//! Pure: commands of operators and drivers to redrives.

use admin::audit_log::AuditEntry;
use admin::commands::{Command, CommandKind, Rejection};
use admin::dead_letters::events::Tag;
use admin::dead_letters::view::DeadLetterView;
use admin::redrive::active::ActiveRejection;
use admin::redrive::decider::{Counted, Redrive};
use admin::redrive::events::{Plan, RedriveCommand};
use admin::service::AdminService;
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

/// Start of a redrive with the `number`-th id.
fn starts(number: u128, filter: Filter) -> Command {
    let (canary, rate, force, matching) = (1, None, false, 1);
    let plan = Plan { filter, canary, rate, force, by: by_ada(), matching };
    steers(number, number, RedriveCommand::Start(Box::new(plan)))
}

/// Command to the `redrive`-th redrive.
fn steers(number: u128, redrive: u128, command: RedriveCommand) -> Command {
    asks(number, CommandKind::Redrive(command_id(redrive), command))
}

fn all_of_payment() -> Filter {
    Filter { service: Some("payment".to_owned()), ..Filter::default() }
}

#[test]
fn second_redrive_with_the_same_filter_is_rejected() {
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
    let plan = json!({ "filter": { "service": "payment" }, "canary": 1, "force": false, "matching": 1 });
    assert_eq!((detail(7), detail(6)), (Some(plan), None));
}

#[test]
fn stopped_redrive_resumes_only_without_another_of_its_filter() {
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

#[test]
fn paused_redrive_and_old_round_send_nothing() {
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
fn dead_letter_is_indexed_by_its_position_in_a_redrive() {
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
fn canary_and_redrive_do_not_end_while_replays_are_in_flight() {
    let mut admin = Admin::of(AdminService);
    admin.executes(starts(1, all_of_payment()));
    let (under_way, none) = (Counted { in_flight: 1, ..Counted::default() }, Counted::default());
    assert!(ending(&admin, &under_way).is_none());
    assert!(matches!(ending(&admin, &none), Some(RedriveCommand::PassCanary(1, 0))));
    admin.executes(Command { by: Actor::system(None), ..steers(2, 1, RedriveCommand::PassCanary(1, 0)) });
    assert!(ending(&admin, &under_way).is_none());
    assert!(matches!(ending(&admin, &none), Some(RedriveCommand::Finish(1, 0))));
}

#[test]
fn canary_discarded_or_replayed_by_hand_stops_its_redrive() {
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
    let in_vain = ending(&admin, &Counted { in_vain: 1, ..resolved(1) });
    assert!(
        matches!(&in_vain, Some(RedriveCommand::Stop(1, because)) if because.contains("changed nothing")),
        "{in_vain:?}"
    );
}

#[test]
fn outdated_count_ends_neither_canary_nor_redrive() {
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

/// A failed replay may be reported before the second driver sends.
#[test]
fn round_sends_a_dead_letter_once() {
    let (mut admin, dead) = with_a_dead_letter();
    admin.executes(starts(1, all_of_payment()));
    let tag = Tag { redrive: command_id(1), round: 1 };
    let send = || CommandKind::Send { tag, dead_letters: vec![dead.id] };
    admin.executes(asks(2, send()));
    admin.executes(Command { by: Actor::system(None), ..steers(3, 1, RedriveCommand::PassCanary(1, 1)) });
    admin.receives(announced(&DeadLettered { fingerprint: "f2".to_owned(), ..dead_refund(1) }));
    admin.executes(asks(4, send())).publishes([]);
}

#[test]
fn stopped_cancelled_and_done_redrives_are_over() {
    use RedriveStatus::{Canary, Cancelled, Done, Paused, Running, Stopped};
    let [on, over] = [[Canary, Running, Paused], [Stopped, Cancelled, Done]];
    assert!(over.iter().all(|status| status.is_over()) && !on.iter().any(|status| status.is_over()));
}
