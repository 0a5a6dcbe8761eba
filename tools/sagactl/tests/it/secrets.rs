//! Shell: card tokens are in no response, log or output of sagactl.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::command_output::is_read;
use crate::operator::{LONG_DEADLINE, STEP};
use crate::system::{System, order_for, wait_until};

/// Unique token.
const UNIQUE_TOKEN: &str = "tok_unique_c8a1f0";
/// Card number in place of a token, which a parser would quote.
const CARD: u64 = 4_111_111_111_111_111;

const SERVICES: [&str; 5] = ["order", "inventory", "payment", "bank", "admin"];
/// Routes that are in no description.
const INTERNAL: [&str; 14] = [
    "/internal/dead-letters",
    "/internal/outbox",
    "/internal/stats",
    "/internal/breakers",
    "/internal/faults",
    "/internal/verify",
    "/internal/position",
    "/internal/changes?kind=order&after=0",
    "/internal/ledger",
    "/internal/ledger/catalogue",
    "/internal/ledger/stock",
    "/internal/ledger/reservations",
    "/metrics",
    "/readyz",
];

#[tokio::test]
async fn card_tokens_leave_no_service() {
    let system = System::start(&[LONG_DEADLINE]);
    system.list("pen", 10).await;
    let resolved = system.order(&[("pen", 1)], UNIQUE_TOKEN).await;
    let orders = park(&system).await;
    send_a_card_number(&system).await;
    // Admin consumes it as well.
    wait_until("all of it is dead-lettered", async || {
        system.get("admin", "/api/admin/dlq/count").await["by_status"]["PENDING"] == 4
    })
    .await;
    let listed = system.get("admin", "/api/admin/dlq").await;
    let dead_letters: Vec<_> =
        listed["dead_letters"].as_array().expect("a list").iter().map(|entry| text(&entry["id"])).collect();
    // An edited one remembers what it was: it is dead-lettered again, by another fault.
    let edited = edit_and_park_again(&system, &dead_letters).await;

    let mut ids = dead_letters;
    ids.extend(orders);
    ids.push(text(&resolved["id"]));
    let answers = all_output(&system, &ids).await;
    assert!(answers.len() > 60, "the routes were here once: {}", answers.len());
    assert!(answers.iter().any(|(_, answer)| answer.contains("***")), "blanks are shown");
    let card = CARD.to_string();
    for (path, answer) in &answers {
        assert_no_secret(path, answer, &card);
    }
    for arguments in
        [&["dlq", "show", &edited, "--json"][..], &["dlq", "show", &edited], &["dlq", "list", "--json"]]
    {
        assert_no_secret(&format!("{arguments:?}"), &system.sagactl(arguments), &card);
    }
    for log in std::fs::read_dir(system.path().join("log")).expect("logs") {
        let path = log.expect("a log").path();
        let printed = String::from_utf8_lossy(&std::fs::read(&path).expect("a log")).into_owned();
        assert_no_secret(&path.display().to_string(), &printed, &card);
    }
}

#[track_caller]
fn assert_no_secret(from: &str, printed: &str, card: &str) {
    // As text, and in each of the three ways in which base64 may hold it.
    let mut forms = vec![UNIQUE_TOKEN.to_owned(), card.to_owned()];
    for shift in 0..3 {
        use base64::Engine as _;
        let bytes = [&b"   "[..shift], UNIQUE_TOKEN.as_bytes()].concat();
        let whole = base64::engine::general_purpose::STANDARD.encode(bytes);
        forms.push(whole[4..whole.len() - 4].to_owned());
    }
    for form in forms {
        let at = printed.find(&form).map(|at| &printed[at.saturating_sub(200)..(at + 40).min(printed.len())]);
        assert!(at.is_none(), "{from} shows {form}: {at:?}");
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// Places two orders whose messages are dead-lettered: one by inventory, one by payment.
async fn park(system: &System) -> Vec<String> {
    let mut orders = Vec::new();
    for (service, step) in [("inventory", "inventory-stock-reservation"), ("payment", STEP)] {
        system.sagactl(&["faults", "inject", service, "fail_permanently", "--step", step, "--next", "1"]);
        let request = system.post("order", "/api/orders").json(&order_for(&[("pen", 1)], UNIQUE_TOKEN));
        let placed: Value = request.send().await.expect("an answer").json().await.expect("an order");
        orders.push(text(&placed["id"]));
        let dead_lettered = orders.len();
        wait_until("it is dead-lettered", async || {
            system.get("admin", "/api/admin/dlq/count").await["total"] == dead_lettered
        })
        .await;
    }
    orders
}

/// Publishes a message with a card number in place of the token.
async fn send_a_card_number(system: &System) {
    let saga = "01890000-0000-7000-8000-0000000000aa";
    let message = json!({
        "id": "01890000-0000-7000-8000-0000000000ab", "type": "StockReserved", "version": 1,
        "occurred_at": "2026-01-01T00:00:00Z", "producer": "inventory",
        "correlation_id": saga, "causation_id": saga,
        "data": {
            "order": saga, "lines": [], "deadline": "2026-01-01T00:00:00Z",
            "payment": {"customer": "ada", "total": {"amount_minor": 1, "currency": "EUR"}, "token": CARD},
        },
    });
    let (broker, _) = system.broker_as("inventory").await;
    broker.publish("inventory.stock_reserved", message.to_string().into()).await.expect("published");
    broker.flush().await.expect("published");
}

/// Edits the dead letter of payment without its token, and lets it fail again.
async fn edit_and_park_again(system: &System, dead_letters: &[String]) -> String {
    system.sagactl(&["faults", "inject", "payment", "fail_permanently", "--step", STEP, "--next", "1"]);
    for id in dead_letters {
        let shown = system.get("admin", &format!("/api/admin/dlq/{id}")).await;
        if shown["service"] != "payment"
            || shown["reason"].as_str().is_some_and(|printed| printed.contains("***"))
        {
            continue;
        }
        let data = &shown["payload"]["data"];
        assert_eq!(data["payment"]["token"], "***");
        let edit = json!({"data": data, "reason": "as it was"});
        let answer = system.post("admin", &format!("/api/admin/dlq/{id}/edit")).json(&edit).send().await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), 202, "{:?}", answer.text().await);
        let again = format!("/api/admin/dlq/{id}");
        wait_until("it is dead-lettered again", async || system.get("admin", &again).await["replays"] == 1)
            .await;
        let dead_lettered = system.get("admin", &again).await;
        assert!(dead_lettered["original"]["payload_base64"].is_string(), "{dead_lettered:#}");
        let nothing = json!({"data": {"note": {"token": "***"}}, "reason": "a blank of nothing"});
        let rejected =
            system.post("admin", &format!("{again}/edit")).json(&nothing).send().await.expect("an answer");
        let problem: Value = rejected.json().await.expect("a problem");
        assert_eq!(problem["errors"][0]["field"], "data.note.token", "{problem:#}");
        return id.clone();
    }
    panic!("none of {dead_letters:?} can be edited");
}

/// Answers of every service to every `GET`, with each of these ids.
async fn all_output(system: &System, ids: &[String]) -> Vec<(String, String)> {
    let mut answers = Vec::new();
    for service in SERVICES {
        let described = system.get(service, "/openapi.json").await;
        let paths = described["paths"].as_object().expect("paths");
        let described = paths.iter().filter(|(_, methods)| is_read(methods)).map(|(path, _)| path);
        let mut paths: BTreeSet<String> = INTERNAL.iter().map(|&path| path.to_owned()).collect();
        for path in described {
            let filled = ids.iter().map(|id| match path.split_once('{') {
                Some((before, after)) => {
                    let after = after.split_once('}').map_or("", |(_, after)| after);
                    let segment = if before.ends_with("products/") { "pen" } else { id.as_str() };
                    format!("{before}{segment}{after}")
                }
                None => path.clone(),
            });
            paths.extend(filled);
        }
        for path in paths {
            let answer = system.http.get(system.url(service, &path)).send().await.expect("an answer");
            answers.push((format!("{service} {path}"), answer.text().await.expect("a text")));
        }
    }
    answers
}
