//! Shell: manual resolution through its routes, and the reconciliation after it.

use std::time::Duration;

use admin::service::AdminMessage;
use contract::reconciliation::{ChargeState, PaymentState, ReservationState};
use contract::{Fact, FactType};
use saga_core::dead_letter::DeadLettered;
use saga_core::message::Message as _;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::played::{ReconciliationHarness, quiet_shop};
use super::shop::{CANCELLED, CONFIRMED, PENDING, Shop, euro, id};
use crate::given::{announced, dead_letter, fact};
use crate::harness::each;

const BALANCED: &str = "BALANCED";
const UNBALANCED: &str = "UNBALANCED";
const MONEY_BACK: &str = "cancelled = money back";

/// A shop with a cancelled order whose refund never succeeds.
fn shop_with_a_stuck_refund() -> Shop {
    let mut shop = quiet_shop();
    let payment = &mut shop.payments[CANCELLED];
    payment.state = PaymentState::Open;
    payment.refunded.clear();
    payment.published.retain(|published| published.fact != FactType::PaymentRefunded);
    let charge = charge_of_bob(&mut shop);
    charge.state = ChargeState::Captured;
    charge.refunded.clear();
    shop
}

fn charge_of_bob(shop: &mut Shop) -> &mut contract::reconciliation::ChargeEntry {
    let reference = id(CANCELLED).to_string();
    shop.charges.iter_mut().find(|charge| charge.reference == reference).expect("his charge")
}

/// The harness with that shop and the dead letter of the refund.
async fn stuck() -> (ReconciliationHarness, DeadLettered) {
    let harness = ReconciliationHarness::of(shop_with_a_stuck_refund()).await;
    let dead = dead_letter("payment-refund", Some(id(CANCELLED)), 0);
    harness.payment_publishes(&announced(&dead)).await;
    (harness, dead)
}

fn saga() -> String {
    format!("/sagas/{}", id(CANCELLED))
}

fn why() -> Value {
    json!({"reason": "paid by cheque 4711"})
}

/// Names of published messages, and whether each request to payment resolves or withdraws.
async fn messages(harness: &ReconciliationHarness) -> (Vec<&'static str>, Vec<bool>) {
    let messages = harness.admin.publishes().await;
    let names = messages.iter().map(|messages| messages.message_type().name).collect();
    let response = messages.into_iter().filter_map(|messages| match messages {
        AdminMessage::Fact(Fact::ManualResolutionRequested(request)) => {
            assert!(request.cancelled, "{request:?}");
            Some(request.resolved)
        }
        AdminMessage::Fact(_) | AdminMessage::DeadLetter(_) => None,
    });
    (names, response.collect())
}

/// Publishes all messages, and reconciles.
async fn reconcile(harness: &ReconciliationHarness) -> Value {
    harness.admin.publishes().await;
    harness.reconcile().await
}

#[tokio::test]
async fn resolved_refund_is_listed_until_the_resolution_is_withdrawn() {
    let (harness, dead) = stuck().await;
    let admin = &harness.admin;
    assert_eq!(reconcile(&harness).await["verdict"], UNBALANCED);
    assert_eq!(admin.get(&saga()).await["status"], "COMPENSATION_STUCK");

    let response = admin.post(&format!("{}/resolve", saga()), &why(), 200).await;
    assert_eq!(
        (&response["status"], &response["manual_resolution"]["was"]),
        (&json!("RESOLVED_MANUALLY"), &json!("COMPENSATION_STUCK"))
    );
    assert_eq!(each(&response["manual_resolution"]["accepted"], "rule"), [MONEY_BACK], "{response}");
    assert_eq!(admin.get(&format!("/dlq/{}", dead.id)).await["status"], "RESOLVED_MANUALLY");
    let (names, settlements) = messages(&harness).await;
    assert_eq!(names, ["ManualResolutionRequested", "DeadLetterDiscarded"]);
    assert_eq!(settlements, [true]);

    let report = reconcile(&harness).await;
    assert_eq!((&report["verdict"], &report["resolved_count"]), (&json!(BALANCED), &json!(1)), "{report}");
    let listed = &report["resolved"][0];
    assert_eq!(listed["subject"], id(CANCELLED).to_string());
    assert_eq!((&listed["what"], &listed["difference"]), (&json!(MONEY_BACK), &json!("12.00 EUR")));
    assert_eq!((&listed["operator"], &listed["reason"]), (&json!("ada"), &json!("paid by cheque 4711")));
    assert_eq!(listed["check"], Value::Null, "the bank has the money");
    let seen = admin.get("/overview").await;
    assert_eq!(
        (&seen["dead_letters"]["pending"], &seen["sagas"]["by_status"]["RESOLVED_MANUALLY"]),
        (&json!(0), &json!(1))
    );
    assert!(seen["sagas"]["by_status"]["COMPENSATION_STUCK"].is_null(), "{seen}");
    assert_eq!(
        admin.get("/sagas?status=RESOLVED_MANUALLY").await["sagas"][0]["id"],
        id(CANCELLED).to_string()
    );
    let entry = admin.get("/audit").await["entries"][0].clone();
    assert_eq!((&entry["action"], &entry["operator"]), (&json!("saga.resolve"), &json!("ada")), "{entry}");
    assert_eq!(each(&entry["detail"]["accepted"], "rule"), [MONEY_BACK]);

    // Asked again, it is done already; and what is settled is not replayed.
    admin.post(&format!("{}/resolve", saga()), &why(), 409).await;
    admin.post(&format!("/dlq/{}/replay", dead.id), &json!({}), 409).await;
    admin.post(&format!("/dlq/{}/restore", dead.id), &json!({}), 409).await;
    assert_eq!(messages(&harness).await.0, [""; 0]);

    admin.post(&format!("{}/withdraw-resolution", saga()), &json!({}), 422).await;
    let open =
        admin.post(&format!("{}/withdraw-resolution", saga()), &json!({"reason": "it bounced"}), 200).await;
    assert_eq!((&open["status"], &open["manual_resolution"]), (&json!("COMPENSATION_STUCK"), &Value::Null));
    assert_eq!(admin.get(&format!("/dlq/{}", dead.id)).await["status"], "PENDING");
    let (names, settlements) = messages(&harness).await;
    assert_eq!(names, ["ManualResolutionRequested", "DeadLetterRestored"]);
    assert_eq!(settlements, [false]);
    let report = reconcile(&harness).await;
    assert_eq!((&report["verdict"], &report["resolved"]), (&json!(UNBALANCED), &json!([])));
    admin.post(&format!("{}/withdraw-resolution", saga()), &json!({"reason": "it bounced"}), 409).await;
    let entry = admin.get("/audit").await["entries"][0].clone();
    assert_eq!(
        (&entry["action"], &entry["reason"]),
        (&json!("saga.withdraw_resolution"), &json!("it bounced"))
    );
}

/// Regression: the bank had refunded, its answer was lost, and the operator paid by cheque. The ledgers agree with what was
/// accepted, and nobody learned that the customer was paid twice.
#[tokio::test]
async fn resolution_of_money_that_the_bank_does_not_have_is_to_be_checked() {
    for (state, bank) in [(ChargeState::Refunded, "refunded"), (ChargeState::None, "never captured")] {
        let mut shop = shop_with_a_stuck_refund();
        let charge = charge_of_bob(&mut shop);
        charge.state = state;
        match state {
            ChargeState::Refunded => charge.refunded.clone_from(&charge.captured),
            ChargeState::None | ChargeState::Captured => charge.captured.clear(),
        }
        let harness = ReconciliationHarness::of(shop).await;
        let dead = dead_letter("payment-refund", Some(id(CANCELLED)), 0);
        harness.payment_publishes(&announced(&dead)).await;
        harness.admin.post(&format!("{}/resolve", saga()), &why(), 200).await;
        harness.played.lock().shop.payments[CANCELLED].resolved_manually = true;
        let report = reconcile(&harness).await;
        assert_eq!(report["verdict"], BALANCED, "{report}");
        let listed = &report["resolved"][0];
        assert_eq!((&listed["subject"], &listed["amount"]), (&json!(id(CANCELLED)), &json!(euro(1_200))));
        assert!(listed["check"].as_str().is_some_and(|check| check.contains(bank)), "{listed}");
        assert_eq!(report["resolved_to_check"], 1, "{report}");
    }
}

#[tokio::test]
async fn new_discrepancy_after_resolution_is_reported() {
    let (harness, _) = stuck().await;
    harness.admin.post(&format!("{}/resolve", saga()), &why(), 200).await;
    // Charged once more.
    {
        let mut played = harness.played.lock();
        let mut again = charge_of_bob(&mut played.shop).clone();
        again.id = "ch_again".to_owned();
        played.shop.charges.push(again);
        played.shop.charges.sort_by_key(|charge| charge.reference.clone());
    }
    let report = reconcile(&harness).await;
    assert_eq!(report["verdict"], UNBALANCED, "{report}");
    let rules = each(&report["discrepancies"], "rule");
    assert!(rules.contains(&json!("one charge per order")), "{report}");

    // As it is now it may be settled too.
    let response = harness.admin.post(&format!("{}/resolve", saga()), &why(), 200).await;
    assert!(
        each(&response["manual_resolution"]["accepted"], "rule").contains(&json!("one charge per order"))
    );
    let report = reconcile(&harness).await;
    assert_eq!((&report["verdict"], &report["discrepancies"]), (&json!(BALANCED), &json!([])), "{report}");
}

#[tokio::test]
async fn refund_after_resolution_is_reported_as_done_twice() {
    let (harness, _) = stuck().await;
    harness.admin.post(&format!("{}/resolve", saga()), &why(), 200).await;
    let mut paid_back = quiet_shop();
    for published in &mut paid_back.payments[CANCELLED].published {
        published.at = saga_engine::testing::NOON;
    }
    let (payment, charge) = (paid_back.payments[CANCELLED].clone(), charge_of_bob(&mut paid_back).clone());
    {
        let mut played = harness.played.lock();
        played.shop.payments[CANCELLED] = payment;
        *charge_of_bob(&mut played.shop) = charge;
    }
    harness.payment_publishes(&fact("PaymentRefunded", id(CANCELLED))).await;
    assert_eq!(harness.admin.get(&saga()).await["status"], "COMPENSATED", "it has ended by itself");
    let report = reconcile(&harness).await;
    let messages: Vec<_> = report["discrepancies"].as_array().expect("a list").iter().collect();
    let twice = messages.iter().find(|found| found["rule"] == "manual resolution still holds");
    let twice = twice.unwrap_or_else(|| panic!("{report}"));
    assert_eq!((&report["verdict"], &twice["difference"]), (&json!(UNBALANCED), &json!("12.00 EUR")));
    assert!(twice["detail"].as_str().is_some_and(|detail| detail.contains("cheque 4711")), "{twice}");
    assert_eq!(report["resolved"], json!([]));

    harness
        .admin
        .post(&format!("{}/withdraw-resolution", saga()), &json!({"reason": "the cheque came back"}), 200)
        .await;
    assert!(
        !reconcile(&harness).await.to_string().contains("manual resolution still holds"),
        "nobody has settled anything"
    );
    assert_eq!(harness.admin.get(&saga()).await["status"], "COMPENSATED");
}

#[tokio::test]
async fn balanced_or_continuing_saga_cannot_be_resolved() {
    let harness = ReconciliationHarness::of(Shop::consistent()).await;
    let rejected = async |order: usize, wanted: &str| {
        let answer = harness.admin.post(&format!("/sagas/{}/resolve", id(order)), &why(), 409).await;
        let detail = answer["detail"].as_str().unwrap_or_default();
        assert!(detail.starts_with(wanted), "{answer}");
    };
    rejected(CONFIRMED, "the saga is COMPLETED, and its books balance: there is nothing to resolve").await;
    rejected(PENDING, "the saga is IN_PROGRESS and goes on until ").await;
    harness.admin.post(&format!("/payments/{}/resolve", id(CONFIRMED)), &why(), 409).await;
    assert_eq!(messages(&harness).await.0, [""; 0]);
    assert_eq!(harness.admin.get("/audit").await["entries"], json!([]));
}

#[tokio::test]
async fn payment_without_open_call_is_blocked_by_its_own_dead_letters_only() {
    let harness = ReconciliationHarness::of(quiet_shop()).await;
    let advice = async || {
        let path = format!("/payments/{}/resolve", id(CANCELLED));
        let answer = harness.admin.post(&path, &why(), 409).await;
        answer["detail"].as_str().expect("a detail").to_owned()
    };
    let refund = dead_letter("payment-refund", Some(id(CANCELLED)), 0);
    let release = DeadLettered {
        id: Uuid::from_u128(77),
        service: "inventory".to_owned(),
        ..dead_letter("inventory-stock-release", Some(id(CANCELLED)), 0)
    };
    harness.admin.receives(&announced(&release)).await;
    assert!(advice().await.contains("nothing to resolve"), "{}", advice().await);
    harness.admin.receives(&announced(&refund)).await;
    let replay = format!("sagactl dlq replay {}", refund.id);
    assert!(advice().await.contains(&format!("blocks it; replay it: {replay}")), "{}", advice().await);
    harness.admin.delete(&format!("/dlq/{}?reason=hopeless", refund.id), 200).await;
    let restore = format!("sagactl dlq restore {} && {replay}", refund.id);
    assert!(advice().await.contains(&restore), "{}", advice().await);
}

#[tokio::test]
async fn resolution_needs_answers_of_all_services() {
    let (harness, dead) = stuck().await;
    harness.played.lock().away = Some(("bank", false));
    harness.admin.post(&format!("{}/resolve", saga()), &why(), 503).await;
    harness.admin.post(&format!("/dlq/{}/resolve", dead.id), &why(), 503).await;
    harness.admin.post("/dlq/resolve", &json!({"ids": [dead.id], "reason": "x"}), 503).await;
    assert_eq!(harness.admin.get(&saga()).await["status"], "COMPENSATION_STUCK");
    assert_eq!(harness.admin.get("/audit").await["entries"], json!([]));
}

#[tokio::test]
async fn saga_is_resolved_with_its_last_blocking_dead_letter() {
    let (harness, refund) = stuck().await;
    let release = DeadLettered {
        id: Uuid::from_u128(77),
        message_id: Uuid::from_u128(78),
        ..dead_letter("inventory-stock-release", Some(id(CANCELLED)), 0)
    };
    harness.payment_publishes(&announced(&release)).await;
    let response = harness.admin.post(&format!("/dlq/{}/resolve", refund.id), &why(), 200).await;
    assert_eq!(response["status"], "RESOLVED_MANUALLY");
    assert_eq!(harness.admin.get(&saga()).await["status"], "COMPENSATION_STUCK");
    assert_eq!(reconcile(&harness).await["verdict"], UNBALANCED);
    harness.admin.post(&format!("/dlq/{}/resolve", release.id), &why(), 200).await;
    assert_eq!(harness.admin.get(&saga()).await["status"], "RESOLVED_MANUALLY");
    assert_eq!(reconcile(&harness).await["verdict"], BALANCED);
    let open = json!({"reason": "it bounced"});
    assert_eq!(
        harness.admin.post(&format!("/dlq/{}/withdraw-resolution", refund.id), &open, 200).await["status"],
        "PENDING"
    );
    assert_eq!(harness.admin.get(&saga()).await["status"], "COMPENSATION_STUCK");
}

#[tokio::test]
async fn open_call_is_resolved_before_it_is_dead_lettered() {
    let harness = ReconciliationHarness::of(shop_with_a_stuck_refund()).await;
    let path = format!("/payments/{}", id(CANCELLED));
    let response = harness.admin.post(&format!("{path}/resolve"), &why(), 200).await;
    assert_eq!(
        (&response["status"], &response["manual_resolution"]["was"]),
        (&json!("RESOLVED_MANUALLY"), &json!("COMPENSATING"))
    );
    assert_eq!(messages(&harness).await.1, [true]);
    // Payment says that it asks no more.
    harness.played.lock().shop.payments[CANCELLED].resolved_manually = true;
    harness.admin.post(&format!("{path}/resolve"), &why(), 409).await;
    assert_eq!(reconcile(&harness).await["verdict"], BALANCED);
    let open = harness
        .admin
        .post(&format!("{path}/withdraw-resolution"), &json!({"reason": "it bounced"}), 200)
        .await;
    assert_eq!(open["status"], "COMPENSATING");
}

#[tokio::test]
async fn bulk_resolution_by_filter_has_one_audit_entry() {
    let (harness, dead) = stuck().await;
    let of_nobody = DeadLettered { id: Uuid::from_u128(79), saga: None, ..dead.clone() };
    harness.payment_publishes(&announced(&of_nobody)).await;
    let request = json!({"filter": {"step": "payment-refund"}, "reason": "paid by cheque"});
    assert_eq!(harness.admin.post("/dlq/resolve", &request, 200).await, json!({"done": 2, "rejected": []}));
    assert_eq!(harness.admin.post("/dlq/resolve", &request, 200).await["done"], 0);
    assert_eq!(harness.admin.get(&saga()).await["status"], "RESOLVED_MANUALLY");
    assert_eq!(reconcile(&harness).await["verdict"], BALANCED);
    let count = harness.admin.get("/dlq/count").await;
    assert_eq!((&count["by_status"]["RESOLVED_MANUALLY"], &count["total"]), (&json!(2), &json!(0)));
    let request = json!({"ids": [dead.id, of_nobody.id, Uuid::nil()], "reason": "they bounced"});
    let answer = harness.admin.post("/dlq/withdraw-resolution", &request, 200).await;
    assert_eq!(
        (&answer["done"], each(&answer["rejected"], "detail")),
        (&json!(2), vec![json!("there is no such dead letter")])
    );
    assert_eq!(harness.admin.get(&saga()).await["status"], "COMPENSATION_STUCK");
    let log = harness.admin.get("/audit").await["entries"].clone();
    assert_eq!(
        each(&log, "action"),
        ["dlq.withdraw_resolution_many", "dlq.resolve_many", "dlq.resolve_many"]
    );
    assert_eq!(each(&log, "outcome"), ["done: 2 of 3", "done: 0 of 0", "done: 2 of 2"]);
}

#[tokio::test]
async fn bulk_note_matches_resolved_dead_letters() {
    let (harness, dead) = stuck().await;
    harness.admin.post(&format!("/dlq/{}/resolve", dead.id), &why(), 200).await;
    let noted = json!({"filter": {"step": "payment-refund"}, "text": "the cheque is in the post"});
    assert_eq!(harness.admin.post("/dlq/notes", &noted, 200).await["done"], 1);
}

#[tokio::test]
async fn reconciliation_started_before_a_resolution_is_not_stored() {
    let (harness, _) = stuck().await;
    harness.played.lock().busy_looks = u32::MAX;
    let audit = harness.reconcile_within(30);
    let settling = async {
        let has_begun = || harness.played.lock().busy_looks < u32::MAX;
        while !has_begun() {
            tokio::task::yield_now().await;
        }
        harness.admin.post(&format!("{}/resolve", saga()), &why(), 200).await;
        harness.admin.publishes().await;
        harness.played.lock().busy_looks = 0;
    };
    let (report, ()) = tokio::join!(audit, settling);
    assert_ne!(report["verdict"], Value::Null);
    assert_eq!(harness.admin.get("/overview").await["reconciliation"], Value::Null, "it is out of date");
    // The next one is.
    assert_eq!(self::reconcile(&harness).await["verdict"], BALANCED);
    assert_eq!(harness.admin.get("/overview").await["reconciliation"]["verdict"], BALANCED);
}

/// The `number`-th dead letter of the refund.
fn refund(number: u128) -> DeadLettered {
    let (id_of_letter, message_id) = (Uuid::from_u128(number), Uuid::from_u128(number << 64));
    DeadLettered { id: id_of_letter, message_id, ..dead_letter("payment-refund", Some(id(CANCELLED)), 0) }
}

#[tokio::test]
async fn audit_log_has_the_accepted_discrepancies() {
    let (harness, dead) = stuck().await;
    let one = (format!("/dlq/{}/resolve", dead.id), why());
    let many = ("/dlq/resolve".to_owned(), json!({"ids": [dead.id], "reason": "paid by cheque"}));
    for (path, request) in [one, many] {
        harness.admin.post(&path, &request, 200).await;
        let entry = harness.admin.get("/audit").await["entries"][0].clone();
        let accepted = &entry["detail"]["accepted"];
        assert_eq!(each(accepted, "rule"), [MONEY_BACK], "{path}: {entry}");
        assert_eq!(each(accepted, "saga"), [id(CANCELLED).to_string()], "{path}: {entry}");
        harness.admin.post(&format!("{}/withdraw-resolution", saga()), &why(), 200).await;
    }
    // Of what goes with nothing, nothing is accepted.
    harness.payment_publishes(&announced(&refund(77))).await;
    harness.admin.post("/dlq/resolve", &json!({"ids": [dead.id], "reason": "x"}), 200).await;
    let entry = harness.admin.get("/audit").await["entries"][0].clone();
    assert_eq!((&entry["outcome"], &entry["detail"]["accepted"]), (&json!("done: 1 of 1"), &Value::Null));
}

#[tokio::test]
async fn saga_stays_open_until_all_of_101_dead_letters_are_resolved() {
    let harness = ReconciliationHarness::of(shop_with_a_stuck_refund()).await;
    for number in 1..=101 {
        harness.payment_publishes(&announced(&refund(number))).await;
    }
    for last in [1, 101] {
        let rest: Vec<_> = (1..=101).filter(|number| *number != last).map(Uuid::from_u128).collect();
        let response =
            harness.admin.post("/dlq/resolve", &json!({"ids": rest, "reason": "cheque"}), 200).await;
        assert_eq!(response["done"], 100);
        assert_eq!(harness.admin.get(&saga()).await["status"], "COMPENSATION_STUCK", "without the {last}th");
        harness
            .admin
            .post("/dlq/withdraw-resolution", &json!({"ids": rest, "reason": "it bounced"}), 200)
            .await;
    }
    let all: Vec<_> = (1..=101).map(Uuid::from_u128).collect();
    harness.admin.post("/dlq/resolve", &json!({"ids": all, "reason": "cheque"}), 200).await;
    assert_eq!(harness.admin.get(&saga()).await["status"], "RESOLVED_MANUALLY");
}

#[tokio::test]
async fn dead_letter_in_replay_blocks_resolution_of_its_saga() {
    let (harness, dead) = stuck().await;
    harness.payment_publishes(&announced(&refund(77))).await;
    harness.admin.post(&format!("/dlq/{}/replay", Uuid::from_u128(77)), &json!({}), 202).await;
    let both = json!({"ids": [dead.id, Uuid::from_u128(77)], "reason": "cheque"});
    let answer = harness.admin.post("/dlq/resolve", &both, 200).await;
    assert_eq!(
        (&answer["done"], each(&answer["rejected"], "detail")),
        (&json!(1), vec![json!("the dead letter is REPLAYING")])
    );
    assert_eq!(harness.admin.get(&saga()).await["status"], "COMPENSATION_STUCK");
}

#[tokio::test]
async fn bulk_resolution_resolves_saga_after_its_last_dead_letter() {
    let harness = ReconciliationHarness::of(shop_with_a_stuck_refund()).await;
    let between = (2..=501).map(|number| DeadLettered { saga: None, ..refund(number) });
    let all: Vec<_> = [refund(1), refund(502)].into_iter().chain(between).collect();
    for dead in &all {
        harness.payment_publishes(&announced(dead)).await;
    }
    let ids: Vec<_> = all.iter().map(|dead| dead.id).collect();
    let response = harness.admin.post("/dlq/resolve", &json!({"ids": ids, "reason": "cheque"}), 200).await;
    assert_eq!(response["done"], 502);
    assert_eq!(harness.admin.get(&saga()).await["status"], "RESOLVED_MANUALLY");
    let (names, settlements) = messages(&harness).await;
    assert_eq!(settlements, [true]);
    assert_eq!(
        names.last(),
        Some(&"ManualResolutionRequested"),
        "the saga came before the last of its letters"
    );
}

/// Inventory does not know of resolutions, and releases stock that no dead letter blocks.
#[tokio::test]
async fn stock_released_after_resolution_is_no_discrepancy() {
    for is_parked in [false, true] {
        let mut shop = shop_with_a_stuck_refund();
        let free = shop.clone();
        shop.reservations[CANCELLED].state = ReservationState::Reserved;
        (shop.stock[1].on_hand, shop.stock[1].reserved) = (0, 1);
        let harness = ReconciliationHarness::of(shop).await;
        harness.payment_publishes(&announced(&refund(77))).await;
        if is_parked {
            let release = DeadLettered { step: "inventory-stock-release".to_owned(), ..refund(78) };
            harness.payment_publishes(&announced(&release)).await;
        }
        let response = harness.admin.post(&format!("{}/resolve", saga()), &why(), 200).await;
        let accepted = each(&response["manual_resolution"]["accepted"], "rule");
        assert_eq!(accepted, ["cancelled = stock back", MONEY_BACK], "{response}");
        assert_eq!(reconcile(&harness).await["verdict"], BALANCED);
        {
            let mut played = harness.played.lock();
            played.shop.reservations[CANCELLED].state = free.reservations[CANCELLED].state;
            played.shop.stock = free.stock;
        }
        let report = reconcile(&harness).await;
        if is_parked {
            assert_eq!(report["verdict"], UNBALANCED, "{report}");
            let detail = report["discrepancies"][0]["detail"].as_str().unwrap_or_default();
            assert!(detail.contains("reservation RESERVED") && detail.contains("done twice"), "{report}");
        } else {
            assert_eq!(report["verdict"], BALANCED, "{report}");
            assert_eq!(each(&report["resolved"], "what"), [MONEY_BACK], "{report}");
        }
    }
}

#[tokio::test]
async fn new_database_reports_resolved_discrepancies_until_resolved_again() {
    let mut shop = shop_with_a_stuck_refund();
    shop.payments[CANCELLED].resolved_manually = true;
    let harness = ReconciliationHarness::of(shop).await;
    assert_eq!(reconcile(&harness).await["verdict"], UNBALANCED);
    harness.admin.post(&format!("{}/resolve", saga()), &why(), 200).await;
    assert_eq!(reconcile(&harness).await["verdict"], BALANCED);
    let open = harness.admin.post(&format!("{}/withdraw-resolution", saga()), &why(), 200).await;
    assert_eq!(open["status"], "COMPENSATING");
}

#[tokio::test]
async fn resolution_invalidates_the_last_reconciliation() {
    let (harness, _) = stuck().await;
    reconcile(&harness).await;
    assert_eq!(harness.admin.get("/overview").await["reconciliation"]["verdict"], UNBALANCED);
    harness.admin.post(&format!("{}/resolve", saga()), &why(), 200).await;
    assert_eq!(harness.admin.get("/overview").await["reconciliation"], Value::Null, "it is out of date");
    harness.played.lock().shop.payments[CANCELLED].amount = Some(euro(1));
    assert_eq!(reconcile(&harness).await["verdict"], UNBALANCED);
}

#[tokio::test]
async fn resolution_triggers_a_reconciliation() {
    let (harness, _) = stuck().await;
    harness.admin.post(&format!("{}/resolve", saga()), &why(), 200).await;
    let until = Instant::now() + Duration::from_secs(60);
    while harness.admin.get("/overview").await["reconciliation"] == Value::Null {
        assert!(Instant::now() < until, "nobody looks");
        sleep(Duration::from_millis(50)).await;
    }
}
