//! Shell: the overview through its route.

use admin::sagas::overdue::GRACE;
use admin::service::AdminMessage;
use contract::Fact;
use contract::order::OrderCreated;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use saga_core::dead_letter::DeadLettered;
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

use crate::given::{ORDER, announced, dead_letter, dead_refund, fact, handled};
use crate::harness::{AdminHarness, each};

fn codes(overview: &Value) -> Vec<Value> {
    each(&overview["findings"], "code")
}

fn without_bank(overview: &Value) -> Vec<Value> {
    assert_eq!(codes(overview).first(), Some(&json!("unreachable")), "{overview:#}");
    codes(overview).split_off(1)
}

#[tokio::test]
async fn overview_names_an_unreachable_service_and_shows_the_others() {
    let admin = AdminHarness::new().await;
    let began = Instant::now();
    let overview = admin.get("/overview").await;
    assert!(began.elapsed().as_millis() < 2_000, "{:?}", began.elapsed());
    assert_eq!((&overview["needs_human"], codes(&overview)), (&json!(true), vec![json!("unreachable")]));
    let services = overview["services"].as_array().expect("services");
    assert_eq!(each(&overview["services"], "service"), ["admin", "order", "inventory", "payment", "bank"]);
    assert!(services[..4].iter().all(|service| service["ready"] == true && service["problem"].is_null()));
    assert_eq!(services[4]["problem"], "bank does not answer: connection refused");
    let payment = &services[3];
    let store = &payment["checks"]["store"];
    assert!(store["state"] == "ok" && store["text"] == "ok" && store["since"].is_string(), "{payment}");
    assert_eq!(payment["version"], env!("CARGO_PKG_VERSION"));
    assert!(services[4]["checks"].is_null() && services[4]["version"].is_null(), "{}", services[4]);
    assert_eq!((&overview["unconsumed"], &overview["unavailable"]), (&json!(0), &json!([])));
    assert_eq!(overview["reconciliation"], Value::Null, "nobody has looked");
}

/// Regression: nothing said how many customers waited for a service that was down, nor until when. Then dead letters were
/// counted too, which a start of the service does not help.
#[tokio::test]
async fn service_that_does_not_answer_is_a_finding_with_the_orders_that_wait_for_it() {
    let admin = AdminHarness::new().await;
    // Fields of rows have microseconds.
    let now = Timestamp::from_microsecond(Timestamp::now().as_microsecond()).expect("now");
    let deadline = now + SignedDuration::from_mins(1);
    let placed = |deadline| {
        let saga = Uuid::now_v7();
        let AdminMessage::Fact(Fact::OrderCreated(created)) = fact("OrderCreated", saga) else {
            unreachable!("it is what was asked for")
        };
        (saga, AdminMessage::Fact(OrderCreated { deadline, ..created }.into()))
    };
    for (saga, created) in [deadline, deadline + SignedDuration::from_mins(1)].map(placed) {
        admin.receives(&created).await;
        admin.receives(&fact("StockReserved", saga)).await;
    }
    let (dead, created) = placed(deadline - SignedDuration::from_secs(2));
    admin.receives(&created).await;
    admin.receives(&fact("StockReserved", dead)).await;
    admin.receives(&announced(&dead_letter("payment-processing", Some(dead), 0))).await;
    // It waits for inventory, which answers.
    admin.receives(&placed(deadline - SignedDuration::from_secs(1)).1).await;
    let overview = admin.get("/overview").await;
    let bank = &overview["findings"][0];
    assert_eq!(
        (&bank["service"], &bank["orders"], &bank["count"]),
        (&json!("bank"), &json!(2), &json!(null))
    );
    assert_eq!(bank["deadline"].as_str().and_then(|at| at.parse().ok()), Some(deadline), "{bank:#}");
    assert_eq!(bank["amounts"].as_array().map(Vec::len), Some(1), "{bank:#}");
    let extend = "saga extend --stuck-at payment-processing --for 10m --reason \"time to fix the cause\"";
    assert_eq!(bank["commands"], json!([extend, "saga list --stuck-at payment-processing"]));
}

#[tokio::test]
async fn hanging_service_does_not_delay_the_overview() {
    let deaf = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("service.bank=http://{}", deaf.local_addr().expect("an address"));
    let admin = AdminHarness::with(&[&address]).await;
    let began = Instant::now();
    let overview = admin.get("/overview").await;
    assert!(began.elapsed().as_millis() < 1_900, "{:?}", began.elapsed());
    assert_eq!(overview["findings"][0]["service"], "bank");
    assert_eq!(overview["findings"][0]["text"], "bank does not answer within 1.5 s");
}

#[tokio::test]
async fn dead_letter_is_a_finding_until_it_is_resolved() {
    let admin = AdminHarness::new().await;
    assert!(without_bank(&admin.get("/overview").await).is_empty());
    let saga = Uuid::now_v7();
    admin.receives(&fact("OrderCreated", saga)).await;
    let dead =
        DeadLettered { fingerprint: "f".to_owned(), ..dead_letter("payment-processing", Some(saga), 0) };
    admin.receives(&announced(&dead)).await;
    let overview = admin.get("/overview").await;
    assert!(without_bank(&overview).contains(&json!("dead_letters")), "{overview:#}");
    let group = &overview["dead_letters"]["groups"][0];
    assert_eq!((&group["fingerprint"], &group["count"]), (&json!("f"), &json!(1)));
    assert_eq!(group["newest"], dead.id.to_string());
    assert_eq!(group["reason"], dead.reason);
    assert_eq!(overview["sagas"]["by_status"], json!({"DEAD_LETTERED": 1}));
    let oldest = &overview["sagas"]["oldest"];
    assert_eq!((&oldest["id"], &oldest["status"]), (&json!(saga.to_string()), &json!("DEAD_LETTERED")));
    assert!(oldest["waits_since"].is_string() && oldest["waits_until"].is_string(), "{oldest}");
    admin.receives(&handled(&dead)).await;
    assert!(!without_bank(&admin.get("/overview").await).contains(&json!("dead_letters")));
}

#[tokio::test]
async fn stuck_and_overdue_sagas_and_forced_breakers_are_findings() {
    let admin = AdminHarness::new().await;
    let saga = Uuid::now_v7();
    let AdminMessage::Fact(Fact::OrderCreated(created)) = fact("OrderCreated", saga) else {
        unreachable!("it is what was asked for")
    };
    let late = OrderCreated { deadline: Timestamp::now() - GRACE - SignedDuration::from_secs(1), ..created };
    // One whose time was over just now is about to end.
    let about_to_end = OrderCreated { order: Uuid::now_v7(), deadline: Timestamp::now(), ..late.clone() };
    admin.receives(&AdminMessage::Fact(late.into())).await;
    admin.receives(&AdminMessage::Fact(about_to_end.into())).await;
    assert_eq!(without_bank(&admin.get("/overview").await), ["sagas_overdue"]);
    // The list is of those that were counted.
    let page = admin.get("/sagas?overdue=true").await;
    assert_eq!(
        (&page["total"], &page["sagas"][0]["id"], &page["sagas"][0]["overdue"]),
        (&json!(1), &json!(saga), &json!(true))
    );
    admin.receives(&fact("OrderCancelled", saga)).await;
    admin.receives(&fact("DeadLettered", saga)).await;
    let overview = admin.get("/overview").await;
    assert_eq!(overview["sagas"]["by_status"], json!({"COMPENSATION_STUCK": 1, "STARTED": 1}));
    assert_eq!(admin.get("/sagas?overdue=true").await["total"], 0);
    assert_eq!(without_bank(&overview), ["compensation_stuck", "dead_letters"], "{overview:#}");
    admin.post("/breakers/payment/outside", &json!({"action": "open", "reason": "x"}), 200).await;
    let overview = admin.get("/overview").await;
    let breakers = overview["services"][0]["breakers"].clone();
    assert_eq!((&breakers[0]["name"], &breakers[0]["forced"]), (&json!("outside"), &json!(true)));
    assert!(codes(&overview).contains(&json!("breaker_open")), "{overview:#}");
}

/// Regression: when the request to replay was itself dead-lettered and discarded, nothing said that the replay was lost.
#[tokio::test]
async fn replay_without_outcome_for_long_is_a_finding_whose_command_mends_it() {
    let admin = AdminHarness::new().await;
    let dead = DeadLettered { last_failed_at: Timestamp::now(), ..dead_refund(0) };
    for message in
        [fact("OrderCreated", ORDER), fact("PaymentProcessed", ORDER), fact("OrderCancelled", ORDER)]
    {
        admin.receives(&message).await;
    }
    admin.receives(&announced(&dead)).await;
    let replay = format!("/dlq/{}/replay", dead.id);
    admin.post(&replay, &json!({}), 202).await;
    assert_eq!(admin.publishes().await.len(), 1, "the request, which its service loses");
    let finding = async |code: &str| {
        let overview = admin.get("/overview").await;
        let findings = overview["findings"].as_array().expect("findings");
        findings.iter().find(|finding| finding["code"] == code).cloned()
    };
    assert_eq!(finding("replays_overdue").await, None, "it may still be processed");
    admin.app.clock.correct(SignedDuration::from_mins(11), None);
    let overdue = finding("replays_overdue").await.expect("a finding");
    let forced = format!("dlq replay {} --force --reason \"its replay was lost\"", dead.id);
    assert_eq!((&overdue["count"], &overdue["commands"]), (&json!(1), &json!([forced])));
    let stuck = finding("compensation_stuck").await.expect("a finding")["commands"].to_string();
    assert!(!stuck.contains("dlq restore") && !stuck.contains("DISCARDED"), "{stuck}");
    admin.post(&replay, &json!({"force": true, "reason": "its replay was lost"}), 202).await;
    admin.receives(&handled(&dead)).await;
    assert_eq!(finding("replays_overdue").await, None);
}

#[tokio::test]
async fn stuck_compensation_suggests_a_restore_only_of_what_is_discarded() {
    let admin = AdminHarness::new().await;
    for message in
        [fact("OrderCreated", ORDER), fact("PaymentProcessed", ORDER), fact("OrderCancelled", ORDER)]
    {
        admin.receives(&message).await;
    }
    admin.receives(&announced(&dead_refund(0))).await;
    let suggests_restore = async || {
        let overview = admin.get("/overview").await;
        let findings = overview["findings"].as_array().expect("findings");
        let stuck = findings.iter().find(|finding| finding["code"] == "compensation_stuck");
        stuck.expect("a finding")["commands"].to_string().contains(&format!("dlq restore --saga {ORDER}"))
    };
    assert!(!suggests_restore().await);
    admin.delete(&format!("/dlq/{}?reason=a%20test", dead_refund(0).id), 200).await;
    assert!(suggests_restore().await);
}

#[tokio::test]
async fn rejected_message_is_a_finding() {
    let admin = AdminHarness::new().await;
    let dead = dead_letter("payment-refund", None, 0);
    admin.receives(&announced(&dead)).await;
    admin.post(&format!("/dlq/{}/replay", dead.id), &json!({}), 202).await;
    let pending = admin.app.store.pending_entries(10).await.expect("the outbox");
    admin.refuse(pending[0].seq, Timestamp::now() + SignedDuration::from_secs(1)).await;
    let overview = admin.get("/overview").await;
    assert!(without_bank(&overview).contains(&json!("messages_rejected")), "{overview:#}");
    assert_eq!(overview["services"][0]["outbox"]["failed"], 1);
    assert_eq!(overview["dead_letters"]["replaying"], 1);
}

#[tokio::test]
async fn lists_show_total_and_unconsumed_messages() {
    let admin = AdminHarness::new().await;
    for number in 0..3 {
        admin.receives(&fact("OrderCreated", Uuid::from_u128(0x100 + number))).await;
    }
    let dead = dead_letter("payment-refund", None, 0);
    admin.receives(&announced(&dead)).await;
    let page = admin.get("/sagas?limit=2").await;
    assert_eq!((&page["total"], &page["unconsumed"]), (&json!(3), &json!(0)));
    assert_eq!(page["sagas"].as_array().map(Vec::len), Some(2));
    assert!(page["sagas"][0]["waits_since"].is_string() && page["sagas"][0]["waits_until"].is_string());
    assert_eq!(admin.get("/sagas?status=COMPLETED").await["total"], 0);
    for (customer, count) in [("ada", 3), ("AD", 3), ("da", 3), ("adam", 0)] {
        let found = admin.get(&format!("/sagas?customer={customer}")).await;
        assert_eq!(found["total"], count, "{customer}");
        assert_eq!(each(&found["sagas"], "id").len(), count, "{customer}");
    }
    assert_eq!(admin.get("/dlq?limit=1").await["total"], 1);
    // Text is looked for in each: that is not counted.
    let answer = admin.request(Method::GET, "/dlq?text=x").send().await.expect("an answer");
    assert_eq!(answer.json::<Value>().await.expect("JSON")["total"], Value::Null);
}
