//! Shell: the reconciliation through the real route, against services that are played.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::reconciliation::PaymentState;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use saga_core::service_stats::{ServiceStats, StepStats};
use saga_engine::host::queries::Folds;
use saga_engine::store::VerificationReport;
use saga_engine::testing::NOON;
use serde_json::{Value, json};

use super::played::{Played, ReconciliationState, quiet_shop, step};
use super::shop::{CONFIRMED, KINDNESS, PENDING, Shop, euro, line};
use crate::harness::answered;

#[tokio::test]
async fn what_agrees_is_balanced_and_nothing_is_under_way() {
    let books = ReconciliationState::of(quiet_shop()).await;
    let report = books.audit().await;
    assert_eq!((&report["verdict"], &report["balanced"]), (&json!("BALANCED"), &json!(true)), "{report}");
    assert_eq!((&report["in_flight"], &report["summary"]["orders"]), (&json!([]), &json!(6)));
}

/// A defect that was planted: books that stop after the first page.
#[tokio::test]
async fn every_page_of_every_ledger_is_read() {
    let last = KINDNESS - 1;
    type Spoil = fn(&mut Shop, usize);
    let spoils: [(&str, Spoil); 6] = [
        ("orders", |shop, last| shop.orders[last].customer = "eve".to_owned()),
        ("reservations", |shop, last| shop.reservations[last].lines[0].quantity = 9),
        ("payments", |shop, last| shop.payments[last].customer = Some("eve".to_owned())),
        ("charges", |shop, _| shop.charges.last_mut().expect("a charge").amount = Some(euro(1))),
        ("stock", |shop, _| shop.stock.last_mut().expect("a product").supplied += 1),
        ("copies", |shop, _| shop.copies.last_mut().expect("a copy").revision += 1),
    ];
    for (what, spoil) in spoils {
        let books = ReconciliationState::of(quiet_shop()).await;
        books.played.lock().page = 1;
        assert_eq!(books.audit().await["verdict"], "BALANCED", "{what}, unspoilt");
        spoil(&mut books.played.lock().shop, last);
        assert_eq!(books.audit().await["verdict"], "UNBALANCED", "{what}");
    }
}

/// A defect that was planted: the guard for facts that move meanwhile.
#[tokio::test]
async fn ledgers_that_were_read_while_facts_were_published_prove_nothing() {
    let books = ReconciliationState::of(quiet_shop()).await;
    books.played.lock().publishes_meanwhile = true;
    let report = books.audit().await;
    assert_eq!(report["verdict"], "IN_FLIGHT", "{report}");
    assert_eq!(whats(&report), ["facts were published during the reading"]);
}

#[tokio::test]
async fn what_is_under_way_may_add_up_yet() {
    let spoils: [fn(&mut ServiceStats); 4] = [
        |service| service.stats.outbox_pending = 1,
        |service| service.stats.retries = 1,
        |service| service.steps.push(StepStats { waiting: Some(1), ..step("some-step", &[], 0) }),
        |service| service.steps.push(StepStats { waiting: None, ..step("some-step", &[], 0) }),
    ];
    for spoil in spoils {
        let books = ReconciliationState::of(quiet_shop()).await;
        spoil(books.played.lock().service_stats.get_mut("payment").expect("it is played"));
        books.played.lock().shop.payments[CONFIRMED].reference.clear();
        let report = books.audit_within(1).await;
        assert_eq!(
            (&report["verdict"], &report["suspected_count"]),
            (&json!("IN_FLIGHT"), &json!(1)),
            "{report}"
        );
    }
}

#[tokio::test]
async fn quiet_is_waited_for_as_long_as_one_may_wait() {
    let books = ReconciliationState::of(quiet_shop()).await;
    books.played.lock().busy_looks = 3;
    let waited = answered(books.admin.request(Method::GET, "/reconciliation?wait=30"), 200).await;
    assert_eq!(waited["verdict"], "BALANCED", "{waited}");
    books.played.lock().busy_looks = 3;
    assert_eq!(books.audit().await["verdict"], "IN_FLIGHT");
}

/// A defect: whatever was found, an order that never ended kept the verdict at "in flight" for ever.
#[tokio::test]
async fn an_order_is_in_flight_until_its_deadline_and_wrong_afterwards() {
    let pending = |deadline: SignedDuration| {
        let mut shop = Shop::consistent();
        shop.orders[PENDING].deadline = NOON + deadline;
        shop
    };
    let books = ReconciliationState::of(pending(SignedDuration::from_secs(-29))).await;
    let report = books.audit().await;
    assert_eq!(report["verdict"], "IN_FLIGHT", "{report}");
    assert_eq!(whats(&report), ["order: 1 order is neither confirmed nor cancelled"]);
    assert_eq!(report["in_flight"][0]["waits_for"], "stock, payment or their deadline");

    let books = ReconciliationState::of(pending(SignedDuration::from_secs(-31))).await;
    books.played.lock().service_stats.get_mut("payment").expect("it is played").stats.tasks = 1;
    let report = books.audit().await;
    assert_eq!(
        (&report["verdict"], &report["summary"]["overdue"]),
        (&json!("UNBALANCED"), &json!(1)),
        "{report}"
    );
    assert_eq!(report["discrepancies"][0]["rule"], "every order ends");
    assert_eq!(whats(&report), ["payment: 1 open call"]);
    assert_eq!(report["discrepancies"][0]["since"], "2027-01-15T07:59:29Z", "{report}");
}

/// A shop is never still while it is open; what is wrong with an order for which nothing is under way is wrong all the
/// same.
#[tokio::test]
async fn what_is_wrong_is_found_while_others_order_once_what_was_under_way_has_arrived() {
    for (name, corrupt) in super::corruptions::of_ended_orders() {
        let books = ReconciliationState::of(quiet_shop()).await;
        corrupt(&mut books.played.lock().shop);
        books.played.lock().has_traffic = true;
        let report = books.audit().await;
        assert_eq!(report["verdict"], "UNBALANCED", "{name}: {report}");
        assert!(report["discrepancies"][0]["advice"].as_str().is_some_and(|advice| !advice.is_empty()));
    }
}

/// Of two ledgers that were not read at the same moment, one is older: looked at again, they agree.
#[tokio::test]
async fn what_only_looked_wrong_is_said_of_nobody() {
    for (name, corrupt) in super::corruptions::of_ended_orders() {
        let books = ReconciliationState::of(quiet_shop()).await;
        let right = books.played.lock().shop.clone();
        corrupt(&mut books.played.lock().shop);
        // What one row says of itself is no matter of when it is read, nor what two of one service say.
        if name.starts_with("reservation") || books.played.lock().shop.reconciled(2_000).1.certain > 0 {
            continue;
        }
        books.played.lock().has_traffic = true;
        books.played.lock().mended = Some(right);
        let report = books.audit().await;
        assert_eq!(report["verdict"], "IN_FLIGHT", "{name}: {report}");
        assert_eq!(report["discrepancies"], json!([]), "{name}");
    }
}

/// A message that one of its services has yet to hear mends it, however long that takes.
#[tokio::test]
async fn what_something_is_under_way_for_is_not_told_as_wrong() {
    let books = ReconciliationState::of(quiet_shop()).await;
    books.played.lock().shop.payments[CONFIRMED].reference.clear();
    let late = |acknowledged| {
        let producers = BTreeMap::from([("order".to_owned(), acknowledged)]);
        StepStats { waiting: Some(3), acknowledged: producers, ..step("inventory-sale", &[], 0) }
    };
    books.played.lock().service_stats.get_mut("order").expect("it is played").newest = Some(7);
    books.played.lock().service_stats.get_mut("inventory").expect("it is played").steps = vec![late(6)];
    assert_eq!(books.audit_within(1).await["verdict"], "IN_FLIGHT");
    books.played.lock().service_stats.get_mut("inventory").expect("it is played").steps = vec![late(7)];
    assert_eq!(books.audit_within(1).await["verdict"], "UNBALANCED");
}

/// The bank is being asked about this very order.
#[tokio::test]
async fn an_order_whose_money_is_on_its_way_is_not_told_as_wrong_and_another_is() {
    let books = ReconciliationState::of(quiet_shop()).await;
    books.set_tasks(1);
    books.played.lock().shop.payments[CONFIRMED].state = PaymentState::Open;
    assert_eq!(books.audit_within(1).await["verdict"], "IN_FLIGHT");
    books.played.lock().shop.payments[CONFIRMED].state = PaymentState::Captured;
    books.played.lock().shop.payments[CONFIRMED].reference.clear();
    assert_eq!(books.audit_within(1).await["verdict"], "UNBALANCED");
}

/// A defect: one service that was away made an error of the whole answer.
#[tokio::test]
async fn whoever_is_away_is_named_in_time_and_what_is_certain_is_told_all_the_same() {
    for is_silent in [false, true] {
        for away in ["order", "bank"] {
            let books = ReconciliationState::of(quiet_shop()).await;
            books.played.lock().away = Some((away, is_silent));
            let began = std::time::Instant::now();
            let report = books.audit_within(3).await;
            assert!(began.elapsed() < Duration::from_secs(6), "{away}: {:?}", began.elapsed());
            assert_eq!(report["verdict"], "IN_FLIGHT", "{report}");
            assert_eq!(report["headline"], "it cannot be told yet whether the books balance");
            assert_eq!(report["unanswered"][0]["service"], away, "{report}");
            assert_eq!((&report["discrepancies"], &report["suspected"]), (&json!([]), &json!([])), "{away}");
            let service = if away == "order" { "payment" } else { "order" };
            let differing = vec![format!("{service}/7")];
            let folds = VerificationReport { differing, ..VerificationReport::default() };
            books.played.lock().folds.insert(service.to_owned(), folds);
            assert_eq!(books.audit_within(3).await["verdict"], "UNBALANCED", "{away}");
        }
    }
}

/// Rows that were held against their events as the ledger was read are not read once more.
#[tokio::test]
async fn what_the_pages_of_a_ledger_say_of_their_rows_counts_and_is_not_asked_again() {
    let books = ReconciliationState::of(Shop::consistent()).await;
    let rows_of_the_pages = books.played.lock().shop.orders.len() as u64 * 3;
    let folds = Folds { kind: "order".to_owned(), rows: 3, differing: vec![] };
    (books.played.lock().page, books.played.lock().checked) = (1, Some(folds.clone()));
    let checked = |report: &Value| report["summary"]["rows_checked"].as_u64().expect("a number");
    assert!(checked(&books.audit().await) >= rows_of_the_pages);
    let verified = std::mem::take(&mut books.played.lock().verified);
    assert!(verified.contains(&"order: events=10000&exclude=order".to_owned()), "{verified:?}");
    assert!(verified.contains(&"payment: events=10000".to_owned()), "{verified:?}");

    books.played.lock().checked = Some(Folds { differing: vec!["order/7".to_owned()], ..folds });
    let report = books.audit().await;
    assert_eq!(report["discrepancies"][0]["rule"], "every row = fold of its events", "{report}");
}

fn assert_one_is_wrong(report: &Value) {
    let told = (&report["verdict"], &report["discrepancy_count"]);
    assert_eq!(told, (&json!("UNBALANCED"), &json!(1)), "{report}");
}

/// What a page has found is found, also where its service says nothing of its other rows afterwards.
#[tokio::test]
async fn a_row_that_a_page_found_to_be_no_fold_is_told_though_the_others_are_not_checked() {
    let books = ReconciliationState::of(quiet_shop()).await;
    let differing = vec!["order/7".to_owned()];
    books.played.lock().checked = Some(Folds { kind: "order".to_owned(), rows: 3, differing });
    assert_eq!(books.audit_within(1).await["verdict"], "UNBALANCED");
    books.played.lock().unverified = Some("order");
    let report = books.audit_within(1).await;
    assert_eq!(report["unanswered"][0]["service"], "order", "{report}");
    assert_one_is_wrong(&report);
}

/// What a page has found is found, also where a later page does not say anything of its rows, and its service nothing of
/// them afterwards.
#[tokio::test]
async fn a_row_that_a_page_found_to_be_no_fold_is_told_though_a_later_page_does_not_say() {
    let books = ReconciliationState::of(quiet_shop()).await;
    let differing = vec!["order/7".to_owned()];
    {
        let mut played = books.played.lock();
        (played.page, played.checked_pages) = (1, Some(1));
        played.checked = Some(Folds { kind: "order".to_owned(), rows: 1, differing });
        played.unverified = Some("order");
    }
    let report = books.audit_within(1).await;
    assert_eq!(report["unanswered"][0]["service"], "order", "{report}");
    assert_one_is_wrong(&report);
}

/// A page that does not say, wherever it stands, and whatever the others found: all rows are asked for.
#[tokio::test]
async fn a_page_that_does_not_say_makes_all_rows_be_asked_for() {
    for pages in [0, 1, 2, 5] {
        let books = ReconciliationState::of(quiet_shop()).await;
        {
            let mut played = books.played.lock();
            (played.page, played.checked_pages) = (1, Some(pages));
            played.checked = Some(Folds { kind: "order".to_owned(), rows: 1, differing: vec![] });
            let differing = vec!["order/9".to_owned()];
            played.folds.insert(
                "order".to_owned(),
                VerificationReport { differing, ..VerificationReport::default() },
            );
        }
        let report = books.audit().await;
        assert_one_is_wrong(&report);
        let verified = std::mem::take(&mut books.played.lock().verified);
        assert!(verified.contains(&"order: events=10000".to_owned()), "{pages}: {verified:?}");
    }
}

/// Reading may take long; waiting for what does not come to rest may not.
#[tokio::test]
async fn a_whole_audit_waits_no_longer_than_it_was_asked_to_for_what_never_drains() {
    let books = ReconciliationState::of(quiet_shop()).await;
    books.played.lock().service_stats.get_mut("payment").expect("it is played").stats.outbox_pending = 1;
    books.played.lock().shop.payments[CONFIRMED].reference.clear();
    for which in ["", "&full=true"] {
        let asked =
            answered(books.admin.request(Method::GET, &format!("/reconciliation?wait=1{which}")), 200);
        let report = tokio::time::timeout(Duration::from_secs(15), asked).await.expect("an answer in time");
        assert_eq!(report["verdict"], "IN_FLIGHT", "{which}: {report}");
    }
}

/// What no message and no call can mend is wrong in a busy system too.
#[tokio::test]
async fn rows_that_are_no_fold_or_cannot_be_read_are_wrong_whatever_is_under_way() {
    type Spoil = fn(&mut Played);
    let spoils: [(&str, Spoil); 4] = [
        ("every row = fold of its events", |played| {
            let differing = vec!["order/7".to_owned()];
            played.folds.insert(
                "order".to_owned(),
                VerificationReport { differing, ..VerificationReport::default() },
            );
        }),
        ("every row can be read", |played| played.unreadable = vec!["reservation/7".to_owned()]),
        ("every fact is published", |played| {
            played.service_stats.get_mut("order").expect("it is played").stats.outbox_failed = 1;
        }),
        ("total = sum of the lines", |played| played.shop.orders[CONFIRMED].lines.push(line("tea", 1, 300))),
    ];
    for (rule, spoil) in spoils {
        let books = ReconciliationState::of(Shop::consistent()).await;
        spoil(&mut books.played.lock());
        let report = books.audit().await;
        assert_eq!(report["verdict"], "UNBALANCED", "{report}");
        let rules = report["discrepancies"].as_array().expect("a list").iter();
        assert!(rules.map(|found| &found["rule"]).any(|found| found == rule), "{report}");
    }
}

/// A defect: a step that was not there from the first kept the books unbalanced for ever.
#[tokio::test]
async fn what_a_step_missed_for_ever_is_accepted_by_name_once_nothing_is_under_way() {
    let books = ReconciliationState::of(quiet_shop()).await;
    let published = 6;
    let new = step("stock-forecast", &["order.created"], published - 4);
    books.played.lock().service_stats.get_mut("inventory").expect("it is played").steps.push(new);
    let report = books.audit().await;
    assert_eq!(report["verdict"], "UNBALANCED", "{report}");
    assert_eq!(report["discrepancies"][0]["detail"], "6 published; 2 processed + 0 retrying + 0 dead");

    let accepts = |step: &str| json!({ "step": step, "reason": "subscribed today" });
    books.admin.post("/reconciliation/baselines", &accepts("no-such-step"), 422).await;
    books.admin.post("/reconciliation/baselines", &json!({ "step": "stock-forecast" }), 422).await;
    books.set_tasks(1);
    books.admin.post("/reconciliation/baselines", &accepts("stock-forecast"), 409).await;
    books.set_tasks(0);
    assert_eq!(books.admin.get("/overview").await["reconciliation"]["verdict"], "UNBALANCED");
    let accepted = books.admin.post("/reconciliation/baselines", &accepts("stock-forecast"), 200).await;
    assert_eq!(accepted["missed"], 4);
    // What the last audit said is so no more.
    assert_eq!(books.admin.get("/overview").await["reconciliation"], Value::Null);
    let report = books.audit().await;
    assert_eq!((&report["verdict"], &report["baselines"]["stock-forecast"]), (&json!("BALANCED"), &accepted));
    let log = books.admin.get("/audit?action=reconciliation.accept_baseline").await;
    let entry = &log["entries"][0];
    assert_eq!((&entry["operator"], &entry["target"]), (&json!("ada"), &json!("stock-forecast")), "{log}");

    // What is lost from then on is found.
    books.change_step(|step| step.handled -= 1);
    let report = books.audit().await;
    assert_eq!(report["verdict"], "UNBALANCED");
    let wanted = "6 published, 4 of them accepted as missed; 1 processed + 0 retrying + 0 dead";
    assert_eq!(report["discrepancies"][0]["detail"], wanted);
}

/// They are looked for two hundred entries of the log at a time.
#[tokio::test]
async fn however_often_something_was_accepted_the_last_time_counts() {
    let books = ReconciliationState::of(quiet_shop()).await;
    let new = step("stock-forecast", &["order.created"], 2);
    books.played.lock().service_stats.get_mut("inventory").expect("it is played").steps.push(new);
    let accepts = json!({ "step": "stock-forecast", "reason": "subscribed today" });
    for _ in 0..200 {
        books.admin.post("/reconciliation/baselines", &accepts, 200).await;
    }
    books.change_step(|step| step.handled -= 1);
    assert_eq!(books.audit().await["verdict"], "UNBALANCED");
    books.admin.post("/reconciliation/baselines", &accepts, 200).await;
    assert_eq!(books.audit().await["verdict"], "BALANCED");
}

/// A defect: the same of an admin whose database is new, which knows nothing of old sagas.
#[tokio::test]
async fn a_rebuilt_admin_is_accepted_with_what_it_never_heard_and_hears_the_rest() {
    let long_ago = Timestamp::UNIX_EPOCH;
    let books = ReconciliationState::deaf(quiet_shop(), long_ago).await;
    assert_eq!(books.audit().await["verdict"], "UNBALANCED");
    let accepts = json!({ "step": "admin-saga-view", "reason": "its disk was lost" });
    books.admin.post("/reconciliation/baselines", &accepts, 200).await;
    let report = books.audit().await;
    assert_eq!(report["verdict"], "BALANCED", "{report}");

    // What is said afterwards must reach it.
    let later =
        report["baselines"]["admin-saga-view"]["at"].as_str().expect("a time").parse().expect("a time");
    books.played.lock().shop.orders[CONFIRMED].published[1].at = later;
    assert_eq!(books.audit().await["discrepancies"][0]["rule"], "saga view = published facts");
}

fn whats(report: &Value) -> Vec<&str> {
    report["in_flight"].as_array().expect("a list").iter().filter_map(|one| one["what"].as_str()).collect()
}
