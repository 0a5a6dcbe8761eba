//! Pure: dead letters for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::secrets;
use super::worth::{Effect, Of, Worth, waited_for};
use crate::admin::Page;
use cli::text::{fields, indented, one_line, or_none};
use cli::{Column, View, left, removable, right, time, truncatable};

/// What is shown of a message that is no JSON.
const LONGEST_NOISE: usize = 2_000;

/// As a list has it.
#[derive(Debug, Deserialize)]
pub struct DeadLetter {
    id: String,
    status: String,
    service: String,
    step: String,
    origin: String,
    message_id: String,
    message_type: Option<String>,
    saga: Option<String>,
    reason: String,
    fingerprint: String,
    attempts: u64,
    replays: u64,
    first_failed_at: Timestamp,
    last_failed_at: Timestamp,
    redrive: Option<String>,
    #[serde(default)]
    edited: bool,
    version: i64,
    replay_value: Option<Worth>,
    effect: Option<Effect>,
}

const COLUMNS: [Column<DeadLetter>; 10] = [
    left("dead letter", |dead_letter| dead_letter.id.clone()),
    left("status", |dead_letter| dead_letter.status.clone()),
    removable(3, left("service", |dead_letter| dead_letter.service.clone())),
    left("step", |dead_letter| dead_letter.step.clone()),
    removable(2, left("type", |dead_letter| or_none(dead_letter.message_type.as_ref()))),
    removable(1, right("attempts", |dead_letter| dead_letter.attempts.to_string())),
    removable(4, right("replays", |dead_letter| dead_letter.replays.to_string())),
    removable(5, time("last failed", |dead_letter| Some(dead_letter.last_failed_at))),
    removable(6, left("waited for", |dead_letter| waited_for(dead_letter.replay_value.as_ref()))),
    truncatable(left("reason", |dead_letter| dead_letter.reason.clone())),
];

/// Those that are over are shown to who asks for them.
pub const NONE: &str = "no dead letters in these statuses (--status ALL shows all)";

/// A page of them.
pub fn list(page: &Page<DeadLetter>, view: &View) -> String {
    page.shown(NONE, &COLUMNS, view)
}

/// How many dead letters there are.
#[derive(Debug, Deserialize)]
pub struct Counts {
    total: u64,
    by_status: BTreeMap<String, u64>,
    #[serde(default)]
    by_service: BTreeMap<String, u64>,
}

pub fn counts(counts: &Counts, _: &View) -> String {
    let mut text = format!("{} unresolved\n", counts.total);
    for (name, counts) in [("by status", &counts.by_status), ("unresolved by service", &counts.by_service)] {
        let counts: Vec<_> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        if !counts.is_empty() {
            let _ = writeln!(text, "  {name:<22} {}", counts.join(" · "));
        }
    }
    text
}

/// A dead letter, and all that hangs on it.
#[derive(Debug, Deserialize)]
pub struct Detail {
    #[serde(flatten)]
    dead_letter: DeadLetter,
    #[serde(default)]
    error_chain: Vec<String>,
    delivery: Option<DeliveryInfo>,
    #[serde(default)]
    payload: Value,
    payload_base64: String,
    original: Option<Original>,
    #[serde(default)]
    notes: Vec<Note>,
    #[serde(default)]
    history: Vec<Moment>,
}

#[derive(Debug, Deserialize)]
struct DeliveryInfo {
    stream: String,
    sequence: u64,
    #[serde(default)]
    headers: Vec<(String, String)>,
}

#[derive(Debug, Deserialize)]
struct Original {
    message_id: String,
}

#[derive(Debug, Deserialize)]
struct Note {
    at: Timestamp,
    operator: String,
    text: String,
}

#[derive(Debug, Deserialize)]
struct Moment {
    at: Timestamp,
    what: String,
    operator: Option<String>,
    reason: Option<String>,
    detail: Option<Value>,
}

/// All there is to know of it, but for secrets.
pub fn detail(detail: &Detail, view: &View) -> String {
    let mut text = head(detail, view);
    let mut section = |name: &str, body: &str| {
        if !body.is_empty() {
            let _ = write!(text, "\n{name}\n{}", indented(body.trim_end(), 2));
        }
    };
    section("error", &error(&detail.dead_letter.reason, &detail.error_chain));
    section("delivery", &detail.delivery.as_ref().map(delivery).unwrap_or_default());
    section("message", &message(detail));
    let note = |note: &Note| format!("{} {}: {}\n", view.full_time(note.at), note.operator, note.text);
    section("notes", &detail.notes.iter().map(note).collect::<String>());
    section("history", &detail.history.iter().map(|past| happened(past, view)).collect::<String>());
    text
}

fn head(detail: &Detail, view: &View) -> String {
    let dead_letter = &detail.dead_letter;
    let is_call = dead_letter.origin == "task";
    let unnamed = if is_call { "a call" } else { "unknown type" };
    let message_type = dead_letter.message_type.as_deref().unwrap_or(unnamed);
    let of = Of::one(&dead_letter.origin, dead_letter.saga.as_ref());
    let edited = match &detail.original {
        Some(original) => format!(", edited (was {})", original.message_id),
        None => if dead_letter.edited { ", edited" } else { "" }.to_owned(),
    };
    let lines = fields(&[
        ("status", Some(dead_letter.status.clone())),
        ("service", Some(dead_letter.service.clone())),
        ("step", Some(dead_letter.step.clone())),
        ("origin", Some(dead_letter.origin.clone())),
        ("message", Some(format!("{message_type} {}{edited}", dead_letter.message_id))),
        ("saga", dead_letter.saga.clone()),
        ("fingerprint", Some(dead_letter.fingerprint.clone())),
        ("attempts", Some(dead_letter.attempts.to_string())),
        ("replays", Some(dead_letter.replays.to_string())),
        ("first failed", Some(view.full_time(dead_letter.first_failed_at))),
        ("last failed", Some(view.full_time(dead_letter.last_failed_at))),
        ("worth", dead_letter.replay_value.as_ref().map(|worth| worth.told(of))),
        ("effect", dead_letter.effect.as_ref().map(Effect::told)),
        ("redrive", dead_letter.redrive.clone()),
        ("version", Some(dead_letter.version.to_string())),
    ]);
    format!("dead letter {}\n{lines}", dead_letter.id)
}

/// Each cause one further to the right. The reason is the same in one line.
fn error(reason: &str, chain: &[String]) -> String {
    if chain.is_empty() {
        return reason.to_owned();
    }
    chain.iter().enumerate().map(|(depth, cause)| indented(cause, depth * 2)).collect()
}

fn delivery(delivery: &DeliveryInfo) -> String {
    let mut text = format!("{} {}\n", delivery.stream, delivery.sequence);
    for (name, value) in &delivery.headers {
        let _ = writeln!(text, "{name}: {value}");
    }
    text
}

fn message(detail: &Detail) -> String {
    if !detail.payload.is_null() {
        let mut payload = detail.payload.clone();
        secrets::hide(&mut payload);
        return format!("{payload:#}");
    }
    if detail.payload_base64.is_empty() {
        return "nothing to show: it is empty, or was too large to be announced".to_owned();
    }
    let bytes = STANDARD.decode(&detail.payload_base64).unwrap_or_default();
    let noise: String = String::from_utf8_lossy(&bytes).chars().take(LONGEST_NOISE).collect();
    format!("{} bytes that are no JSON:\n{noise}", bytes.len())
}

fn happened(past: &Moment, view: &View) -> String {
    let by = past.operator.as_ref().map(|operator| format!(" by {operator}")).unwrap_or_default();
    let because = past.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let detail = past.detail.as_ref().filter(|detail| !detail.is_null());
    let detail = detail.map(|detail| format!(" ({})", one_line(detail))).unwrap_or_default();
    format!("{} {}{by}{because}{detail}\n", view.full_time(past.at), past.what)
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn dead_letter() -> Value {
        json!({
            "id": "01890000-0000-7000-8000-000000000001", "status": "PENDING", "service": "payment",
            "step": "payment-processing", "origin": "message", "message_type": "StockReserved",
            "message_id": "01890000-0000-7000-8000-0000000000aa", "saga": "01890000-0000-7000-8000-0000000000bb",
            "reason": "injected: fail_permanently: connection reset", "fingerprint": "9f86d081884c7d65", "attempts": 1,
            "replays": 0, "first_failed_at": "2026-11-20T14:18:36.123456Z",
            "last_failed_at": "2026-11-20T14:18:37Z", "edited": false, "version": 3,
        })
    }

    #[test]
    fn a_page_of_dead_letters_is_a_table() {
        let mut noise = dead_letter();
        noise["message_type"] = Value::Null;
        noise["reason"] = format!("not an envelope: {}", "x".repeat(100)).into();
        let page = from_value(json!({"items": [dead_letter(), noise], "next": "abc"}));
        insta::assert_snapshot!("dlq_list", list(&page.expect("a page"), &View::FILE));
        assert!(list(&Page::of(vec![]), &View::FILE).starts_with("no dead letters"));
    }

    #[test]
    fn a_dead_letter_shows_everything_but_secrets() {
        let mut whole = dead_letter();
        let more = json!({
            "edited": true, "redrive": "01890000-0000-7000-8000-0000000000cc",
            "error_chain": ["injected", "fail_permanently", "connection reset"],
            "delivery": {"stream": "INVENTORY", "sequence": 17, "headers": [["Nats-Msg-Id", "x"]]},
            "payload": {"id": "m", "data": {"customer": "ada", "payment": {"token": "tok_ok"}}},
            "payload_base64": "e30=",
            "original": {"message_id": "01890000-0000-7000-8000-0000000000dd", "payload_base64": "e30="},
            "notes": [{"at": "2026-11-20T14:20:00Z", "operator": "ada", "text": "asked the bank"}],
            "history": [
                {"at": "2026-11-20T14:18:36Z", "what": "failed", "detail": "attempt 1"},
                {"at": "2026-11-20T14:21:00Z", "what": "replayed", "operator": "ada", "reason": "bank is back"},
            ],
        });
        for (name, value) in more.as_object().expect("members") {
            whole[name] = value.clone();
        }
        let shown = detail(&from_value(whole).expect("a dead letter"), &View::FILE);
        assert!(!shown.contains("tok_ok"), "{shown}");
        insta::assert_snapshot!("dlq_show", shown);
    }

    #[test]
    fn a_call_is_no_message_of_an_unknown_type() {
        let mut call = dead_letter();
        call["origin"] = "task".into();
        call["message_type"] = Value::Null;
        call["replay_value"] = json!({"awaited": true, "saga_status": "COMPENSATION_STUCK"});
        call["payload_base64"] = "".into();
        let shown = detail(&from_value(call).expect("a dead letter"), &View::FILE);
        assert!(shown.contains("message       a call 01890000-"), "{shown}");
        assert!(shown.contains("its saga, which is COMPENSATION_STUCK, waits for it"), "{shown}");
    }

    /// No saga waits for what belongs to none.
    #[test]
    fn what_is_of_no_saga_says_whether_anybody_misses_it() {
        let told = |origin: &str, awaited: bool| {
            let mut one = dead_letter();
            (one["origin"], one["saga"], one["payload_base64"]) = (origin.into(), Value::Null, "".into());
            one["replay_value"] = json!({ "awaited": awaited });
            detail(&from_value(one).expect("a dead letter"), &View::FILE)
        };
        let foreign = told("foreign", false);
        assert!(foreign.contains("nobody waits for it") && foreign.contains("dlq discard"), "{foreign}");
        assert!(!foreign.contains("its saga"), "{foreign}");
        let of_the_catalogue = told("message", true);
        assert!(of_the_catalogue.contains("it belongs to no saga, and is missed"), "{of_the_catalogue}");
    }

    #[test]
    fn a_message_that_is_no_json_is_shown_as_text() {
        let mut whole = dead_letter();
        whole["payload"] = Value::Null;
        whole["payload_base64"] = STANDARD.encode(b"\xffgarbage\x1b[2J").into();
        let shown = detail(&from_value(whole).expect("a dead letter"), &View::FILE);
        assert!(shown.contains("12 bytes that are no JSON:\n  \u{fffd}garbage"), "{shown}");
    }

    #[test]
    fn counts_are_for_people() {
        let numbers = json!({
            "total": 3, "by_service": {"payment": 3},
            "by_status": {"PENDING": 2, "REPLAYING": 1, "RESOLVED": 0, "DISCARDED": 0},
        });
        insta::assert_snapshot!("dlq_count", counts(&from_value(numbers).expect("counts"), &View::FILE));
    }
}
