//! Pure: printed tables: dead letters and redrives by status and command, sagas by status and fact.

use admin::dead_letters::events::{DeadLetterCommand, Replay, Tag};
use admin::dead_letters::view::DeadLetterView;
use admin::redrive::decider::Redrive;
use admin::redrive::events::{Plan, RedriveCommand};
use admin::service::AdminService;
use admin_api::actor::Actor;
use admin_api::dead_letters::Filter;
use contract::saga_view::SagaView;
use saga_core::dead_letter::{DeadLetterOrigin, DeadLetterStatus, DeadLettered, EditedMessage};
use saga_core::decider::{Decider, RetentionPolicy};
use saga_core::service::Service as _;
use saga_engine::testing::decider::{Names, aligned, table};
use saga_engine::testing::{NOON, consumed_facts};
use uuid::Uuid;

use crate::given::{Admin, ORDER, all_types, by_ada, dead_refund, fact, resolved};

/// Actions of people are the record of what they did.
#[test]
fn only_actions_of_people_are_kept_for_ever() {
    let kept = AdminService::rows().into_iter().filter(|kind| kind.retention == RetentionPolicy::Keep);
    let kept: Vec<_> = kept.map(|kind| kind.name).collect();
    assert_eq!(kept, ["redrive", "active_redrives", "audit_entry"]);
}

#[test]
fn every_status_in_which_a_dead_letter_does_not_wait_is_closed() {
    let RetentionPolicy::PurgeClosedRows(closed) = DeadLetterView::RETENTION else {
        panic!("views of dead letters are purged by age");
    };
    let waits = [DeadLetterStatus::Pending, DeadLetterStatus::Replaying];
    let over = DeadLetterStatus::ALL.iter().filter(|status| !waits.contains(status));
    assert_eq!(closed.closed, over.map(|status| status.as_str()).collect::<Vec<_>>());
    assert!([closed.status, closed.since].iter().all(|field| DeadLetterView::FIELDS.contains(field)));
}

#[test]
fn every_status_of_a_dead_letter_answers_every_command() {
    let announced = |replays| DeadLetterCommand::Announce(Box::new(dead_refund(replays)));
    let resolution = || DeadLetterCommand::Resolve(Box::new(resolved(&dead_refund(0))));
    let task = DeadLetterCommand::Announce(Box::new(DeadLettered {
        origin: DeadLetterOrigin::Task,
        ..dead_refund(0)
    }));
    let stories: [Vec<DeadLetterCommand>; 10] = [
        vec![],
        vec![announced(0)],
        vec![task],
        vec![announced(1)],
        vec![announced(3)],
        vec![announced(0), replay(Replay::default())],
        vec![announced(0), replay(Replay::default()), resolution()],
        vec![resolution()],
        vec![announced(0), DeadLetterCommand::Discard(by_ada())],
        vec![announced(0), DeadLetterCommand::ResolveManually(by_ada())],
    ];
    let edited = EditedMessage { message_id: Uuid::from_u128(8), payload_base64: String::new() };
    let commands = [
        announced(0),
        announced(1),
        announced(2),
        resolution(),
        replay(Replay::default()),
        replay(Replay { force: true, ..Replay::default() }),
        replay(Replay { version: Some(1), ..Replay::default() }),
        replay(Replay { edited: Some(edited), ..Replay::default() }),
        replay(Replay { tag: Some(Tag { redrive: ORDER, round: 1 }), ..Replay::default() }),
        DeadLetterCommand::Discard(by_ada()),
        DeadLetterCommand::Restore(by_ada()),
        DeadLetterCommand::Note(by_ada(), "called the bank".to_owned()),
        DeadLetterCommand::ResolveManually(by_ada()),
        DeadLetterCommand::WithdrawResolution(by_ada()),
    ];
    let names = Names {
        state: |dead: &DeadLetterView| {
            let status = dead.status().map_or("unknown", |status| status.as_str());
            let kind = dead
                .report()
                .filter(|report| report.origin == DeadLetterOrigin::Task)
                .map_or("", |_| " call");
            format!("{status}{kind} v{} after {}", dead.version(), dead.replays())
        },
        command: |(command, _)| named(command),
        rejection: ToString::to_string,
    };
    let at = |command: DeadLetterCommand| (command, NOON);
    let states = stories.map(|story| after(&story.into_iter().map(at).collect::<Vec<_>>()));
    printed("dead_letter", &table::<DeadLetterView>(&states, &commands.map(at), &names));
}

fn replay(replay: Replay) -> DeadLetterCommand {
    DeadLetterCommand::Replay(by_ada(), replay)
}

fn named(command: &DeadLetterCommand) -> String {
    match command {
        DeadLetterCommand::Announce(dead) => format!("announce {}", dead.replays),
        DeadLetterCommand::Resolve(_) => "resolve".to_owned(),
        DeadLetterCommand::Forget(_) => "forget".to_owned(),
        DeadLetterCommand::Replay(_, replay) => {
            let how = [
                replay.force.then(|| " by force".to_owned()),
                replay.version.map(|version| format!(" v{version}")),
                replay.edited.as_ref().map(|_| " edited".to_owned()),
                replay.tag.map(|_| " in a redrive".to_owned()),
            ];
            format!("replay{}", how.into_iter().flatten().collect::<String>())
        }
        DeadLetterCommand::Discard(_) => "discard".to_owned(),
        DeadLetterCommand::Restore(_) => "restore".to_owned(),
        DeadLetterCommand::Note(..) => "note".to_owned(),
        DeadLetterCommand::ResolveManually(_) => "resolve manually".to_owned(),
        DeadLetterCommand::WithdrawResolution(_) => "withdraw resolution".to_owned(),
    }
}

#[test]
fn every_status_of_a_redrive_answers_every_command() {
    use RedriveCommand::{Cancel, Count, Finish, PassCanary, Pause, Resume, Start, Stop};
    let (by, filter) = (Actor::system(None), Filter::default());
    let plan = |canary| Plan {
        filter: filter.clone(),
        canary,
        rate: None,
        force: false,
        by: by.clone(),
        matching: 9,
    };
    let (careful, bold) = (Start(Box::new(plan(1))), Start(Box::new(plan(0))));
    let stop = |round| Stop(round, "it came back".to_owned());
    let stories: [Vec<RedriveCommand>; 11] = [
        vec![],
        vec![careful.clone()],
        vec![bold.clone()],
        vec![careful.clone(), Pause],
        vec![careful.clone(), Count(1, 1)],
        vec![careful.clone(), PassCanary(1, 0), Pause],
        vec![careful.clone(), stop(1)],
        vec![bold.clone(), stop(1)],
        vec![careful.clone(), stop(1), Resume],
        vec![careful.clone(), Cancel],
        vec![bold.clone(), Finish(1, 0)],
    ];
    let at = |command: RedriveCommand| (command, NOON);
    let commands = [
        careful.clone(),
        bold,
        Pause,
        Resume,
        Cancel,
        stop(1),
        stop(2),
        Count(1, 0),
        Count(1, 1),
        Count(2, 1),
        PassCanary(1, 0),
        PassCanary(1, 1),
        PassCanary(2, 0),
        Finish(1, 0),
        Finish(1, 1),
        Finish(2, 0),
    ]
    .map(at);
    let names = Names {
        state: |redrive: &Redrive| {
            redrive.drive().map_or("unknown".to_owned(), |drive| {
                let canary = if drive.in_canary { ", canary" } else { "" };
                format!("{} in round {}{canary}, {} sent", drive.status, drive.round, drive.sent)
            })
        },
        command: |(command, _)| match command {
            Start(plan) => format!("start with {}", plan.canary),
            Pause => "pause".to_owned(),
            Resume => "resume".to_owned(),
            Cancel => "cancel".to_owned(),
            Stop(round, _) => format!("stop {round}"),
            Count(round, count) => format!("count {count} in {round}"),
            PassCanary(round, sent) => format!("pass canary {round} of {sent}"),
            Finish(round, sent) => format!("finish {round} of {sent}"),
        },
        rejection: ToString::to_string,
    };
    let states = stories.map(|story| after(&story.into_iter().map(at).collect::<Vec<_>>()));
    printed("redrive", &table::<Redrive>(&states, &commands, &names));
}

/// State after these commands.
fn after<D: Decider<Rejection: std::fmt::Debug>>(story: &[D::Command]) -> D {
    let mut state = D::default();
    for command in story {
        state.decide(command).expect("the story is possible").iter().for_each(|event| state.evolve(event));
    }
    state
}

#[track_caller]
fn printed(name: &str, text: &str) {
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(name, text);
    });
}

#[test]
fn every_status_of_a_saga_takes_every_fact() {
    let stories: [(&str, &[&str]); 7] = [
        ("unheard of", &[]),
        ("created", &["OrderCreated"]),
        ("reserved", &["OrderCreated", "StockReserved"]),
        ("paid", &["OrderCreated", "StockReserved", "PaymentProcessed"]),
        ("confirmed", &["OrderCreated", "StockReserved", "PaymentProcessed", "OrderConfirmed"]),
        ("refused", &["OrderCreated", "StockReservationFailed", "OrderCancelled"]),
        (
            "cancelled late",
            &["OrderCreated", "StockReserved", "PaymentProcessed", "OrderCancelled", "StockReleased"],
        ),
    ];
    let mut lines =
        vec![["then".to_owned()].into_iter().chain(stories.map(|(name, _)| name.to_owned())).collect()];
    let received = consumed_facts::<AdminService>();
    for then in all_types().filter(|name| received.contains(name)) {
        let status = |(_, story): &(&str, &[&str])| status_after(story.iter().chain([&then]));
        lines.push([then.to_owned()].into_iter().chain(stories.iter().map(status)).collect::<Vec<_>>());
    }
    let lines: Vec<[String; 8]> =
        lines.into_iter().map(|line| line.try_into().expect("a column for each story")).collect();
    printed("saga_view", &aligned(&lines));
}

fn status_after<'a>(story: impl Iterator<Item = &'a &'a str>) -> String {
    let mut admin = Admin::of(AdminService);
    for received in story {
        admin.receives(fact(received, ORDER)).has_outcome("done");
    }
    admin.row::<SagaView>(ORDER).status().as_str().to_owned()
}
