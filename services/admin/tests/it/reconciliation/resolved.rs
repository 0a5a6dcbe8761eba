//! Shell: what operators settle outside, through the real routes, and what the reconciliation says of it from then on.

use std::time::Duration;

use admin::policy::AdminMessage;
use contract::reconciliation::{ChargeState, PaymentState, ReservationState};
use contract::{Fact, FactType};
use saga_core::dead_letter::DeadLettered;
use saga_core::message::Message as _;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::played::{ReconciliationState, quiet_shop};
use super::shop::{CANCELLED, CONFIRMED, PENDING, Shop, euro, id};
use crate::given::{announced, dead_letter, fact};
use crate::harness::each;

const BALANCED: &str = "BALANCED";
const UNBALANCED: &str = "UNBALANCED";
const MONEY_BACK: &str = "cancelled = money back";

/// Bob's pot was cancelled, and the bank will never give his money back.
fn shop_with_a_stuck_refund() -> Shop {
    let mut shop = quiet_shop();
    let payment = &mut shop.payments[CANCELLED];
    payment.state = PaymentState::Open;
    payment.refunded.clear();
    payment.published.retain(|said| said.fact != FactType::PaymentRefunded);
    let charge = charge_of_bob(&mut shop);
    charge.state = ChargeState::Captured;
    charge.refunded.clear();
    shop
}

fn charge_of_bob(shop: &mut Shop) -> &mut contract::reconciliation::ChargeEntry {
    let reference = id(CANCELLED).to_string();
    shop.charges.iter_mut().find(|charge| charge.reference == reference).expect("his charge")
}

/// The same, and the refund is a dead letter.
async fn stuck() -> (ReconciliationState, DeadLettered) {
    let books = ReconciliationState::of(shop_with_a_stuck_refund()).await;
    let dead = dead_letter("payment-refund", Some(id(CANCELLED)), 0);
    books.says(&announced(&dead)).await;
    (books, dead)
}

fn saga() -> String {
    format!("/sagas/{}", id(CANCELLED))
}

fn why() -> Value {
    json!({"reason": "paid by cheque 4711"})
}

/// What admin tells the services, by name, and whether payment hears of settlements or that they are taken back, all of a
/// cancelled order.
async fn told(books: &ReconciliationState) -> (Vec<&'static str>, Vec<bool>) {
    let told = books.admin.publishes().await;
    let names = told.iter().map(|told| told.message_type().name).collect();
    let settled = told.into_iter().filter_map(|told| match told {
        AdminMessage::Fact(Fact::ManualResolutionRequested(asked)) => {
            assert!(asked.cancelled, "{asked:?}");
            Some(asked.resolved)
        }
        AdminMessage::Fact(_) | AdminMessage::DeadLetter(_) => None,
    });
    (names, settled.collect())
}

/// What the books say once the services have heard what they are told.
async fn audit(books: &ReconciliationState) -> Value {
    books.admin.publishes().await;
    books.audit().await
}

#[tokio::test]
async fn a_refund_that_was_paid_by_cheque_is_settled_and_listed_until_that_is_taken_back() {
    let (books, dead) = stuck().await;
    let admin = &books.admin;
    assert_eq!(audit(&books).await["verdict"], UNBALANCED);
    assert_eq!(admin.get(&saga()).await["status"], "COMPENSATION_STUCK");

    let settled = admin.post(&format!("{}/resolve", saga()), &why(), 200).await;
    assert_eq!(
        (&settled["status"], &settled["manual_resolution"]["was"]),
        (&json!("RESOLVED_MANUALLY"), &json!("COMPENSATION_STUCK"))
    );
    assert_eq!(each(&settled["manual_resolution"]["accepted"], "rule"), [MONEY_BACK], "{settled}");
    assert_eq!(admin.get(&format!("/dlq/{}", dead.id)).await["status"], "RESOLVED_MANUALLY");
    let (names, settlements) = told(&books).await;
    assert_eq!(names, ["ManualResolutionRequested", "DeadLetterDiscarded"]);
    assert_eq!(settlements, [true]);

    let report = audit(&books).await;
    assert_eq!((&report["verdict"], &report["resolved_count"]), (&json!(BALANCED), &json!(1)), "{report}");
    let listed = &report["resolved"][0];
    assert_eq!(listed["subject"], id(CANCELLED).to_string());
    assert_eq!((&listed["what"], &listed["difference"]), (&json!(MONEY_BACK), &json!("12.00 EUR")));
    assert_eq!((&listed["operator"], &listed["reason"]), (&json!("ada"), &json!("paid by cheque 4711")));
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
    assert_eq!(told(&books).await.0, [""; 0]);

    admin.post(&format!("{}/withdraw-resolution", saga()), &json!({}), 422).await;
    let open =
        admin.post(&format!("{}/withdraw-resolution", saga()), &json!({"reason": "it bounced"}), 200).await;
    assert_eq!((&open["status"], &open["manual_resolution"]), (&json!("COMPENSATION_STUCK"), &Value::Null));
    assert_eq!(admin.get(&format!("/dlq/{}", dead.id)).await["status"], "PENDING");
    let (names, settlements) = told(&books).await;
    assert_eq!(names, ["ManualResolutionRequested", "DeadLetterRestored"]);
    assert_eq!(settlements, [false]);
    let report = audit(&books).await;
    assert_eq!((&report["verdict"], &report["resolved"]), (&json!(UNBALANCED), &json!([])));
    admin.post(&format!("{}/withdraw-resolution", saga()), &json!({"reason": "it bounced"}), 409).await;
    let entry = admin.get("/audit").await["entries"][0].clone();
    assert_eq!(
        (&entry["action"], &entry["reason"]),
        (&json!("saga.withdraw_resolution"), &json!("it bounced"))
    );
}

/// What was accepted is what was known, and nothing else.
#[tokio::test]
async fn whatever_else_goes_wrong_after_a_settlement_is_told() {
    let (books, _) = stuck().await;
    books.admin.post(&format!("{}/resolve", saga()), &why(), 200).await;
    // Charged once more.
    {
        let mut played = books.played.lock();
        let mut again = charge_of_bob(&mut played.shop).clone();
        again.id = "ch_again".to_owned();
        played.shop.charges.push(again);
        played.shop.charges.sort_by_key(|charge| charge.reference.clone());
    }
    let report = audit(&books).await;
    assert_eq!(report["verdict"], UNBALANCED, "{report}");
    let rules = each(&report["discrepancies"], "rule");
    assert!(rules.contains(&json!("one charge per order")), "{report}");

    // As it is now it may be settled too.
    let settled = books.admin.post(&format!("{}/resolve", saga()), &why(), 200).await;
    assert!(each(&settled["manual_resolution"]["accepted"], "rule").contains(&json!("one charge per order")));
    let report = audit(&books).await;
    assert_eq!((&report["verdict"], &report["discrepancies"]), (&json!(BALANCED), &json!([])), "{report}");
}

/// He has the cheque, and the money on his card.
#[tokio::test]
async fn a_refund_that_arrives_after_the_settlement_is_told_as_done_twice() {
    let (books, _) = stuck().await;
    books.admin.post(&format!("{}/resolve", saga()), &why(), 200).await;
    let mut paid_back = quiet_shop();
    for said in &mut paid_back.payments[CANCELLED].published {
        said.at = saga_engine::testing::NOON;
    }
    let (payment, charge) = (paid_back.payments[CANCELLED].clone(), charge_of_bob(&mut paid_back).clone());
    {
        let mut played = books.played.lock();
        played.shop.payments[CANCELLED] = payment;
        *charge_of_bob(&mut played.shop) = charge;
    }
    books.says(&fact("PaymentRefunded", id(CANCELLED))).await;
    assert_eq!(books.admin.get(&saga()).await["status"], "COMPENSATED", "it has ended by itself");
    let report = audit(&books).await;
    let told: Vec<_> = report["discrepancies"].as_array().expect("a list").iter().collect();
    let twice = told.iter().find(|found| found["rule"] == "manual resolution still holds");
    let twice = twice.unwrap_or_else(|| panic!("{report}"));
    assert_eq!((&report["verdict"], &twice["difference"]), (&json!(UNBALANCED), &json!("12.00 EUR")));
    assert!(twice["detail"].as_str().is_some_and(|detail| detail.contains("cheque 4711")), "{twice}");
    assert_eq!(report["resolved"], json!([]));

    books
        .admin
        .post(&format!("{}/withdraw-resolution", saga()), &json!({"reason": "the cheque came back"}), 200)
        .await;
    assert!(
        !audit(&books).await.to_string().contains("manual resolution still holds"),
        "nobody has settled anything"
    );
    assert_eq!(books.admin.get(&saga()).await["status"], "COMPENSATED");
}

#[tokio::test]
async fn what_is_in_order_or_goes_on_by_itself_is_not_settled() {
    let books = ReconciliationState::of(Shop::consistent()).await;
    let refused = async |order: usize, wanted: &str| {
        let answer = books.admin.post(&format!("/sagas/{}/resolve", id(order)), &why(), 409).await;
        let detail = answer["detail"].as_str().unwrap_or_default();
        assert!(detail.starts_with(wanted), "{answer}");
    };
    refused(CONFIRMED, "the saga is COMPLETED, and its books balance: there is nothing to resolve").await;
    refused(PENDING, "the saga is IN_PROGRESS and goes on until ").await;
    books.admin.post(&format!("/payments/{}/resolve", id(CONFIRMED)), &why(), 409).await;
    assert_eq!(told(&books).await.0, [""; 0]);
    assert_eq!(books.admin.get("/audit").await["entries"], json!([]));
}

/// A blank cheque is not accepted: what does not add up must be known.
#[tokio::test]
async fn nothing_is_settled_while_somebody_does_not_answer() {
    let (books, dead) = stuck().await;
    books.played.lock().away = Some(("bank", false));
    books.admin.post(&format!("{}/resolve", saga()), &why(), 503).await;
    books.admin.post(&format!("/dlq/{}/resolve", dead.id), &why(), 503).await;
    books.admin.post("/dlq/resolve", &json!({"ids": [dead.id], "reason": "x"}), 503).await;
    assert_eq!(books.admin.get(&saga()).await["status"], "COMPENSATION_STUCK");
    assert_eq!(books.admin.get("/audit").await["entries"], json!([]));
}

/// Stock that never came back is no matter of a cheque.
#[tokio::test]
async fn the_last_dead_letter_in_its_way_settles_a_saga_and_none_before() {
    let (books, refund) = stuck().await;
    let release = DeadLettered {
        id: Uuid::from_u128(77),
        message_id: Uuid::from_u128(78),
        ..dead_letter("inventory-stock-release", Some(id(CANCELLED)), 0)
    };
    books.says(&announced(&release)).await;
    let settled = books.admin.post(&format!("/dlq/{}/resolve", refund.id), &why(), 200).await;
    assert_eq!(settled["status"], "RESOLVED_MANUALLY");
    assert_eq!(books.admin.get(&saga()).await["status"], "COMPENSATION_STUCK");
    assert_eq!(audit(&books).await["verdict"], UNBALANCED);
    books.admin.post(&format!("/dlq/{}/resolve", release.id), &why(), 200).await;
    assert_eq!(books.admin.get(&saga()).await["status"], "RESOLVED_MANUALLY");
    assert_eq!(audit(&books).await["verdict"], BALANCED);
    let open = json!({"reason": "it bounced"});
    assert_eq!(
        books.admin.post(&format!("/dlq/{}/withdraw-resolution", refund.id), &open, 200).await["status"],
        "PENDING"
    );
    assert_eq!(books.admin.get(&saga()).await["status"], "COMPENSATION_STUCK");
}

/// What the bank is asked for an order is the order's: there is one settlement, whichever door it came in by.
#[tokio::test]
async fn an_open_call_is_settled_before_it_is_parked() {
    let books = ReconciliationState::of(shop_with_a_stuck_refund()).await;
    let path = format!("/payments/{}", id(CANCELLED));
    let settled = books.admin.post(&format!("{path}/resolve"), &why(), 200).await;
    assert_eq!(
        (&settled["status"], &settled["manual_resolution"]["was"]),
        (&json!("RESOLVED_MANUALLY"), &json!("COMPENSATING"))
    );
    assert_eq!(told(&books).await.1, [true]);
    // Payment says that it asks no more.
    books.played.lock().shop.payments[CANCELLED].resolved_manually = true;
    books.admin.post(&format!("{path}/resolve"), &why(), 409).await;
    assert_eq!(audit(&books).await["verdict"], BALANCED);
    let open =
        books.admin.post(&format!("{path}/withdraw-resolution"), &json!({"reason": "it bounced"}), 200).await;
    assert_eq!(open["status"], "COMPENSATING");
}

#[tokio::test]
async fn many_are_settled_by_a_filter_and_written_down_once() {
    let (books, dead) = stuck().await;
    let of_nobody = DeadLettered { id: Uuid::from_u128(79), saga: None, ..dead.clone() };
    books.says(&announced(&of_nobody)).await;
    let asked = json!({"filter": {"step": "payment-refund"}, "reason": "paid by cheque"});
    assert_eq!(books.admin.post("/dlq/resolve", &asked, 200).await, json!({"done": 2, "rejected": []}));
    assert_eq!(books.admin.post("/dlq/resolve", &asked, 200).await["done"], 0);
    assert_eq!(books.admin.get(&saga()).await["status"], "RESOLVED_MANUALLY");
    assert_eq!(audit(&books).await["verdict"], BALANCED);
    let count = books.admin.get("/dlq/count").await;
    assert_eq!((&count["by_status"]["RESOLVED_MANUALLY"], &count["total"]), (&json!(2), &json!(0)));
    let asked = json!({"ids": [dead.id, of_nobody.id, Uuid::nil()], "reason": "they bounced"});
    let answer = books.admin.post("/dlq/withdraw-resolution", &asked, 200).await;
    assert_eq!(
        (&answer["done"], each(&answer["rejected"], "detail")),
        (&json!(2), vec![json!("there is no such dead letter")])
    );
    assert_eq!(books.admin.get(&saga()).await["status"], "COMPENSATION_STUCK");
    let log = books.admin.get("/audit").await["entries"].clone();
    assert_eq!(
        each(&log, "action"),
        ["dlq.withdraw_resolution_many", "dlq.resolve_many", "dlq.resolve_many"]
    );
    assert_eq!(each(&log, "outcome"), ["done: 2 of 3", "done: 0 of 0", "done: 2 of 2"]);
}

#[tokio::test]
async fn a_filter_has_notes_put_on_what_is_settled_too() {
    let (books, dead) = stuck().await;
    books.admin.post(&format!("/dlq/{}/resolve", dead.id), &why(), 200).await;
    let noted = json!({"filter": {"step": "payment-refund"}, "text": "the cheque is in the post"});
    assert_eq!(books.admin.post("/dlq/notes", &noted, 200).await["done"], 1);
}

/// What it says is of before, whatever it has seen of it: nobody knows.
#[tokio::test]
async fn an_audit_that_began_before_a_settlement_is_not_remembered() {
    let (books, _) = stuck().await;
    books.played.lock().busy_looks = u32::MAX;
    let audit = books.audit_within(30);
    let settling = async {
        let has_begun = || books.played.lock().busy_looks < u32::MAX;
        while !has_begun() {
            tokio::task::yield_now().await;
        }
        books.admin.post(&format!("{}/resolve", saga()), &why(), 200).await;
        books.admin.publishes().await;
        books.played.lock().busy_looks = 0;
    };
    let (report, ()) = tokio::join!(audit, settling);
    assert_ne!(report["verdict"], Value::Null);
    assert_eq!(books.admin.get("/overview").await["reconciliation"], Value::Null, "it is out of date");
    // The next one is.
    assert_eq!(self::audit(&books).await["verdict"], BALANCED);
    assert_eq!(books.admin.get("/overview").await["reconciliation"]["verdict"], BALANCED);
}

/// A dead letter of bob's refund by this number.
fn refund(number: u128) -> DeadLettered {
    let (id_of_letter, message_id) = (Uuid::from_u128(number), Uuid::from_u128(number << 64));
    DeadLettered { id: id_of_letter, message_id, ..dead_letter("payment-refund", Some(id(CANCELLED)), 0) }
}

/// What goes with a letter is accepted too, and only its saga's history told what.
#[tokio::test]
async fn the_log_says_what_was_accepted_whichever_way_it_was_settled() {
    let (books, dead) = stuck().await;
    let one = (format!("/dlq/{}/resolve", dead.id), why());
    let many = ("/dlq/resolve".to_owned(), json!({"ids": [dead.id], "reason": "paid by cheque"}));
    for (path, asked) in [one, many] {
        books.admin.post(&path, &asked, 200).await;
        let entry = books.admin.get("/audit").await["entries"][0].clone();
        let accepted = &entry["detail"]["accepted"];
        assert_eq!(each(accepted, "rule"), [MONEY_BACK], "{path}: {entry}");
        assert_eq!(each(accepted, "saga"), [id(CANCELLED).to_string()], "{path}: {entry}");
        books.admin.post(&format!("{}/withdraw-resolution", saga()), &why(), 200).await;
    }
    // Of what goes with nothing, nothing is accepted.
    books.says(&announced(&refund(77))).await;
    books.admin.post("/dlq/resolve", &json!({"ids": [dead.id], "reason": "x"}), 200).await;
    let entry = books.admin.get("/audit").await["entries"][0].clone();
    assert_eq!((&entry["outcome"], &entry["detail"]["accepted"]), (&json!("done: 1 of 1"), &Value::Null));
}

/// However many there are: its letters were looked at a hundred at a time, and once.
#[tokio::test]
async fn the_hundred_and_first_dead_letter_is_in_its_sagas_way_too() {
    let books = ReconciliationState::of(shop_with_a_stuck_refund()).await;
    for number in 1..=101 {
        books.says(&announced(&refund(number))).await;
    }
    for last in [1, 101] {
        let rest: Vec<_> = (1..=101).filter(|number| *number != last).map(Uuid::from_u128).collect();
        let settled = books.admin.post("/dlq/resolve", &json!({"ids": rest, "reason": "cheque"}), 200).await;
        assert_eq!(settled["done"], 100);
        assert_eq!(books.admin.get(&saga()).await["status"], "COMPENSATION_STUCK", "without the {last}th");
        books
            .admin
            .post("/dlq/withdraw-resolution", &json!({"ids": rest, "reason": "it bounced"}), 200)
            .await;
    }
    let all: Vec<_> = (1..=101).map(Uuid::from_u128).collect();
    books.admin.post("/dlq/resolve", &json!({"ids": all, "reason": "cheque"}), 200).await;
    assert_eq!(books.admin.get(&saga()).await["status"], "RESOLVED_MANUALLY");
}

/// It may be handled yet; nobody has settled it.
#[tokio::test]
async fn a_dead_letter_that_is_being_replayed_is_in_its_sagas_way() {
    let (books, dead) = stuck().await;
    books.says(&announced(&refund(77))).await;
    books.admin.post(&format!("/dlq/{}/replay", Uuid::from_u128(77)), &json!({}), 202).await;
    let both = json!({"ids": [dead.id, Uuid::from_u128(77)], "reason": "cheque"});
    let answer = books.admin.post("/dlq/resolve", &both, 200).await;
    assert_eq!(
        (&answer["done"], each(&answer["rejected"], "detail")),
        (&json!(1), vec![json!("the dead letter is REPLAYING")])
    );
    assert_eq!(books.admin.get(&saga()).await["status"], "COMPENSATION_STUCK");
}

/// Over several transactions too, the last of which may never come.
#[tokio::test]
async fn the_saga_of_many_is_settled_after_the_last_of_its_dead_letters() {
    let books = ReconciliationState::of(shop_with_a_stuck_refund()).await;
    let between = (2..=501).map(|number| DeadLettered { saga: None, ..refund(number) });
    let all: Vec<_> = [refund(1), refund(502)].into_iter().chain(between).collect();
    for dead in &all {
        books.says(&announced(dead)).await;
    }
    let ids: Vec<_> = all.iter().map(|dead| dead.id).collect();
    let settled = books.admin.post("/dlq/resolve", &json!({"ids": ids, "reason": "cheque"}), 200).await;
    assert_eq!(settled["done"], 502);
    assert_eq!(books.admin.get(&saga()).await["status"], "RESOLVED_MANUALLY");
    let (names, settlements) = told(&books).await;
    assert_eq!(settlements, [true]);
    assert_eq!(
        names.last(),
        Some(&"ManualResolutionRequested"),
        "the saga came before the last of its letters"
    );
}

/// Inventory hears nothing of settlements: what it was going to do it does, and nobody has done that by hand.
#[tokio::test]
async fn stock_that_comes_back_by_itself_after_a_settlement_is_not_told_as_done_twice() {
    for is_parked in [false, true] {
        let mut shop = shop_with_a_stuck_refund();
        let free = shop.clone();
        shop.reservations[CANCELLED].state = ReservationState::Reserved;
        (shop.stock[1].on_hand, shop.stock[1].reserved) = (0, 1);
        let books = ReconciliationState::of(shop).await;
        books.says(&announced(&refund(77))).await;
        if is_parked {
            let release = DeadLettered { step: "inventory-stock-release".to_owned(), ..refund(78) };
            books.says(&announced(&release)).await;
        }
        let settled = books.admin.post(&format!("{}/resolve", saga()), &why(), 200).await;
        let accepted = each(&settled["manual_resolution"]["accepted"], "rule");
        assert_eq!(accepted, ["cancelled = stock back", MONEY_BACK], "{settled}");
        assert_eq!(audit(&books).await["verdict"], BALANCED);
        {
            let mut played = books.played.lock();
            played.shop.reservations[CANCELLED].state = free.reservations[CANCELLED].state;
            played.shop.stock = free.stock;
        }
        let report = audit(&books).await;
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

/// Only admin knew of it: payment still asks for nothing.
#[tokio::test]
async fn an_admin_whose_database_is_new_tells_what_was_settled_as_wrong_until_it_is_settled_again() {
    let mut shop = shop_with_a_stuck_refund();
    shop.payments[CANCELLED].resolved_manually = true;
    let books = ReconciliationState::of(shop).await;
    assert_eq!(audit(&books).await["verdict"], UNBALANCED);
    books.admin.post(&format!("{}/resolve", saga()), &why(), 200).await;
    assert_eq!(audit(&books).await["verdict"], BALANCED);
    let open = books.admin.post(&format!("{}/withdraw-resolution", saga()), &why(), 200).await;
    assert_eq!(open["status"], "COMPENSATING");
}

/// `status` goes by the last audit, which knew of no settlement.
#[tokio::test]
async fn an_audit_before_the_settlement_is_out_of_date() {
    let (books, _) = stuck().await;
    audit(&books).await;
    assert_eq!(books.admin.get("/overview").await["reconciliation"]["verdict"], UNBALANCED);
    books.admin.post(&format!("{}/resolve", saga()), &why(), 200).await;
    assert_eq!(books.admin.get("/overview").await["reconciliation"], Value::Null, "it is out of date");
    books.played.lock().shop.payments[CANCELLED].amount = Some(euro(1));
    assert_eq!(audit(&books).await["verdict"], UNBALANCED);
}

/// Of the rest nobody knows any more whether it adds up: a quarter of an hour is long for that.
#[tokio::test]
async fn soon_after_a_settlement_the_books_are_looked_at_although_nobody_asks() {
    let (books, _) = stuck().await;
    books.admin.post(&format!("{}/resolve", saga()), &why(), 200).await;
    let until = Instant::now() + Duration::from_secs(60);
    while books.admin.get("/overview").await["reconciliation"] == Value::Null {
        assert!(Instant::now() < until, "nobody looks");
        sleep(Duration::from_millis(50)).await;
    }
}
