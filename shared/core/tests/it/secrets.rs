//! Redaction of secrets, and their restoration in edits.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use proptest::prelude::*;
use saga_core::dead_letter::{DeadLettered, OriginalMessage};
use saga_core::retry::{FailedAttempt, FailureKind};
use saga_core::secrets::{BLANK, Secrets};
use serde_json::{Value, json};
use uuid::Uuid;

const SECRETS: Secrets = Secrets { members: &["token"], prefixes: &["tok_"] };

#[test]
fn redacted_secret_is_restored_in_place() {
    let original =
        json!({"payment": {"token": "tok_1", "note": "a"}, "cards": [{"token": 7}, {"token": null}]});
    let mut shown = original.clone();
    SECRETS.blank(&mut shown);
    let blanked =
        json!({"payment": {"token": BLANK, "note": "a"}, "cards": [{"token": BLANK}, {"token": BLANK}]});
    assert_eq!(shown, blanked);
    shown["payment"]["note"] = "b".into();
    assert_eq!(SECRETS.restore(&mut shown, &original), Ok(()));
    assert_eq!(
        (&shown["payment"], &shown["cards"]),
        (&json!({"token": "tok_1", "note": "b"}), &original["cards"])
    );
}

#[test]
fn new_secret_is_kept_and_placeholder_without_secret_is_rejected() {
    let original = json!({"token": "old", "note": "***"});
    let mut anew = json!({"token": "new", "note": "***"});
    assert_eq!(SECRETS.restore(&mut anew, &original), Ok(()));
    assert_eq!(anew, json!({"token": "new", "note": "***"}));
    for (edited, path) in [
        (json!({"payment": {"token": BLANK}}), "payment.token"),
        (json!({"cards": [{}, {"token": BLANK}]}), "cards[1].token"),
    ] {
        assert_eq!(SECRETS.restore(&mut edited.clone(), &original), Err(path.to_owned()));
    }
}

#[test]
fn text_may_hold_a_secret_if_it_has_a_name_or_prefix_of_one() {
    assert!(SECRETS.may_occur_in("a token") && SECRETS.may_occur_in("by tok_1"));
    assert!(!SECRETS.may_occur_in("by card"));
}

#[test]
fn redaction_changes_only_secrets() {
    for (bytes, shown) in [
        (r#"{"b": 1e400,  "token" : "tok_1" , "a":2}"#, r#"{"b": 1e400,  "token" : "***" , "a":2}"#),
        (r#"{"token":4111111111111111}"#, r#"{"token":"***"}"#),
        (r#"{"token":["tok_1",{"x":"]"}],"a":1}"#, r#"{"token":"***","a":1}"#),
        (r#"{"t\u006fken":"a\"tok_1"}"#, r#"{"t\u006fken":"***"}"#),
        (r#"{"a":"token","b":["token"]}"#, r#"{"a":"token","b":["token"]}"#),
        // JSON in a string, also twice, and in base64.
        (r#"{"a":"\"token\":\"hidden\""}"#, r#"{"a":"\"token\":\"***\""}"#),
        (r#"{"data":"{\"token\": \"4711\",\"b\":1}"}"#, r#"{"data":"{\"token\": \"***\",\"b\":1}"}"#),
        (r#"{"data":"\"{\\\"token\\\":4711}\""}"#, r#"{"data":"\"{\\\"token\\\":\\\"***\\\"}\""}"#),
        (r#"{"payload":"eyJ0b2tlbiI6IjQ3MTEifQ=="}"#, r#"{"payload":"eyJ0b2tlbiI6IioqKiJ9"}"#),
        // Where no member of that name is expected, and in another version.
        (r#"{"payment":"tok_1","cards":["tok\u005f2"]}"#, r#"{"payment":"***","cards":["***"]}"#),
        (
            r#"{"note":"paid by tok_1-a, not stok_2 or tok_"}"#,
            r#"{"note":"paid by ***, not stok_2 or tok_"}"#,
        ),
        // Invalid JSON: truncated, or with trailing bytes.
        (r#"{"token":"tok_1"#, r#"{"token":"***""#),
        (r#"}}{"token":"tok_1"} {"token": true}"#, r#"}}{"token":"***"} {"token": "***"}"#),
        (r#"{"token""#, r#"{"token""#),
        (r#"{"token":"#, r#"{"token":"***""#),
        (r#"{"data":"{\"token\":\"47\\\"11\",\"b"#, r#"{"data":"{\"token\":\"***\",\"b"#),
        (r#"{"data":"{\"token\":\"4711"#, r#"{"data":"{\"token\":\"***"#),
        (r#"n":"4711","token":"4712","a":1}"#, r#"n":"4711","token":"***","a":1}"#),
        (r#"ada","payment":{"token":"47 11"}}"#, r#"ada","payment":{"token":"***"}}"#),
        (r#"","token":{"number":4711},"a"#, r#"","token":***,"a"#),
        (r#"{"to\ntok_1"#, r#"{"to\n***"#),
        ("token=4711&a=1", "token=***&a=1"),
        ("{token: '4711', a: 1}", "{token: '***', a: 1}"),
        (r#"token="47\"11" a=1"#, r#"token="***" a=1"#),
        // Empty values, and an escape in a text without secrets.
        ("token=&a=1", "token=&a=1"),
        (r#"token="" a=1"#, r#"token="" a=1"#),
        (r#"{"a":"\u005b1]"}"#, r#"{"a":"\u005b1]"}"#),
        // Base64 of 12 bytes is long enough, and of 9 too short.
        (r#"{"a":"dG9rXzEyMzQ1Njc4"}"#, r#"{"a":"Kioq"}"#),
        (r#"{"a":"dG9rXzEyMzQ1"}"#, r#"{"a":"dG9rXzEyMzQ1"}"#),
        // Facts of a pack, each with its length.
        ("24 -\n{\"token\":\"4711\"}\n9 -\n{\"tok", "24 -\n{\"token\":\"***\"}\n9 -\n{\"tok"),
        ("", ""),
    ] {
        assert_eq!(String::from_utf8_lossy(&SECRETS.blank_bytes(bytes.as_bytes())), shown, "{bytes}");
    }
    assert_eq!(SECRETS.blank_bytes(b"\xff\"token\":\"t\xff\"\xfe"), b"\xff\"token\":\"***\"\xfe");
}

#[test]
fn error_chain_is_redacted() {
    let chain = ["data", "invalid type: integer `4111111111111111`, expected a string"].map(str::to_owned);
    let failed = FailedAttempt { kind: FailureKind::Permanent, chain: chain.to_vec(), retry_after: None };
    let discreet = failed.redacted(br#"{"data":{"token":4111111111111111}}"#, SECRETS);
    assert_eq!(discreet.chain, ["data", "invalid type: integer `***`, expected a string"]);
    assert_eq!(failed.redacted(br#"{"token":"a"}"#, SECRETS), failed, "it is in half of all texts");

    for (text, shown) in [
        (r#"invalid type: string "tok_1", expected a map"#, r#"invalid type: string "***", expected a map"#),
        (r#"string "{\"token\":\"4711\"}", expected"#, r#"string "{\"token\":\"***\"}", expected"#),
        ("payment.token: missing; `token` is needed", "payment.token: missing; `token` is needed"),
        (r#"unknown type "tok_1""#, r#"unknown type "***""#),
    ] {
        let failed = FailedAttempt::new(FailureKind::Permanent, text);
        assert_eq!(failed.redacted(b"", SECRETS).chain, [shown]);
    }
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
    let discreet = dead.redacted(SECRETS);
    assert_eq!(discreet.payload_base64, shown);
    assert_eq!(discreet.original.expect("it was edited").payload_base64, shown);
}

/// Operators correct what a sender has encoded twice, without the sight of the token.
#[test]
fn secret_of_doubly_encoded_member_is_restored_as_text_and_as_object() {
    let original = json!({"data": r#"{"token":"4711","pieces":"1"}"#, "note": "tok_1 b"});
    let mut shown = original.clone();
    SECRETS.blank(&mut shown);
    assert_eq!(shown, json!({"data": r#"{"token":"***","pieces":"1"}"#, "note": "*** b"}));
    assert_eq!(SECRETS.restore(&mut shown, &original), Ok(()));
    assert_eq!(shown, original);
    let mut corrected = json!({"data": {"token": BLANK, "pieces": 1}, "note": "tok_1 b"});
    assert_eq!(SECRETS.restore(&mut corrected, &original), Ok(()));
    assert_eq!(corrected["data"], json!({"token": "4711", "pieces": 1}));
    let mut as_text = json!({"data": r#"{"pieces":1,"token":"***"}"#});
    assert_eq!(SECRETS.restore(&mut as_text, &original), Ok(()));
    assert_eq!(as_text["data"], r#"{"pieces":1,"token":"4711"}"#);
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
        let shown: Value = serde_json::from_slice(&SECRETS.blank_bytes(&bytes.expect("JSON"))).expect("still JSON");
        let mut blanked = value.clone();
        SECRETS.blank(&mut blanked);
        prop_assert_eq!(&shown, &blanked);
        prop_assert_eq!(SECRETS.restore(&mut blanked, &value), Ok(()));
        prop_assert_eq!(blanked, value);
    }

    #[test]
    fn redaction_accepts_arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = SECRETS.blank_bytes(&[b"{\"token\":", &bytes[..]].concat());
        let _ = SECRETS.blank_bytes(&bytes);
    }
}
