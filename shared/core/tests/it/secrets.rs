//! Redaction of secrets, and their restoration in edits.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use proptest::prelude::*;
use saga_core::dead_letter::{DeadLettered, OriginalMessage};
use saga_core::retry::{FailedAttempt, FailureKind};
use saga_core::secrets::{BLANK, blank, blank_bytes, restore_secrets};
use serde_json::{Value, json};
use uuid::Uuid;

const NAMES: [&str; 1] = ["token"];

#[test]
fn redacted_secret_is_restored_in_place() {
    let original =
        json!({"payment": {"token": "tok_1", "note": "a"}, "cards": [{"token": 7}, {"token": null}]});
    let mut shown = original.clone();
    blank(&mut shown, &NAMES);
    let blanked =
        json!({"payment": {"token": BLANK, "note": "a"}, "cards": [{"token": BLANK}, {"token": BLANK}]});
    assert_eq!(shown, blanked);
    shown["payment"]["note"] = "b".into();
    assert_eq!(restore_secrets(&mut shown, &original, &NAMES), Ok(()));
    assert_eq!(
        (&shown["payment"], &shown["cards"]),
        (&json!({"token": "tok_1", "note": "b"}), &original["cards"])
    );
}

#[test]
fn new_secret_is_kept_and_placeholder_without_secret_is_rejected() {
    let original = json!({"token": "old", "note": "***"});
    let mut anew = json!({"token": "new", "note": "***"});
    assert_eq!(restore_secrets(&mut anew, &original, &NAMES), Ok(()));
    assert_eq!(anew, json!({"token": "new", "note": "***"}));
    for (edited, path) in [
        (json!({"payment": {"token": BLANK}}), "payment.token"),
        (json!({"cards": [{}, {"token": BLANK}]}), "cards[1].token"),
    ] {
        assert_eq!(restore_secrets(&mut edited.clone(), &original, &NAMES), Err(path.to_owned()));
    }
}

#[test]
fn redaction_changes_only_secrets() {
    for (bytes, shown) in [
        (r#"{"b": 1e400,  "token" : "tok_1" , "a":2}"#, r#"{"b": 1e400,  "token" : "***" , "a":2}"#),
        (r#"{"token":4111111111111111}"#, r#"{"token":"***"}"#),
        (r#"{"token":["tok_1",{"x":"]"}],"a":1}"#, r#"{"token":"***","a":1}"#),
        (r#"{"t\u006fken":"a\"tok_1"}"#, r#"{"t\u006fken":"***"}"#),
        (r#"{"a":"token","b":["token"]}"#, r#"{"a":"token","b":["token"]}"#),
        (r#"{"a":"\"token\":\"shown\""}"#, r#"{"a":"\"token\":\"shown\""}"#),
        // Invalid JSON: truncated, or with trailing bytes.
        (r#"{"token":"tok_1"#, r#"{"token":"***""#),
        (r#"}}{"token":"tok_1"} {"token": true}"#, r#"}}{"token":"***"} {"token": "***"}"#),
        (r#"{"token""#, r#"{"token""#),
        (r#"{"token":"#, r#"{"token":"***""#),
        ("", ""),
    ] {
        assert_eq!(String::from_utf8_lossy(&blank_bytes(bytes.as_bytes(), &NAMES)), shown, "{bytes}");
    }
    assert_eq!(blank_bytes(b"\xff\"token\":\"t\xff\"\xfe", &NAMES), b"\xff\"token\":\"***\"\xfe");
}

#[test]
fn error_chain_is_redacted() {
    let chain = ["data", "invalid type: integer `4111111111111111`, expected a string"].map(str::to_owned);
    let failed = FailedAttempt { kind: FailureKind::Permanent, chain: chain.to_vec(), retry_after: None };
    let discreet = failed.redacted(br#"{"data":{"token":4111111111111111}}"#, &NAMES);
    assert_eq!(discreet.chain, ["data", "invalid type: integer `***`, expected a string"]);
    assert_eq!(failed.redacted(br#"{"token":"a"}"#, &NAMES), failed, "it is in half of all texts");
}

#[test]
fn dead_letter_is_redacted_with_its_original() {
    let payload_base64 = BASE64.encode(r#"{"data":{"token":"tok_1"}}"#);
    let shown = BASE64.encode(r#"{"data":{"token":"***"}}"#);
    let original = OriginalMessage { message_id: Uuid::nil(), payload_base64: payload_base64.clone() };
    let dead: DeadLettered = serde_json::from_value(json!({
        "id": Uuid::nil(), "service": "payment", "step": "s", "origin": "message", "error_chain": [], "replays": 0, "message_id": Uuid::nil(), "message_type": null,
        "saga": null, "reason": "", "fingerprint": "", "attempts": 1, "payload_base64": payload_base64,
        "first_failed_at": "2026-01-01T00:00:00Z", "last_failed_at": "2026-01-01T00:00:00Z", "original": original,
    }))
    .expect("a dead letter");
    let discreet = dead.redacted(&NAMES);
    assert_eq!(discreet.payload_base64, shown);
    assert_eq!(discreet.original.expect("it was edited").payload_base64, shown);
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~]{0,8}".prop_map(Value::from),
    ];
    let name = prop_oneof![Just("token".to_owned()), "[a-z\"\\\\{}:,]{0,4}"];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn redaction_of_bytes_equals_redaction_of_value(value in values(), pretty in any::<bool>()) {
        let bytes = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) };
        let shown: Value = serde_json::from_slice(&blank_bytes(&bytes.expect("JSON"), &NAMES)).expect("still JSON");
        let mut blanked = value.clone();
        blank(&mut blanked, &NAMES);
        prop_assert_eq!(&shown, &blanked);
        prop_assert_eq!(restore_secrets(&mut blanked, &value, &NAMES), Ok(()));
        prop_assert_eq!(blanked, value);
    }

    #[test]
    fn redaction_accepts_arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = blank_bytes(&[b"{\"token\":", &bytes[..]].concat(), &NAMES);
        let _ = blank_bytes(&bytes, &NAMES);
    }
}
