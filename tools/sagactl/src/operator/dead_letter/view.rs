//! Pure: dead letters for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use admin_api::dead_letters::{DeadLetterCounts, DeadLetterDetail, DeadLetterItem, HistoryEntry, NoteView};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cli::table::{Column, left, removable, right, time, truncatable};
use cli::text::{fields, indented, one_line, or_none};
use cli::view::View;
use contract::order::SECRETS;
use saga_core::dead_letter::{DeadLetterOrigin, DeliveryInfo};

use super::replay_value::{effect_text, value_text};
use crate::admin::Page;

/// Maximum length of a message that is no JSON.
const MAX_NON_JSON_CHARS: usize = 2_000;

const COLUMNS: [Column<DeadLetterItem>; 10] = [
    left("dead letter", |dead_letter| dead_letter.id.to_string()),
    left("status", |dead_letter| dead_letter.status.as_str().to_owned()),
    removable(3, left("service", |dead_letter| dead_letter.service.clone())),
    left("step", |dead_letter| dead_letter.step.clone()),
    removable(2, left("type", |dead_letter| or_none(dead_letter.message_type.as_ref()))),
    removable(1, right("attempts", |dead_letter| dead_letter.attempts.to_string())),
    removable(4, right("replays", |dead_letter| dead_letter.replays.to_string())),
    removable(5, time("last failed", |dead_letter| Some(dead_letter.last_failed_at))),
    removable(
        6,
        left("awaited", |dead_letter| {
            or_none(dead_letter.replay_value.map(|value| if value.awaited { "yes" } else { "no" }))
        }),
    ),
    truncatable(left("reason", |dead_letter| dead_letter.reason.clone())),
];

/// Text of an empty list.
pub const EMPTY: &str = "no dead letters in these statuses (--status ALL shows all)";

pub fn list(page: &Page<DeadLetterItem>, view: &View) -> String {
    page.text(EMPTY, &COLUMNS, view)
}

pub fn counts(counts: &DeadLetterCounts, _: &View) -> String {
    let mut text = format!("{} unresolved\n", counts.total);
    let mut line = |name: &str, counts: &BTreeMap<String, u64>| {
        let counts: Vec<_> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        if !counts.is_empty() {
            let _ = writeln!(text, "  {name:<22} {}", counts.join(" · "));
        }
    };
    line("by status", &counts.by_status);
    line("unresolved by service", &counts.by_service);
    text
}

/// Formats everything known about a dead letter, except secrets.
pub fn detail(detail: &DeadLetterDetail, view: &View) -> String {
    let mut text = head(detail, view);
    let mut section = |name: &str, body: &str| {
        if !body.is_empty() {
            let _ = write!(text, "\n{name}\n{}", indented(body.trim_end(), 2));
        }
    };
    section("error", &error(&detail.item.reason, &detail.error_chain));
    section("delivery", &detail.delivery.as_ref().map(delivery).unwrap_or_default());
    section("message", &message(detail));
    let note = |note: &NoteView| format!("{} {}: {}\n", view.full_time(note.at), note.operator, note.text);
    section("notes", &detail.notes.iter().map(note).collect::<String>());
    section("history", &detail.history.iter().map(|entry| history(entry, view)).collect::<String>());
    text
}

fn head(detail: &DeadLetterDetail, view: &View) -> String {
    let dead_letter = &detail.item;
    let unnamed = match dead_letter.origin {
        DeadLetterOrigin::Task => "task",
        DeadLetterOrigin::Message | DeadLetterOrigin::Foreign => "unknown type",
    };
    let message_type = dead_letter.message_type.as_deref().unwrap_or(unnamed);
    let edited = match &detail.original {
        Some(original) => format!(", edited (was {})", original.message_id),
        None => if dead_letter.edited { ", edited" } else { "" }.to_owned(),
    };
    let lines = fields(&[
        ("status", Some(dead_letter.status.as_str().to_owned())),
        ("service", Some(dead_letter.service.clone())),
        ("step", Some(dead_letter.step.clone())),
        ("origin", Some(dead_letter.origin.as_str().to_owned())),
        ("message", Some(format!("{message_type} {}{edited}", dead_letter.message_id))),
        ("saga", dead_letter.saga.map(|saga| saga.to_string())),
        ("fingerprint", Some(dead_letter.fingerprint.clone())),
        ("attempts", Some(dead_letter.attempts.to_string())),
        ("replays", Some(dead_letter.replays.to_string())),
        ("first failed", Some(view.full_time(dead_letter.first_failed_at))),
        ("last failed", Some(view.full_time(dead_letter.last_failed_at))),
        ("replay value", value_text(dead_letter)),
        ("effect", dead_letter.effect.as_ref().map(effect_text)),
        ("redrive", dead_letter.redrive.map(|redrive| redrive.to_string())),
        ("version", Some(dead_letter.version.to_string())),
    ]);
    format!("dead letter {}\n{lines}", dead_letter.id)
}

/// Error chain, each cause indented further. The reason is the same chain in one line.
fn error(reason: &str, chain: &[String]) -> String {
    if chain.is_empty() {
        return reason.to_owned();
    }
    chain.iter().enumerate().map(|(depth, cause)| indented(cause, depth * 2)).collect()
}

fn delivery(delivery: &DeliveryInfo) -> String {
    let headers = delivery.headers.iter().map(|(name, value)| format!("{name}: {value}\n"));
    format!("{} {}\n{}", delivery.stream, delivery.sequence, headers.collect::<String>())
}

fn message(detail: &DeadLetterDetail) -> String {
    if !detail.payload.is_null() {
        let mut payload = detail.payload.clone();
        SECRETS.blank(&mut payload);
        return format!("{payload:#}");
    }
    if detail.payload_base64.is_empty() {
        return "not available: empty, or too large to be published".to_owned();
    }
    let bytes = STANDARD.decode(&detail.payload_base64).unwrap_or_default();
    let text: String = String::from_utf8_lossy(&bytes).chars().take(MAX_NON_JSON_CHARS).collect();
    format!("{} bytes that are no JSON:\n{text}", bytes.len())
}

fn history(entry: &HistoryEntry, view: &View) -> String {
    let HistoryEntry { at, what, operator, reason, detail } = entry;
    let operator = operator.as_ref().map(|operator| format!(" by {operator}")).unwrap_or_default();
    let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let detail = detail.as_ref().filter(|detail| !detail.is_null());
    let detail = detail.map(|detail| format!(" ({})", one_line(detail))).unwrap_or_default();
    format!("{} {what}{operator}{reason}{detail}\n", view.full_time(*at))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn dead_letter() -> Value {
        json!({
            "id": "01890000-0000-7000-8000-000000000001", "status": "PENDING", "service": "payment",
            "step": "payment-processing", "origin": "message", "message_type": "StockReserved",
            "message_id": "01890000-0000-7000-8000-0000000000aa", "saga": "01890000-0000-7000-8000-0000000000bb",
            "reason": "injected: fail_permanently: connection reset", "fingerprint": "9f86d081884c7d65", "attempts": 1,
            "replays": 0, "first_failed_at": "2026-11-20T14:18:36.123456Z",
            "last_failed_at": "2026-11-20T14:18:37Z", "edited": false, "version": 3, "payload_base64": "",
        })
    }

    fn with(members: Value) -> String {
        let mut dead_letter = dead_letter();
        for (name, value) in members.as_object().expect("members") {
            dead_letter[name] = value.clone();
        }
        detail(&from_value(dead_letter).expect("a dead letter"), &View::FILE)
    }

    #[test]
    fn dead_letters_are_a_table() {
        let mut foreign = dead_letter();
        foreign["message_type"] = Value::Null;
        foreign["reason"] = format!("not an envelope: {}", "x".repeat(100)).into();
        let items: Vec<DeadLetterItem> = from_value(json!([dead_letter(), foreign])).expect("items");
        let page = Page { next: Some("abc".to_owned()), ..Page::from_iter(items) };
        insta::assert_snapshot!("dlq_list", list(&page, &View::FILE));
    }

    #[test]
    fn detail_shows_everything_except_secrets() {
        let shown = with(json!({
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
        }));
        assert!(!shown.contains("tok_ok"), "{shown}");
        insta::assert_snapshot!("dlq_show", shown);
    }

    #[test]
    fn replay_value_depends_on_origin_and_saga() {
        let value = json!({"awaited": true, "saga_status": "COMPENSATING"});
        let task = with(json!({"origin": "task", "message_type": null, "replay_value": value}));
        assert!(task.contains("message       task 01890000-"), "{task}");
        assert!(task.contains("its saga (COMPENSATING) waits for it"), "{task}");
        let of_no_saga = |origin: &str, awaited: bool| {
            with(json!({"origin": origin, "saga": null, "replay_value": {"awaited": awaited}}))
        };
        let foreign = of_no_saga("foreign", false);
        assert!(foreign.contains("no saga waits for") && foreign.contains("dlq discard"), "{foreign}");
        assert!(of_no_saga("message", true).contains("it belongs to no saga"));
    }

    #[test]
    fn message_that_is_no_json_is_shown_as_text() {
        let shown = with(json!({"payload_base64": STANDARD.encode(b"\xffgarbage\x1b[2J")}));
        assert!(shown.contains("12 bytes that are no JSON:\n  \u{fffd}garbage"), "{shown}");
    }

    #[test]
    fn counts_are_by_status_and_service() {
        let numbers = json!({
            "total": 3, "by_service": {"payment": 3},
            "by_status": {"PENDING": 2, "REPLAYING": 1, "RESOLVED": 0, "DISCARDED": 0},
        });
        insta::assert_snapshot!("dlq_count", counts(&from_value(numbers).expect("counts"), &View::FILE));
    }
}
