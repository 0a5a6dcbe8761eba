//! Golden files of the engine's own messages: an addition passes, a change fails.
//!
//! A golden file that must change means a new version of its message. Old messages are still in the broker when a
//! new build starts, and other services still run the old build.

use insta::assert_snapshot;
use jiff::Timestamp;
use saga_core::dead_letter::{
    DEAD_LETTER_TYPES, DeadLetterDiscarded, DeadLetterForgotten, DeadLetterMessage, DeadLetterOrigin,
    DeadLetterResolved, DeadLetterRestored, DeadLettered, DeliveryInfo, EditedMessage, OPERATOR_COMMANDS,
    OriginalMessage, ReplayEffect, ReplayRequested,
};
use saga_core::message::{Message as _, MessageType};
use saga_core::testing::{
    added_members_are_passed_over, each_reads_what_it_writes, json_of, missing_members_are_named,
};
use uuid::Uuid;

/// Optional members.
const OPTIONAL: [(&str, &str); 9] = [
    ("DeadLettered", "subject"),
    ("DeadLetterDiscarded", "replays"),
    ("DeadLettered", "message_type"),
    ("DeadLettered", "saga"),
    ("DeadLettered", "delivery"),
    ("DeadLettered", "headers"),
    ("DeadLettered", "original"),
    ("DeadLetterResolved", "saga"),
    ("ReplayRequested", "edited"),
];

#[test]
fn every_message_matches_its_golden_file() {
    for message in examples() {
        let MessageType { name, version, .. } = message.message_type();
        let mut sorted = json_of(&message);
        sorted.sort_all_objects();
        golden(&format!("{name}.v{version}"), &format!("{sorted:#}"));
    }
}

#[test]
fn every_message_round_trips() {
    each_reads_what_it_writes(&examples());
}

/// A producer may run a newer build than its consumers.
#[test]
fn unknown_member_is_ignored() {
    added_members_are_passed_over(&examples(), |_| false);
}

#[test]
fn missing_member_is_an_error_that_names_it() {
    missing_members_are_named(&examples(), &OPTIONAL);
}

/// Commands are addressed: no other service receives them.
#[test]
fn operator_command_is_addressed_to_owner_of_dead_letter() {
    for message in examples() {
        let (subject, message_type) = (message.subject("admin"), message.message_type());
        assert_eq!(subject.ends_with(".inventory"), message.addressee() == Some("inventory"), "{subject}");
        assert_eq!(message.addressee().is_some(), message_type.is_addressed, "{subject}");
        assert_eq!(message_type.subject("admin", "inventory"), subject);
    }
}

/// Subjects are part of the wire format: a consumer of the old subject would receive nothing.
#[test]
fn every_message_has_its_own_subject() {
    let types: Vec<_> = DEAD_LETTER_TYPES.into_iter().chain(OPERATOR_COMMANDS).collect();
    let line = |it: &MessageType| format!("{} {}", it.name, it.subject("service", "listener"));
    let lines: Vec<_> = types.iter().map(line).collect();
    golden("subjects", &lines.join("\n"));
    assert_eq!(std::collections::BTreeSet::from_iter(&lines).len(), examples().len());
    for (message_type, example) in types.iter().zip(examples()) {
        assert_eq!(DeadLetterMessage::named(message_type.name), Some(*message_type));
        assert_eq!(example.message_type(), *message_type);
    }
}

fn examples() -> [DeadLetterMessage; 6] {
    let (dead_letter, service) = (id(44), "inventory".to_owned());
    let step = "inventory-stock-reservation".to_owned();
    let edited = Some(EditedMessage { message_id: id(47), payload_base64: "e30=".to_owned() });
    let dead_lettered = DeadLettered {
        trace: None,
        id: dead_letter,
        service: service.clone(),
        step: step.clone(),
        // Foreign until it was edited.
        origin: DeadLetterOrigin::Foreign,
        message_id: id(45),
        message_type: Some("OrderCreated".to_owned()),
        saga: Some(id(42)),
        reason: "data is no OrderCreated: missing field `lines`".to_owned(),
        error_chain: vec!["data is no OrderCreated".to_owned(), "missing field `lines`".to_owned()],
        fingerprint: "0af7651916cd".to_owned(),
        attempts: 1,
        first_failed_at: at(1),
        last_failed_at: at(2),
        replays: 1,
        delivery: Some(DeliveryInfo {
            stream: "ORDER".to_owned(),
            sequence: 7,
            subject: "order.created".to_owned(),
            headers: vec![("Nats-Msg-Id".to_owned(), id(45).to_string())],
        }),
        payload_base64: "e30=".to_owned(),
        original: Some(OriginalMessage { message_id: id(46), payload_base64: "e31=".to_owned() }),
    };
    let resolved = DeadLetterResolved {
        dead_letter,
        service: service.clone(),
        step,
        saga: Some(id(42)),
        message_id: id(45),
        replays: 2,
        effect: ReplayEffect::Rejected { reason: "the order is cancelled already".to_owned() },
    };
    let replay = ReplayRequested { dead_letter, service: service.clone(), revision: 3, edited };
    let discarded =
        DeadLetterDiscarded { dead_letter, service: service.clone(), revision: 4, replays: Some(1) };
    [
        DeadLetterMessage::DeadLettered(Box::new(dead_lettered)),
        DeadLetterMessage::DeadLetterResolved(resolved),
        DeadLetterMessage::DeadLetterForgotten(DeadLetterForgotten {
            dead_letter,
            service: service.clone(),
            revision: 3,
        }),
        DeadLetterMessage::ReplayRequested(replay),
        DeadLetterMessage::DeadLetterDiscarded(discarded),
        DeadLetterMessage::DeadLetterRestored(DeadLetterRestored { dead_letter, service, revision: 5 }),
    ]
}

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000_000 + second).expect("a time")
}

/// Compares `text` with `snapshots/{name}.snap`.
#[track_caller]
fn golden(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| assert_snapshot!(name, text));
}
