//! Shell: invalid requests are rejected by field, and nothing is stored.

use serde_json::{Value, json};

use crate::system::{System, order_for};

#[tokio::test]
async fn invalid_orders_are_rejected_by_field_and_not_stored() {
    let system = System::start(&[]);
    system.list("pen", 10).await;
    // The order that probed the listing has to end first.
    system.assert_reconciled().await;
    let before = system.get("order", "/internal/ledger").await;
    let lines =
        |lines: Value| json!({"customer": "ada", "lines": lines, "payment": {"token": "tok_ok"}}).to_string();
    let one = |sku: &str, quantity: Value| lines(json!([{"sku": sku, "quantity": quantity}]));
    let line = json!({"sku": "pen", "quantity": 1});
    let good = order_for(&[("pen", 1)], "tok_ok");
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        body.to_string()
    };
    let cases = [
        ("{".to_owned(), 400, ""),
        ("[]".to_owned(), 422, "."),
        (r#"{"customer":"ada"}"#.to_owned(), 422, "lines"),
        (lines(json!([])), 422, "lines"),
        (lines(vec![line; 101].into()), 422, "lines"),
        (one("pen", json!(0)), 422, "lines[0].quantity"),
        (one("pen", json!(-1)), 422, "lines[0].quantity"),
        (one("pen", json!(10_001)), 422, "lines[0].quantity"),
        (one("pen", json!(99_999_999_999_u64)), 422, "lines[0].quantity"),
        (one("pen", json!("two")), 422, "lines[0].quantity"),
        (one("pen", json!(1.5)), 422, "lines[0].quantity"),
        (one("nothing", json!(1)), 422, "lines[0].sku"),
        (one(&"x".repeat(65), json!(1)), 422, "lines[0].sku"),
        (with("customer", json!("")), 422, "customer"),
        (with("customer", json!("x".repeat(101))), 422, "customer"),
        (with("customer", json!(" \t ")), 422, "customer"),
        (with("customer", json!("ada\nconfirmed")), 422, "customer"),
        (with("customer", json!("ada\0")), 422, "customer"),
        (with("customer", json!("ada\u{202e}")), 422, "customer"),
        (with("payment", json!({"token": "tok_ok", "method": "cash"})), 422, "payment.method"),
        (with("payment", json!({"token": ""})), 422, "payment.token"),
        (with("surprise", json!(1)), 422, "surprise"),
        (with("customer", json!("x".repeat(70_000))), 413, ""),
    ];
    for (body, status, field) in cases {
        let shown = body.chars().take(120).collect::<String>();
        let request =
            system.post("order", "/api/orders").header("content-type", "application/json").body(body);
        assert_problem(request, status, field, &shown).await;
    }
    assert_eq!(system.get("order", "/internal/ledger").await, before);
}

/// Line breaks and direction marks would forge rows of tables; a sku of dots would change a path.
#[tokio::test]
async fn typed_text_stays_on_its_line() {
    let system = System::start(&[]);
    system.list("pen", 10).await;
    let product = json!({
        "sku": "ink", "name": "ink", "quantity": 1, "unit_price": {"amount_minor": 1, "currency": "EUR"},
    });
    for (field, text) in
        [("sku", "."), ("sku", ".."), ("sku", "a\nb"), ("name", " "), ("name", "a\nb"), ("name", "a\0")]
    {
        let mut body = product.clone();
        body[field] = text.into();
        let request = system.post("inventory", "/api/products").json(&body);
        assert_problem(request, 422, field, &format!("{field} {text:?}")).await;
    }
    for reason in [" ", "x\ny", "x\u{2028}y", "\u{1b}[2J"] {
        let body = json!({"ids": ["01890000-0000-7000-8000-000000000001"], "reason": reason});
        let request = system.post("admin", "/api/admin/dlq/replay").json(&body);
        assert_problem(request, 422, "reason", &format!("{reason:?}")).await;
    }
    let order = json!({
        "customer": "  Ada Lovelace ", "lines": [{"sku": "pen", "quantity": 1}], "payment": {"token": "tok_ok"},
    });
    let placed = system.post("order", "/api/orders").json(&order).send().await.expect("an answer");
    let placed: Value = placed.json().await.expect("an order");
    assert_eq!(placed["customer"], "Ada Lovelace");
}

#[tokio::test]
async fn unknown_resources_and_reused_keys_have_distinct_problems() {
    let system = System::start(&[]);
    system.list("pen", 10).await;
    let unknown = "/api/orders/01890000-0000-7000-8000-000000000001";
    let gets = [
        ("order", unknown, 404),
        ("order", "/api/orders/not-an-id", 400),
        ("order", "/api/orders?limit=0", 422),
        ("order", "/api/orders?status=GONE", 400),
        ("order", "/api/orders?cursor=x", 400),
        ("order", "/nowhere", 404),
        ("inventory", "/api/products/nothing", 404),
        ("inventory", "/api/reservations/x", 400),
        ("payment", "/api/payments/01890000-0000-7000-8000-000000000001", 404),
        ("admin", "/api/admin/sagas/01890000-0000-7000-8000-000000000001", 404),
        ("admin", "/api/admin/sagas?limit=9999", 422),
        ("admin", "/api/admin/sagas?status=LOST", 400),
        ("admin", "/api/admin/dlq/01890000-0000-7000-8000-000000000001", 404),
        ("admin", "/api/admin/reconciliation?wait=31", 422),
        ("bank", "/v1/charges/01890000-0000-7000-8000-000000000001", 404),
    ];
    for (program, path, status) in gets {
        assert_problem(system.http.get(system.url(program, path)), status, "", path).await;
    }
    let cancel = system.post("order", &format!("{unknown}/cancel"));
    assert_problem(cancel, 404, "", "cancelling an unknown order").await;
    assert_problem(system.http.delete(system.url("order", "/api/orders")), 405, "", "DELETE").await;

    let keyed = |body: Value| {
        let request = system.post("order", "/api/orders").header("Idempotency-Key", "k");
        request.json(&body)
    };
    let first = keyed(order_for(&[("pen", 1)], "tok_ok")).send().await.expect("an answer");
    assert_eq!(first.status(), 202);
    assert_problem(keyed(order_for(&[("pen", 2)], "tok_ok")), 422, "Idempotency-Key", "another body").await;

    let euro = json!({"amount_minor": 1_000, "currency": "EUR"});
    let bad_products = [
        (json!({"sku": "a b", "name": "x", "quantity": 1, "unit_price": euro}), "sku"),
        (json!({"sku": "a", "name": "", "quantity": 1, "unit_price": euro}), "name"),
        (json!({"sku": "a", "name": "x", "quantity": 1_000_001, "unit_price": euro}), "quantity"),
        (
            json!({"sku": "a", "name": "x", "quantity": 1, "unit_price": {"amount_minor": 0, "currency": "EUR"}}),
            "unit_price",
        ),
        (
            json!({"sku": "a", "name": "x", "quantity": 1, "unit_price": {"amount_minor": 1, "currency": "ZZZ"}}),
            "unit_price.currency",
        ),
    ];
    for (body, field) in bad_products {
        let request = system.post("inventory", "/api/products").json(&body);
        assert_problem(request, 422, field, &body.to_string()).await;
    }
    let dollars = json!({
        "sku": "foreign", "name": "x", "quantity": 1, "unit_price": {"amount_minor": 1, "currency": "USD"},
    });
    let listed = system.post("inventory", "/api/products").json(&dollars).send().await;
    assert_eq!(listed.expect("an answer").status(), 201);
    crate::system::wait_until("mixed currencies are rejected", async || {
        let mixed = order_for(&[("pen", 1), ("foreign", 1)], "tok_ok");
        let answer = system.post("order", "/api/orders").json(&mixed).send().await;
        let body: Value = answer.expect("an answer").json().await.expect("JSON");
        body["errors"][0]["detail"].as_str().is_some_and(|detail| detail.contains("currency"))
    })
    .await;
}

async fn assert_problem(request: reqwest::RequestBuilder, status: u16, field: &str, what: &str) {
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.status(), status, "{what}");
    assert_eq!(answer.headers()["content-type"], "application/problem+json", "{what}");
    let problem: Value = answer.json().await.expect("a problem");
    assert_eq!(problem["status"], status, "{what}");
    if !field.is_empty() {
        assert_eq!(problem["errors"][0]["field"], field, "{what}: {problem}");
    }
}
