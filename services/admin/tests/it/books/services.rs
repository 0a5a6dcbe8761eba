//! Shell: the reconciliation through the real route. The test plays the other services, which answer over HTTP what a
//! consistent shop would, page by page, but for what a test spoils.

use std::collections::BTreeMap;
use std::sync::Arc;

use admin::policy::AdminMessage;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use contract::FactType;
use contract::order::{OrderCancelled, OrderCreated, PaymentContext};
use contract::reconciliation::{OrderEntry, Said};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use reqwest::Method;
use saga_core::machinery::{Machinery, StepState};
use saga_engine::host::reading::Page;
use saga_engine::store::FoldReport;
use saga_engine::testing::NOON;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::shop::{CONFIRMED, KINDNESS, PENDING, Shop, euro, line};
use crate::given::fact;
use crate::harness::{AdminHarness, answered};

/// The services that the test plays.
const PLAYED: [&str; 4] = ["order", "inventory", "payment", "bank"];

#[tokio::test]
async fn what_agrees_is_balanced_and_nothing_is_under_way() {
    let books = Books::of(quiet_shop()).await;
    let report = books.audit().await;
    assert_eq!((&report["verdict"], &report["balanced"]), (&json!("BALANCED"), &json!(true)), "{report}");
    assert_eq!((&report["under_way"], &report["summary"]["orders"]), (&json!([]), &json!(6)));
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
        let books = Books::of(quiet_shop()).await;
        books.played.lock().page = 1;
        assert_eq!(books.audit().await["verdict"], "BALANCED", "{what}, unspoilt");
        spoil(&mut books.played.lock().shop, last);
        assert_eq!(books.audit().await["verdict"], "UNBALANCED", "{what}");
    }
}

/// A defect that was planted: the guard for facts that move meanwhile.
#[tokio::test]
async fn ledgers_that_were_read_while_facts_were_published_prove_nothing() {
    let books = Books::of(quiet_shop()).await;
    books.played.lock().publishes_meanwhile = true;
    let report = books.audit().await;
    assert_eq!(report["verdict"], "IN_FLIGHT", "{report}");
    assert_eq!(report["under_way"], json!(["facts were published while the ledgers were read"]));
}

#[tokio::test]
async fn what_is_under_way_may_add_up_yet() {
    let spoils: [fn(&mut Machinery); 5] = [
        |service| service.stats.outbox_pending = 1,
        |service| service.stats.retries = 1,
        |service| service.stats.tasks = 1,
        |service| service.steps.push(StepState { waiting: Some(1), ..step("some-step", &[], 0) }),
        |service| service.steps.push(StepState { waiting: None, ..step("some-step", &[], 0) }),
    ];
    for spoil in spoils {
        let books = Books::of(quiet_shop()).await;
        spoil(books.played.lock().machinery.get_mut("payment").expect("it is played"));
        books.played.lock().shop.payments[CONFIRMED].reference.clear();
        let report = books.audit().await;
        assert_eq!(
            (&report["verdict"], &report["discrepancy_count"]),
            (&json!("IN_FLIGHT"), &json!(1)),
            "{report}"
        );
    }
}

#[tokio::test]
async fn quiet_is_waited_for_as_long_as_one_may_wait() {
    let books = Books::of(quiet_shop()).await;
    books.played.lock().busy_looks = 3;
    let waited = answered(books.admin.request(Method::GET, "/audit?wait=30"), 200).await;
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
    let books = Books::of(pending(SignedDuration::from_secs(-29))).await;
    let report = books.audit().await;
    assert_eq!(report["verdict"], "IN_FLIGHT", "{report}");
    assert_eq!(report["under_way"], json!(["order: 1 orders wait for stock, payment or their deadline"]));

    let books = Books::of(pending(SignedDuration::from_secs(-31))).await;
    books.played.lock().machinery.get_mut("payment").expect("it is played").stats.tasks = 1;
    let report = books.audit().await;
    assert_eq!(
        (&report["verdict"], &report["summary"]["overdue"]),
        (&json!("UNBALANCED"), &json!(1)),
        "{report}"
    );
    assert_eq!(report["discrepancies"][0]["rule"], "every order ends");
    assert_eq!(report["under_way"], json!(["payment: 0 to publish, 0 to try again, 1 calls open"]));
}

/// What no message and no call can mend is wrong in a busy system too.
#[tokio::test]
async fn rows_that_are_no_fold_or_cannot_be_read_are_wrong_whatever_is_under_way() {
    type Spoil = fn(&mut Played);
    let spoils: [(&str, Spoil); 4] = [
        ("every row = fold of its events", |played| {
            let differing = vec!["order/7".to_owned()];
            played.folds.insert("order".to_owned(), FoldReport { differing, ..FoldReport::default() });
        }),
        ("every row can be read", |played| played.unreadable = vec!["reservation/7".to_owned()]),
        ("every fact is published", |played| {
            played.machinery.get_mut("order").expect("it is played").stats.outbox_failed = 1;
        }),
        ("total = sum of the lines", |played| played.shop.orders[CONFIRMED].lines.push(line("tea", 1, 300))),
    ];
    for (rule, spoil) in spoils {
        let books = Books::of(Shop::consistent()).await;
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
    let books = Books::of(quiet_shop()).await;
    let published = 6;
    let new = step("stock-forecast", &["order.created"], published - 4);
    books.played.lock().machinery.get_mut("inventory").expect("it is played").steps.push(new);
    let report = books.audit().await;
    assert_eq!(report["verdict"], "UNBALANCED", "{report}");
    assert_eq!(report["discrepancies"][0]["detail"], "6 published; 2 handled + 0 to be tried again + 0 dead");

    let accepts = |step: &str| json!({ "step": step, "reason": "subscribed today" });
    books.admin.post("/audit/baselines", &accepts("no-such-step"), 422).await;
    books.admin.post("/audit/baselines", &json!({ "step": "stock-forecast" }), 422).await;
    books.set_tasks(1);
    books.admin.post("/audit/baselines", &accepts("stock-forecast"), 409).await;
    books.set_tasks(0);
    let accepted = books.admin.post("/audit/baselines", &accepts("stock-forecast"), 200).await;
    assert_eq!(accepted["missed"], 4);
    let report = books.audit().await;
    assert_eq!((&report["verdict"], &report["baselines"]["stock-forecast"]), (&json!("BALANCED"), &accepted));
    let log = books.admin.get("/audit/log?action=audit.baseline").await;
    let entry = &log["entries"][0];
    assert_eq!((&entry["operator"], &entry["target"]), (&json!("ada"), &json!("stock-forecast")), "{log}");

    // What is lost from then on is found.
    books.change_step(|step| step.handled -= 1);
    let report = books.audit().await;
    assert_eq!(report["verdict"], "UNBALANCED");
    let wanted = "6 published, 4 of them accepted as missed; 1 handled + 0 to be tried again + 0 dead";
    assert_eq!(report["discrepancies"][0]["detail"], wanted);
}

/// They are looked for two hundred entries of the log at a time.
#[tokio::test]
async fn however_often_something_was_accepted_the_last_time_counts() {
    let books = Books::of(quiet_shop()).await;
    let new = step("stock-forecast", &["order.created"], 2);
    books.played.lock().machinery.get_mut("inventory").expect("it is played").steps.push(new);
    let accepts = json!({ "step": "stock-forecast", "reason": "subscribed today" });
    for _ in 0..200 {
        books.admin.post("/audit/baselines", &accepts, 200).await;
    }
    books.change_step(|step| step.handled -= 1);
    assert_eq!(books.audit().await["verdict"], "UNBALANCED");
    books.admin.post("/audit/baselines", &accepts, 200).await;
    assert_eq!(books.audit().await["verdict"], "BALANCED");
}

/// A defect: the same of an admin whose database is new, which knows nothing of old sagas.
#[tokio::test]
async fn a_rebuilt_admin_is_accepted_with_what_it_never_heard_and_hears_the_rest() {
    let long_ago = Timestamp::UNIX_EPOCH;
    let books = Books::deaf(quiet_shop(), long_ago).await;
    assert_eq!(books.audit().await["verdict"], "UNBALANCED");
    let accepts = json!({ "step": "admin-saga-view", "reason": "its disk was lost" });
    books.admin.post("/audit/baselines", &accepts, 200).await;
    let report = books.audit().await;
    assert_eq!(report["verdict"], "BALANCED", "{report}");

    // What is said afterwards must reach it.
    let later =
        report["baselines"]["admin-saga-view"]["at"].as_str().expect("a time").parse().expect("a time");
    books.played.lock().shop.orders[CONFIRMED].said[1].at = later;
    assert_eq!(books.audit().await["discrepancies"][0]["rule"], "saga view = what was said");
}

/// A shop in which every order has ended.
fn quiet_shop() -> Shop {
    let mut shop = Shop::consistent();
    shop.orders.remove(PENDING);
    shop.reservations.remove(PENDING);
    shop.payments.remove(PENDING);
    shop.views.remove(PENDING);
    (shop.stock[2].reserved, shop.stock[2].on_hand) = (0, 10);
    shop
}

/// Admin, and the services that it asks.
struct Books {
    admin: AdminHarness,
    played: Arc<Mutex<Played>>,
    _serving: JoinSet<()>,
}

/// What the played services answer.
struct Played {
    shop: Shop,
    /// Entries in one page.
    page: usize,
    machinery: BTreeMap<String, Machinery>,
    folds: BTreeMap<String, FoldReport>,
    /// Rows of reservations that cannot be read.
    unreadable: Vec<String>,
    /// The order service says something whenever it is asked how it is.
    publishes_meanwhile: bool,
    /// So many times the payment service has still something to publish when it is asked how it is.
    busy_looks: u32,
}

impl Books {
    /// Everybody agrees, and admin has heard it all.
    async fn of(shop: Shop) -> Self {
        let books = Self::deaf(shop, NOON).await;
        let shop = books.played.lock().shop.clone();
        for (entry, said) in shop.orders.iter().zip(said(&shop)) {
            for said in said {
                books.admin.hears(&message(entry, said.fact)).await;
            }
        }
        books
    }

    /// The same, all said at this time, and admin has heard nothing.
    async fn deaf(mut shop: Shop, at: Timestamp) -> Self {
        let orders = shop.orders.iter_mut().map(|entry| &mut entry.said);
        let reservations = shop.reservations.iter_mut().map(|entry| &mut entry.said);
        let payments = shop.payments.iter_mut().map(|entry| &mut entry.said);
        orders.chain(reservations).chain(payments).flatten().for_each(|said| said.at = at);
        let mut machinery: BTreeMap<_, _> = PLAYED.map(|name| (name.to_owned(), quiet(name))).into();
        for said in said(&shop).concat() {
            let subject = subject(said.fact);
            let producer = subject.split('.').next().expect("a producer");
            *machinery.get_mut(producer).expect("it is played").published.entry(subject).or_default() += 1;
        }
        let (page, folds, unreadable) = (2_000, BTreeMap::new(), vec![]);
        let played =
            Played { shop, page, machinery, folds, unreadable, publishes_meanwhile: false, busy_looks: 0 };
        let (played, mut serving) = (Arc::new(Mutex::new(played)), JoinSet::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let base = format!("http://{}", listener.local_addr().expect("an address"));
        let router = axum::Router::new().fallback(answer).with_state(played.clone());
        serving.spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        let flags = PLAYED.map(|name| format!("service.{name}={base}/{name}"));
        let admin = AdminHarness::with(&flags.each_ref().map(String::as_str)).await;
        Self { admin, played, _serving: serving }
    }

    async fn audit(&self) -> Value {
        answered(self.admin.request(Method::GET, "/audit"), 200).await
    }

    fn set_tasks(&self, tasks: u64) {
        self.played.lock().machinery.get_mut("payment").expect("it is played").stats.tasks = tasks;
    }

    /// The last step of inventory.
    fn change_step(&self, change: fn(&mut StepState)) {
        let mut played = self.played.lock();
        let inventory = played.machinery.get_mut("inventory").expect("it is played");
        change(inventory.steps.last_mut().expect("a step"));
    }
}

async fn answer(State(played): State<Arc<Mutex<Played>>>, uri: Uri) -> Response {
    let mut played = played.lock();
    let path = uri.path().trim_start_matches('/');
    let (service, path) = path.split_once('/').expect("a service");
    let after = uri.query().and_then(|query| query.strip_prefix("after="));
    let (page, shop) = (played.page, played.shop.clone());
    match (service, path) {
        (_, "internal/machinery") => {
            if played.publishes_meanwhile && service == "order" {
                let order = played.machinery.get_mut("order").expect("it is played");
                *order.published.entry("order.something".to_owned()).or_default() += 1;
            }
            let mut machinery = played.machinery[service].clone();
            if service == "payment" && played.busy_looks > 0 {
                played.busy_looks -= 1;
                machinery.stats.outbox_pending = 1;
            }
            Json(machinery).into_response()
        }
        (_, "internal/verify") => {
            Json(played.folds.get(service).cloned().unwrap_or_default()).into_response()
        }
        ("order", "internal/ledger") => of(&shop.orders, |entry| entry.order.to_string(), after, page),
        ("order", "internal/ledger/catalogue") => of(&shop.copies, |entry| entry.sku.clone(), after, page),
        ("inventory", "internal/ledger/stock") => of(&shop.stock, |entry| entry.sku.clone(), after, page),
        ("inventory", "internal/ledger/reservations") => {
            let key = |entry: &contract::reconciliation::ReservationEntry| entry.order.to_string();
            let whole = page_of(&shop.reservations, key, after, page);
            Json(Page { unreadable: played.unreadable.clone(), ..whole }).into_response()
        }
        ("payment", "internal/ledger") => of(&shop.payments, |entry| entry.order.to_string(), after, page),
        ("bank", "v1/charges") => of(&shop.charges, |entry| entry.reference.clone(), after, page),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn of<T: Clone + Serialize>(
    all: &[T],
    key: fn(&T) -> String,
    after: Option<&str>,
    length: usize,
) -> Response {
    Json(page_of(all, key, after, length)).into_response()
}

fn page_of<T: Clone>(all: &[T], key: fn(&T) -> String, after: Option<&str>, length: usize) -> Page<T> {
    let mut rest = all.iter().filter(|entry| after.is_none_or(|after| key(entry).as_str() > after));
    let entries: Vec<T> = rest.by_ref().take(length).cloned().collect();
    let next = rest.next().and_then(|_| entries.last()).map(key);
    Page { entries, next, unreadable: vec![] }
}

fn quiet(service: &str) -> Machinery {
    Machinery {
        service: service.to_owned(),
        instance: service.to_owned(),
        at: NOON,
        stats: saga_core::machinery::Stats::default(),
        calls_open: 0,
        published: BTreeMap::new(),
        steps: vec![],
    }
}

fn step(name: &str, subjects: &[&str], handled: u64) -> StepState {
    StepState {
        step: name.to_owned(),
        subjects: subjects.iter().map(|subject| (*subject).to_owned()).collect(),
        handled,
        retrying: 0,
        dead: 0,
        waiting: Some(0),
    }
}

/// What was said of each order, by everybody.
fn said(shop: &Shop) -> Vec<Vec<Said>> {
    let of = |index: usize| {
        let (order, reservation) = (&shop.orders[index].said, &shop.reservations[index].said);
        [order.clone(), reservation.clone(), shop.payments[index].said.clone()].concat()
    };
    (0..shop.orders.len()).map(of).collect()
}

fn subject(fact_type: FactType) -> String {
    let producer = match fact_type {
        FactType::OrderCreated
        | FactType::OrderConfirmed
        | FactType::OrderCancelled
        | FactType::DeadlineExtended => "order",
        FactType::DeadlineExtensionRequested => "admin",
        FactType::StockReserved
        | FactType::StockReservationFailed
        | FactType::StockReleased
        | FactType::StockReplenished
        | FactType::ProductListed
        | FactType::PriceChanged => "inventory",
        FactType::PaymentProcessed
        | FactType::PaymentFailed
        | FactType::PaymentRefunded
        | FactType::PaymentVoided => "payment",
    };
    fact_type.message_type().subject(producer, "")
}

/// A fact about an order, as its service would say it.
fn message(entry: &OrderEntry, fact_type: FactType) -> AdminMessage {
    let OrderEntry { order, customer, lines, total, deadline, .. } = entry.clone();
    let said = fact(fact_type.name(), order);
    match said {
        AdminMessage::Fact(contract::Fact::OrderCreated(_)) => {
            let payment = PaymentContext { customer, total, token: "tok_ok".to_owned() };
            AdminMessage::Fact(OrderCreated { order, lines, payment, deadline }.into())
        }
        AdminMessage::Fact(contract::Fact::OrderCancelled(cancelled)) => {
            let reason = entry.cancelled_because.expect("it is cancelled");
            AdminMessage::Fact(OrderCancelled { reason, ..cancelled }.into())
        }
        AdminMessage::Fact(_) | AdminMessage::DeadLetter(_) => said,
    }
}
