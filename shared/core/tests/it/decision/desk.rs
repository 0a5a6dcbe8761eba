//! The service of the operators: engine messages beside the facts of its system.

use std::convert::Infallible;

use saga_core::dead_letter::{
    DEAD_LETTER_TYPES, DeadLetterMessage, DeadLetterResolved, DeadLetterRestored, OPERATOR_COMMANDS,
    OperatorMessage, ReplayEffect,
};
use saga_core::decision::{Loaded, decide};
use saga_core::input::{Content, Input, InputKind};
use saga_core::message::{Envelope, Message, MessageType, raw};
use saga_core::operator::Operator;
use saga_core::service::{Service, Step, Subscription, steps_of};
use saga_core::testing::{json_of, read_as};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::till::{NOON, Till, delivered, envelope};
use super::world::World;

const RUNG: MessageType = MessageType::new("Rung", "rung").addressed();
const SAGA: Uuid = Uuid::from_u128(0x5A6A);
static VIEWING: Step = Step::new("viewing", &[Subscription::to("till", &DEAD_LETTER_TYPES)]);

#[test]
fn operator_publishes_command_to_its_service() {
    let command = restored();
    let input = Input::command(Uuid::from_u128(1), Uuid::from_u128(2), command.clone(), None);
    let world = World::new();
    let desk = Operator::<Rung>::default();
    let (writes, outcomes) = decide(&desk, &[input], Loaded::default(), &world.rules, NOON);
    let [entry] = &writes.outbox[..] else { panic!("one message: {writes:?}") };
    assert_eq!((outcomes[0].name(), &entry.subject[..]), ("done", "operator.dead_letter_restored.till"));
    let announced = Envelope::from_bytes(&entry.payload).expect("an envelope").open::<DeadLetterMessage>();
    assert_eq!(announced.expect("a message of the engine").fact, command);
}

#[test]
fn operator_message_delegates_to_fact_or_engine_message() {
    type Both = OperatorMessage<Rung>;
    for message_type in DEAD_LETTER_TYPES.into_iter().chain(OPERATOR_COMMANDS).chain([RUNG]) {
        assert_eq!(Both::named(message_type.name), Some(message_type));
    }
    assert_eq!(Both::named("Paid"), None);
    let resolved = DeadLetterMessage::DeadLetterResolved(resolved());
    let both: [(Both, _, _, _); 3] = [
        (OperatorMessage::Fact(Rung { saga: SAGA }), RUNG, Some(SAGA), Some("porter")),
        (resolved.into(), DEAD_LETTER_TYPES[1], Some(SAGA), None),
        (restored().into(), OPERATOR_COMMANDS[2], None, Some("till")),
    ];
    for (message, message_type, saga, addressee) in both {
        assert_eq!(
            (message.message_type(), message.saga(), message.addressee()),
            (message_type, saga, addressee)
        );
        assert_eq!(read_as(&message, &json_of(&message)).expect("its own JSON"), message);
    }
}

/// A service that declares engine messages as its own facts handles them; otherwise the engine does.
#[test]
fn service_that_declares_engine_messages_handles_them() {
    let about = envelope(1, &DeadLetterMessage::DeadLetterResolved(resolved()));
    let of_till = String::from_utf8(about.clone()).expect("text").replace("\"shop\"", "\"till\"");
    let heard = Input::<Desk>::message(&VIEWING, of_till.into(), Uuid::nil(), 0);
    let InputKind::Message(heard) = heard.kind else { panic!("a message") };
    assert!(matches!(heard.content, Ok(Content::Fact(_))), "{:?}", heard.content);
    let operations = steps_of::<Till>().into_iter().find(|step| step.is_for_operators()).expect("a step");
    let InputKind::Message(heard) = delivered(operations, &envelope(1, &restored())).kind else {
        panic!("a message")
    };
    assert!(matches!(heard.content, Ok(Content::Operator(_))), "{:?}", heard.content);
}

fn resolved() -> DeadLetterResolved {
    let (service, step) = ("till".to_owned(), "counting".to_owned());
    let (dead_letter, message_id) = (Uuid::from_u128(3), Uuid::from_u128(4));
    let saga = Some(SAGA);
    DeadLetterResolved {
        dead_letter,
        service,
        step,
        saga,
        message_id,
        replays: 1,
        effect: ReplayEffect::TookEffect,
    }
}

fn restored() -> DeadLetterMessage {
    let (dead_letter, service) = (Uuid::from_u128(3), "till".to_owned());
    DeadLetterMessage::DeadLetterRestored(DeadLetterRestored { dead_letter, service, revision: 1 })
}

/// The only fact of the system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Rung {
    saga: Uuid,
}

impl Message for Rung {
    fn message_type(&self) -> MessageType {
        RUNG
    }

    fn named(name: &str) -> Option<MessageType> {
        (name == RUNG.name).then_some(RUNG)
    }

    fn saga(&self) -> Option<Uuid> {
        Some(self.saga)
    }

    fn addressee(&self) -> Option<&str> {
        Some("porter")
    }

    fn encode(&self) -> serde_json::Result<Box<RawValue>> {
        raw(self)
    }

    fn decode<'de, D: Deserializer<'de>>(_: MessageType, data: D) -> Result<Self, D::Error> {
        Deserialize::deserialize(data)
    }
}

#[derive(Debug)]
struct Desk;

impl Service for Desk {
    const NAME: &'static str = "desk";
    type Fact = OperatorMessage<Rung>;
    type Command = Infallible;
    type Reply = ();
    type Rejection = Infallible;
}
