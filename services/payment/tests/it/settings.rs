//! Shell: breaker and call settings of the running payment service.

use serde_json::{Value, json};

use saga_engine::testing::program::{Running, refusal};

const PAYMENT: &str = env!("CARGO_BIN_EXE_payment");

/// Configuration without a reachable broker.
const NOWHERE: &str = "[bus]\nurl = \"nats://127.0.0.1:1\"\n";

#[test]
fn config_file_changes_only_named_breaker() {
    let config = "[breaker]\nminimum_calls = 7\n[resilience.bank.breaker]\nopen_for = \"3s\"\nwindow = { calls = 20 }\n\
                  [resilience.payment-refund.breaker]\nhalf_open_calls = 1\n";
    let payment = Running::start(PAYMENT, &format!("{NOWHERE}{config}"));
    let breakers = payment.get("/internal/breakers").body;
    let of = |name: &str| {
        let breakers = breakers.as_array().expect("a list").iter();
        breakers.clone().find(|breaker| breaker["name"] == name).expect("its breaker")["policy"].clone()
    };
    let names: Vec<_> =
        breakers.as_array().expect("a list").iter().map(|breaker| breaker["name"].clone()).collect();
    assert_eq!(
        names,
        [
            "bank",
            "payment-extension",
            "payment-manual-resolution",
            "payment-operations",
            "payment-processing",
            "payment-refund"
        ]
    );
    let seen = |name: &str| {
        let policy = of(name);
        ["open_for", "window", "minimum_calls", "half_open_calls"].map(|member| policy[member].clone())
    };
    let calls = |calls: u64| json!({ "calls": calls });
    assert_eq!(seen("bank"), [json!("3s"), calls(20), json!(7), json!(3)]);
    assert_eq!(seen("payment-refund"), [json!("10s"), calls(10), json!(7), json!(1)]);
    assert_eq!(seen("payment-processing"), [json!("10s"), calls(10), json!(7), json!(3)]);
}

#[test]
fn unknown_breaker_in_config_is_error_that_lists_known_names() {
    for (name, section) in [
        ("resilience.bnak", "[resilience.bnak]\ntimeout = \"1s\"\n"),
        ("resilience.order-confirmation", "[resilience.order-confirmation.breaker]\nopen_for = \"1s\"\n"),
        ("resilience.payment-refund", "[resilience.payment-refund]\ntimeout = \"1s\"\n"),
        ("resilience.bank.breaker.failure_rate", "[resilience.bank.breaker]\nfailure_rate = 0\n"),
    ] {
        let said = refusal(PAYMENT, &format!("{NOWHERE}{section}"));
        assert!(said.contains(name), "{said:?} does not name {name}");
        assert_eq!(said.trim_end().lines().count(), 1, "one line: {said:?}");
    }
    let said = refusal(PAYMENT, &format!("{NOWHERE}[resilience.bnak]\n"));
    for here in ["bank", "payment-processing", "payment-refund"] {
        assert!(said.contains(here), "{said:?} does not say {here}");
    }
}

#[test]
fn operator_opens_and_resets_breaker() {
    let payment = Running::start(PAYMENT, &format!("instance = \"payment-2\"\n{NOWHERE}"));
    let turn = |name: &str, action: &str| {
        payment.post(&format!("/internal/breakers/{name}"), &[], &json!({ "action": action }))
    };
    let states = || {
        let breakers = payment.get("/internal/breakers").body;
        let breakers = breakers.as_array().expect("a list").clone();
        breakers.into_iter().map(|breaker| breaker["state"].clone()).collect::<Vec<Value>>()
    };
    let opened = turn("bank", "open").body;
    assert_eq!((&opened["state"], &opened["instance"]), (&json!("FORCED_OPEN"), &json!("payment-2")));
    assert_eq!(states(), ["FORCED_OPEN", "CLOSED", "CLOSED", "CLOSED", "CLOSED", "CLOSED"]);
    assert_eq!(turn("bank", "closed").body["state"], "FORCED_CLOSED");
    assert_eq!(turn("bank", "reset").body["state"], "CLOSED");
    assert_eq!(states(), ["CLOSED"; 6]);
    assert_eq!(turn("bnak", "open").status, 404);
    assert!(matches!(turn("bank", "shut").status, 400 | 422));
}
