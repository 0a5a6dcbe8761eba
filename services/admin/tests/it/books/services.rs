//! Shell: the reconciliation through the real route. The test plays the other services, which answer over HTTP what a
//! consistent shop would, page by page, but for what a test spoils.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use admin::policy::AdminMessage;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use contract::FactType;
use contract::order::{OrderCancelled, OrderCreated, PaymentContext};
use contract::reconciliation::{OrderEntry, PaymentState, Said};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use reqwest::Method;
use saga_core::machinery::{Machinery, StepState};
use saga_core::message::Message as _;
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
    assert_eq!(whats(&report), ["facts were published while the ledgers were read"]);
}

#[tokio::test]
async fn what_is_under_way_may_add_up_yet() {
    let spoils: [fn(&mut Machinery); 4] = [
        |service| service.stats.outbox_pending = 1,
        |service| service.stats.retries = 1,
        |service| service.steps.push(StepState { waiting: Some(1), ..step("some-step", &[], 0) }),
        |service| service.steps.push(StepState { waiting: None, ..step("some-step", &[], 0) }),
    ];
    for spoil in spoils {
        let books = Books::of(quiet_shop()).await;
        spoil(books.played.lock().machinery.get_mut("payment").expect("it is played"));
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
    assert_eq!(whats(&report), ["order: 1 order is neither confirmed nor cancelled"]);
    assert_eq!(report["under_way"][0]["waits_for"], "stock, payment or their deadline");

    let books = Books::of(pending(SignedDuration::from_secs(-31))).await;
    books.played.lock().machinery.get_mut("payment").expect("it is played").stats.tasks = 1;
    let report = books.audit().await;
    assert_eq!(
        (&report["verdict"], &report["summary"]["overdue"]),
        (&json!("UNBALANCED"), &json!(1)),
        "{report}"
    );
    assert_eq!(report["discrepancies"][0]["rule"], "every order ends");
    assert_eq!(whats(&report), ["payment: 1 call open"]);
    assert_eq!(report["discrepancies"][0]["since"], "2027-01-15T07:59:29Z", "{report}");
}

/// A shop is never still while it is open; what is wrong with an order for which nothing is under way is wrong all the
/// same.
#[tokio::test]
async fn what_is_wrong_is_found_while_others_order_once_what_was_under_way_has_arrived() {
    for (name, corrupt) in super::corruptions::of_ended_orders() {
        let books = Books::of(quiet_shop()).await;
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
        let books = Books::of(quiet_shop()).await;
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
    let books = Books::of(quiet_shop()).await;
    books.played.lock().shop.payments[CONFIRMED].reference.clear();
    let late = |come_to| {
        let producers = BTreeMap::from([("order".to_owned(), come_to)]);
        StepState { waiting: Some(3), come_to: producers, ..step("inventory-sale", &[], 0) }
    };
    books.played.lock().machinery.get_mut("order").expect("it is played").newest = Some(7);
    books.played.lock().machinery.get_mut("inventory").expect("it is played").steps = vec![late(6)];
    assert_eq!(books.audit_within(1).await["verdict"], "IN_FLIGHT");
    books.played.lock().machinery.get_mut("inventory").expect("it is played").steps = vec![late(7)];
    assert_eq!(books.audit_within(1).await["verdict"], "UNBALANCED");
}

/// The bank is being asked about this very order.
#[tokio::test]
async fn an_order_whose_money_is_on_its_way_is_not_told_as_wrong_and_another_is() {
    let books = Books::of(quiet_shop()).await;
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
            let books = Books::of(quiet_shop()).await;
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
            let folds = FoldReport { differing, ..FoldReport::default() };
            books.played.lock().folds.insert(service.to_owned(), folds);
            assert_eq!(books.audit_within(3).await["verdict"], "UNBALANCED", "{away}");
        }
    }
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
    assert_eq!(books.admin.get("/overview").await["books"]["verdict"], "UNBALANCED");
    let accepted = books.admin.post("/audit/baselines", &accepts("stock-forecast"), 200).await;
    assert_eq!(accepted["missed"], 4);
    // What the last audit said is so no more.
    assert_eq!(books.admin.get("/overview").await["books"], Value::Null);
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
pub fn quiet_shop() -> Shop {
    let mut shop = Shop::consistent();
    shop.orders.remove(PENDING);
    shop.reservations.remove(PENDING);
    shop.payments.remove(PENDING);
    shop.views.remove(PENDING);
    (shop.stock[2].reserved, shop.stock[2].on_hand) = (0, 10);
    shop
}

/// Admin, and the services that it asks.
pub struct Books {
    pub admin: AdminHarness,
    pub played: Arc<Mutex<Played>>,
    _serving: JoinSet<()>,
}

/// What the played services answer.
pub struct Played {
    pub shop: Shop,
    /// Entries in one page.
    page: usize,
    machinery: BTreeMap<String, Machinery>,
    folds: BTreeMap<String, FoldReport>,
    /// Rows of reservations that cannot be read.
    unreadable: Vec<String>,
    /// The order service says something whenever it is asked how it is.
    publishes_meanwhile: bool,
    /// So many times the payment service has still something to publish when it is asked how it is.
    pub busy_looks: u32,
    /// Others order without end: whenever somebody is asked how it is, more has been said, and more waits.
    has_traffic: bool,
    /// What the shop is like by the time that single orders and products are asked for.
    mended: Option<Shop>,
    /// Who does not answer; the other says whether it refuses, or says nothing at all.
    pub away: Option<(&'static str, bool)>,
}

impl Books {
    /// Everybody agrees, and admin has heard it all.
    pub async fn of(shop: Shop) -> Self {
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
        let played = Played {
            shop,
            page,
            machinery,
            folds,
            unreadable,
            publishes_meanwhile: false,
            busy_looks: 0,
            has_traffic: false,
            mended: None,
            away: None,
        };
        let (played, mut serving) = (Arc::new(Mutex::new(played)), JoinSet::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let base = format!("http://{}", listener.local_addr().expect("an address"));
        let router = axum::Router::new().fallback(answer).with_state(played.clone());
        serving.spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        let flags = PLAYED.map(|name| format!("service.{name}={base}/{name}"));
        let admin = AdminHarness::with(&flags.each_ref().map(String::as_str)).await;
        Self { admin, played, _serving: serving }
    }

    pub async fn audit_within(&self, seconds: u32) -> Value {
        answered(self.admin.request(Method::GET, &format!("/audit?wait={seconds}")), 200).await
    }

    pub async fn audit(&self) -> Value {
        answered(self.admin.request(Method::GET, "/audit"), 200).await
    }

    /// Payment says something, and admin hears it.
    pub async fn says(&self, message: &AdminMessage) {
        self.admin.hears(message).await;
        let subject = message.message_type().subject("payment", "");
        let mut played = self.played.lock();
        let payment = played.machinery.get_mut("payment").expect("it is played");
        *payment.published.entry(subject).or_default() += 1;
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
    let away = played.lock().away.filter(|(away, _)| uri.path().starts_with(&format!("/{away}/")));
    match away {
        Some((_, true)) => std::future::pending().await,
        Some((_, false)) => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
        None => {}
    }
    let mut played = played.lock();
    let path = uri.path().trim_start_matches('/');
    let (service, path) = path.split_once('/').expect("a service");
    let query = uri.query().unwrap_or_default().replace("%2C", ",").replace('+', " ");
    let which = match (query.strip_prefix("after="), query.strip_prefix("only=")) {
        (Some(after), _) => Which::After(after),
        (None, Some(only)) => Which::Only(only.split(',').collect()),
        (None, None) => Which::First,
    };
    if matches!(which, Which::Only(_))
        && let Some(mended) = played.mended.take()
    {
        played.shop = mended;
    }
    let (page, shop) = (played.page, played.shop.clone());
    match (service, path) {
        (_, "internal/machinery") => {
            if played.publishes_meanwhile && service == "order" {
                let order = played.machinery.get_mut("order").expect("it is played");
                *order.published.entry("order.something".to_owned()).or_default() += 1;
            }
            let mut machinery = played.machinery[service].clone();
            if played.has_traffic {
                trade(&mut machinery);
                played.machinery.insert(service.to_owned(), machinery.clone());
            }
            if service == "payment" && played.busy_looks > 0 {
                played.busy_looks -= 1;
                machinery.stats.outbox_pending = 1;
            }
            Json(machinery).into_response()
        }
        (_, "internal/verify") => {
            Json(played.folds.get(service).cloned().unwrap_or_default()).into_response()
        }
        ("order", "internal/ledger") => of(&shop.orders, |entry| entry.order.to_string(), &which, page),
        ("order", "internal/ledger/catalogue") => of(&shop.copies, |entry| entry.sku.clone(), &which, page),
        ("inventory", "internal/ledger/stock") => of(&shop.stock, |entry| entry.sku.clone(), &which, page),
        ("inventory", "internal/ledger/reservations") => {
            let key = |entry: &contract::reconciliation::ReservationEntry| entry.order.to_string();
            let whole = page_of(&shop.reservations, key, &which, page);
            Json(Page { unreadable: played.unreadable.clone(), ..whole }).into_response()
        }
        ("payment", "internal/ledger") => of(&shop.payments, |entry| entry.order.to_string(), &which, page),
        ("bank", "v1/charges") => of(&shop.charges, |entry| entry.reference.clone(), &which, page),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn of<T: Clone + Serialize>(all: &[T], key: fn(&T) -> String, which: &Which<'_>, length: usize) -> Response {
    Json(page_of(all, key, which, length)).into_response()
}

/// Which entries are asked for.
enum Which<'a> {
    First,
    After(&'a str),
    Only(Vec<&'a str>),
}

fn page_of<T: Clone>(all: &[T], key: fn(&T) -> String, which: &Which<'_>, length: usize) -> Page<T> {
    let (after, length) = match which {
        Which::First => (None, length),
        Which::After(after) => (Some(*after), length),
        Which::Only(ids) => {
            let of = |id: &str| all.iter().filter(|entry| key(entry) == id).cloned().collect::<Vec<_>>();
            let entries = ids.iter().flat_map(|id| of(id)).collect();
            return Page { entries, next: None, unreadable: vec![] };
        }
    };
    let mut rest = all.iter().filter(|entry| after.is_none_or(|after| key(entry).as_str() > after));
    let entries: Vec<T> = rest.by_ref().take(length).cloned().collect();
    let next = rest.next().and_then(|_| entries.last()).map(key);
    Page { entries, next, unreadable: vec![] }
}

/// One more fact is said, and handled; there is always one that is not.
fn trade(machinery: &mut Machinery) {
    let newest = machinery.newest.unwrap_or_default() + 1;
    machinery.newest = Some(newest);
    machinery.at += SignedDuration::from_millis(20);
    machinery.stats.outbox_pending = 1;
    machinery.stats.outbox_oldest = Some(machinery.at);
    let others = ["order", "inventory", "payment"].map(|producer| (producer.to_owned(), newest));
    let busy = StepState { waiting: Some(1), come_to: others.into(), ..step("some-step", &[], 0) };
    machinery.steps.retain(|step| step.step != busy.step);
    machinery.steps.push(busy);
}

fn whats(report: &Value) -> Vec<&str> {
    report["under_way"].as_array().expect("a list").iter().filter_map(|one| one["what"].as_str()).collect()
}

fn quiet(service: &str) -> Machinery {
    Machinery {
        service: service.to_owned(),
        instance: service.to_owned(),
        at: NOON,
        stats: saga_core::machinery::Stats::default(),
        calls_open: 0,
        published: BTreeMap::new(),
        newest: None,
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
        come_to: BTreeMap::new(),
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
        FactType::DeadlineExtensionRequested | FactType::SettlementRequested => "admin",
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
