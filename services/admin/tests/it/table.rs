//! Pure: what a dead letter and a redrive answer in every status to every wish, and where a saga stands after every
//! fact, printed.

use admin::filter::Filter;
use admin::letters::{By, Letter, LetterCommand, Replay, Tag};
use admin::policy::AdminService;
use admin::redrive::{Plan, Redrive, RedriveCommand};
use shared::contract::{DeadLettered, EditedMessage, FactType, LetterOrigin};
use shared::decider::Decider;
use shared::saga::SagaView;
use uuid::Uuid;

use crate::domain::{Names, aligned, table};
use crate::given::{ORDER, by_ada, fact, letter, resolved};
use crate::world::message::facts_heard;
use crate::world::{NOON, World};

#[test]
fn every_status_of_a_dead_letter_answers_every_wish() {
    let announced = |replays| LetterCommand::Announce(Box::new(dead(replays)));
    let resolution = || LetterCommand::Resolve(Box::new(resolved(&dead(0))));
    let task = LetterCommand::Announce(Box::new(DeadLettered { origin: LetterOrigin::Task, ..dead(0) }));
    let stories: [Vec<LetterCommand>; 9] = [
        vec![],
        vec![announced(0)],
        vec![task],
        vec![announced(1)],
        vec![announced(3)],
        vec![announced(0), replay(false, None)],
        vec![announced(0), replay(false, None), resolution()],
        vec![resolution()],
        vec![announced(0), LetterCommand::Discard(by_ada())],
    ];
    let edited = EditedMessage { message_id: Uuid::from_u128(8), payload_base64: String::new() };
    let commands = [
        announced(0),
        announced(1),
        announced(2),
        resolution(),
        replay(false, None),
        replay(true, None),
        replay(false, Some(1)),
        LetterCommand::Replay(Replay { edited: Some(edited), ..asked(false, None) }),
        LetterCommand::Replay(Replay { tag: Some(Tag { redrive: ORDER, round: 1 }), ..asked(false, None) }),
        LetterCommand::Discard(by_ada()),
        LetterCommand::Restore(by_ada()),
        LetterCommand::Note(by_ada(), "called the bank".to_owned()),
    ];
    let names = Names {
        state: |letter: &Letter| {
            let status = letter.status().map_or("unknown", |status| status.as_str());
            let kind = letter.said().filter(|said| said.origin == LetterOrigin::Task).map_or("", |_| " call");
            format!("{status}{kind} v{} after {}", letter.version(), letter.replays())
        },
        command: letter_wish,
        rejection: ToString::to_string,
    };
    printed("dead_letter", &table(&stories.map(|story| after(&story)), &commands, &names));
}

fn dead(replays: u32) -> DeadLettered {
    letter("payment-refund", Some(ORDER), replays)
}

fn asked(force: bool, version: Option<u64>) -> Replay {
    Replay { by: by_ada(), force, version, tag: None, edited: None }
}

fn replay(force: bool, version: Option<u64>) -> LetterCommand {
    LetterCommand::Replay(asked(force, version))
}

fn letter_wish(command: &LetterCommand) -> String {
    match command {
        LetterCommand::Announce(letter) => format!("announce {}", letter.replays),
        LetterCommand::Resolve(_) => "resolve".to_owned(),
        LetterCommand::Replay(replay) => {
            let how = [
                replay.force.then(|| " by force".to_owned()),
                replay.version.map(|version| format!(" v{version}")),
                replay.edited.as_ref().map(|_| " edited".to_owned()),
                replay.tag.map(|_| " in a redrive".to_owned()),
            ];
            format!("replay{}", how.into_iter().flatten().collect::<String>())
        }
        LetterCommand::Discard(_) => "discard".to_owned(),
        LetterCommand::Restore(_) => "restore".to_owned(),
        LetterCommand::Note(..) => "note".to_owned(),
    }
}

#[test]
fn every_status_of_a_redrive_answers_every_wish() {
    use RedriveCommand::{Cancel, Finish, PassCanary, Pause, Resume, Start, Stop};
    let (by, filter) = (By::system(None), Filter::default());
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
    let stories: [Vec<RedriveCommand>; 10] = [
        vec![],
        vec![careful.clone()],
        vec![bold.clone()],
        vec![careful.clone(), Pause],
        vec![careful.clone(), PassCanary(1), Pause],
        vec![careful.clone(), stop(1)],
        vec![bold.clone(), stop(1)],
        vec![careful.clone(), stop(1), Resume],
        vec![careful.clone(), Cancel],
        vec![bold.clone(), Finish(1)],
    ];
    let at = |wish: RedriveCommand| (wish, NOON);
    let commands = [
        careful.clone(),
        bold,
        Pause,
        Resume,
        Cancel,
        stop(1),
        stop(2),
        PassCanary(1),
        PassCanary(2),
        Finish(1),
        Finish(2),
    ]
    .map(at);
    let names = Names {
        state: |redrive: &Redrive| {
            redrive.drive().map_or("unknown".to_owned(), |drive| {
                let canary = if drive.in_canary { ", canary" } else { "" };
                format!("{} in round {}{canary}", drive.status.as_str(), drive.round)
            })
        },
        command: |(command, _)| match command {
            Start(plan) => format!("start with {}", plan.canary),
            Pause => "pause".to_owned(),
            Resume => "resume".to_owned(),
            Cancel => "cancel".to_owned(),
            Stop(round, _) => format!("stop {round}"),
            PassCanary(round) => format!("pass canary {round}"),
            Finish(round) => format!("finish {round}"),
        },
        rejection: ToString::to_string,
    };
    let states = stories.map(|story| after(&story.into_iter().map(at).collect::<Vec<_>>()));
    printed("redrive", &table::<Redrive>(&states, &commands, &names));
}

/// The state after these wishes.
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
fn every_fact_moves_every_saga() {
    use FactType::{
        OrderCancelled, OrderConfirmed, OrderCreated, PaymentProcessed, StockReleased,
        StockReservationFailed, StockReserved,
    };
    let stories: [(&str, &[FactType]); 7] = [
        ("unheard of", &[]),
        ("created", &[OrderCreated]),
        ("reserved", &[OrderCreated, StockReserved]),
        ("paid", &[OrderCreated, StockReserved, PaymentProcessed]),
        ("confirmed", &[OrderCreated, StockReserved, PaymentProcessed, OrderConfirmed]),
        ("refused", &[OrderCreated, StockReservationFailed, OrderCancelled]),
        ("cancelled late", &[OrderCreated, StockReserved, PaymentProcessed, OrderCancelled, StockReleased]),
    ];
    let mut lines =
        vec![["then".to_owned()].into_iter().chain(stories.map(|(name, _)| name.to_owned())).collect()];
    for then in facts_heard::<AdminService>() {
        let status = |(_, story): &(&str, &[FactType])| status_after(story.iter().chain([&then]));
        lines
            .push([then.name().to_owned()].into_iter().chain(stories.iter().map(status)).collect::<Vec<_>>());
    }
    let lines: Vec<[String; 8]> =
        lines.into_iter().map(|line| line.try_into().expect("a column for each story")).collect();
    printed("saga_view", &aligned(&lines));
}

fn status_after<'a>(story: impl Iterator<Item = &'a FactType>) -> String {
    let mut admin = World::of(AdminService);
    for heard in story {
        admin.hears(fact(*heard, ORDER)).comes_out("done");
    }
    admin.row::<SagaView>(ORDER).status().as_str().to_owned()
}
