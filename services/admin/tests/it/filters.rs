//! Pure: filters of dead letters, cursors, and active redrives.

use admin::dead_letters::events::MAX_REPLAYS;
use admin::dead_letters::filter::{Position, Selection, invalid_fields, key_of};
use admin::redrive::active::{ActiveChange, ActiveRedrives, ActiveRejection, MAX_REDRIVES};
use admin_api::dead_letters::Filter;
use jiff::Timestamp;
use saga_core::dead_letter::DeadLetterStatus;
use saga_core::decider::{Decider as _, FieldValue};
use uuid::Uuid;

const LATE: Timestamp = Timestamp::constant(1_900_000_000, 0);
const EARLY: Timestamp = Timestamp::constant(1_800_000_000, 0);

#[test]
fn filter_text_has_limits() {
    let of = |length: usize| Some("ö".repeat(length));
    let fields = |filter: Filter| -> Vec<String> {
        invalid_fields(&filter, "filter.").into_iter().map(|invalid| invalid.field).collect()
    };
    let none = Filter::default();
    assert!(none.is_empty() && fields(none).is_empty());
    let longest = Filter { text: of(200), step: of(1), ..Filter::default() };
    assert!(!longest.is_empty() && fields(longest).is_empty());
    let wrong = Filter {
        fingerprint: of(0),
        service: of(201),
        step: of(0),
        message_type: of(201),
        text: of(201),
        ..Filter::default()
    };
    let names = ["fingerprint", "service", "step", "type", "text"].map(|name| format!("filter.{name}"));
    assert_eq!(fields(wrong), names);
}

#[test]
fn equal_filters_have_the_same_key() {
    let of = |service: &str| Filter { service: Some(service.to_owned()), ..Filter::default() };
    assert_eq!(key_of(&of("payment")), key_of(&of("payment")));
    assert_ne!(key_of(&of("payment")), key_of(&of("order")));
    assert_ne!(
        key_of(&of("payment")),
        key_of(&Filter { step: Some("payment".to_owned()), ..Filter::default() })
    );
}

#[test]
fn filter_becomes_a_query_member_by_member() {
    let text = |text: &str| FieldValue::Text(text.to_owned());
    let micros = |at: Timestamp| FieldValue::Integer(at.as_microsecond());
    let saga = Uuid::from_u128(7);
    let filter = Filter {
        fingerprint: Some("f".to_owned()),
        service: Some("s".to_owned()),
        step: Some("t".to_owned()),
        message_type: Some("m".to_owned()),
        saga: Some(saga),
        failed_after: Some(EARLY),
        failed_before: Some(LATE),
        text: Some("a \"b\"".to_owned()),
    };
    let wanted = Selection { before: Some(EARLY), replayable: true, ..Selection::pending(filter) };
    let query = wanted.query();
    let equals = [
        ("fingerprint", text("f")),
        ("service", text("s")),
        ("step", text("t")),
        ("type", text("m")),
        ("saga", text(&saga.to_string())),
        ("status", text("PENDING")),
    ];
    assert_eq!(query.equals, equals);
    assert_eq!(query.from, [("failed_at", micros(EARLY))]);
    let replays = FieldValue::Integer(MAX_REPLAYS.into());
    assert_eq!(
        query.below,
        [("failed_at", micros(LATE)), ("failed_at", micros(EARLY)), ("replays", replays)]
    );
    assert_eq!(query.texts, ["a \\\"b\\\""], "as JSON writes it");
    assert_eq!(query.order.map(|order| (order.field, order.after)), Some(("failed_at", None)));

    let all = Selection::default().query();
    assert_eq!((all.equals.len(), all.one_of.len(), all.below.len()), (0, 0, 0));
    assert_eq!((all.from, all.texts), (vec![("failed_at", FieldValue::Integer(1))], vec![]), "what is known");
    let statuses = vec![DeadLetterStatus::Pending, DeadLetterStatus::Discarded];
    let some = Selection { statuses, ..Selection::default() }.query();
    assert_eq!(some.one_of, [("status", vec![text("PENDING"), text("DISCARDED")])]);
    assert!(some.equals.is_empty() && some.from.is_empty());
}

#[test]
fn list_continues_after_its_cursor() {
    let position = Position { micros: -7, id: Uuid::from_u128(5).to_string() };
    assert_eq!(Position::read(&position.written()), Some(position.clone()));
    for wrong in ["", "7", "7/", "/00000000-0000-0000-0000-000000000005", "x/y"] {
        assert_eq!(Position::read(wrong), None, "{wrong:?}");
    }
    let mut query = Selection::default().query();
    position.resume(&mut query);
    assert_eq!(query.after, Some(position.id));
    assert_eq!(query.order.map(|order| (order.field, order.after)), Some(("failed_at", Some(-7))));
}

#[test]
fn active_redrives_are_bounded_and_unique_by_filter() {
    let mut roster = ActiveRedrives::default();
    let id = |number: usize| Uuid::from_u128(number as u128);
    let enter = |filter, redrive| ActiveChange::Started { filter: id(filter), redrive: id(redrive) };
    for number in 1..=MAX_REDRIVES {
        let change = enter(number, number);
        assert_eq!(roster.decide(&change), Ok(vec![change]), "{number}");
        roster.evolve(&change);
        assert_eq!(roster.decide(&change), Ok(vec![]), "it is entered already");
    }
    assert_eq!(roster.decide(&enter(99, 99)), Err(ActiveRejection::Full));
    assert_eq!(roster.decide(&enter(3, 99)), Err(ActiveRejection::SameFilter(id(3))));

    let rests = ActiveChange::Paused { redrive: id(2) };
    assert_eq!(roster.decide(&rests), Ok(vec![rests]));
    roster.evolve(&rests);
    assert_eq!(roster.decide(&rests), Ok(vec![]));
    let sending: Vec<_> = roster.sending().collect();
    assert_eq!(
        (sending.len(), sending.contains(&id(2)), sending.contains(&id(3))),
        (MAX_REDRIVES - 1, false, true)
    );
    roster.evolve(&ActiveChange::Ended { redrive: id(2) });
    assert_eq!(roster.decide(&ActiveChange::Ended { redrive: id(2) }), Ok(vec![]), "it has left");
    assert_eq!(roster.decide(&enter(99, 99)), Ok(vec![enter(99, 99)]), "there is room again");
    assert_eq!(roster.sending().count(), MAX_REDRIVES - 1, "who left had not been sending");
}
