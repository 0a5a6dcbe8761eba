//! Shell: lists are complete when they are read page by page.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::operator::{LONG_DEADLINE, STEP};
use crate::system::System;

/// Lists: path, member with the items, and the member that identifies one.
const LISTS: [(&str, &str, &str, &str); 7] = [
    ("order", "/api/orders?customer=ada", "orders", "id"),
    ("order", "/api/orders?status=PENDING", "orders", "id"),
    ("inventory", "/api/products?", "products", "sku"),
    ("admin", "/api/admin/sagas?", "sagas", "id"),
    ("admin", "/api/admin/dlq?status=PENDING", "dead_letters", "id"),
    ("admin", "/api/admin/dlq/redrive?", "redrives", "id"),
    ("admin", "/api/admin/audit?", "entries", "id"),
];

#[tokio::test]
async fn lists_are_paged_without_gaps_or_repetitions() {
    let system = System::start(&[LONG_DEADLINE]);
    for number in 0..7 {
        system
            .list(&format!("pen{}", if number == 0 { String::new() } else { number.to_string() }), 100)
            .await;
    }
    for _ in 0..4 {
        system.order(&[("pen", 1)], "tok_ok").await;
    }
    system.dead_letter_orders(7).await;
    for number in 0..4 {
        // A selection of nothing, and remembered.
        let body = json!({"filter": {"step": STEP, "text": format!("nothing has this {number}")}, "reason": "a test"});
        let asked =
            system.post("admin", "/api/admin/dlq/redrive").json(&body).send().await.expect("an answer");
        assert!(asked.status().is_success(), "{}", asked.text().await.expect("text"));
    }
    for (program, path, member, id) in LISTS {
        let ids = |page: &Value| -> Vec<String> {
            let entries = page[member].as_array().unwrap_or_else(|| panic!("{path}: {page:#}"));
            entries.iter().map(|entry| entry[id].as_str().expect("an id").to_owned()).collect()
        };
        let whole = system.get(program, &format!("{path}&limit=100")).await;
        assert_eq!(whole.get("next").and_then(Value::as_str), None, "{path}: all of it");
        let whole = ids(&whole);
        assert!(whole.len() > 3, "{path}: {whole:?}");
        let (mut followed, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = system.get(program, &format!("{path}&limit=3{cursor}")).await;
            let found = ids(&page);
            assert!(!found.is_empty() && found.len() <= 3, "{path}: {page:#}");
            followed.extend(found);
            match page.get("next").and_then(Value::as_str) {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(followed, whole, "{path}");
        assert_eq!(whole.iter().collect::<BTreeSet<_>>().len(), whole.len(), "{path}: each once");
    }
    // Payments are a plain list: the next page begins behind the order of the last one.
    let whole = system.get("payment", "/api/payments?limit=100").await;
    let whole = whole.as_array().expect("a list").clone();
    assert!(whole.len() > 3, "{whole:#?}");
    let mut followed: Vec<Value> = Vec::new();
    while followed.len() < whole.len() {
        let last = followed.last().and_then(|payment| payment["order"].as_str());
        let cursor = last.map(|order| format!("&cursor={order}")).unwrap_or_default();
        let page = system.get("payment", &format!("/api/payments?limit=3{cursor}")).await;
        followed.extend(page.as_array().filter(|page| !page.is_empty()).expect("more payments").clone());
    }
    assert_eq!(followed, whole);
}
