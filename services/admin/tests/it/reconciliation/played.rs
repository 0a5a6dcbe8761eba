//! Shell: fake services for the reconciliation: they serve the ledgers of a shop over HTTP, page by page, with the faults
//! that a test sets.

use std::collections::BTreeMap;
use std::sync::Arc;

use admin::service::AdminMessage;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use contract::order::{OrderCancelled, OrderCreated, PaymentContext};
use contract::reconciliation::{OrderEntry, PublishedFact};
use contract::{FactType, payment_id};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use reqwest::Method;
use saga_core::message::Message as _;
use saga_core::service_stats::{ServiceStats, StepStats};
use saga_engine::host::queries::{Encoding, Folds, Page};
use saga_engine::store::VerificationReport;
use saga_engine::testing::NOON;
use serde::Serialize;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::shop::{PENDING, Shop};
use crate::given::fact;
use crate::harness::{AdminHarness, answered, others};

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

/// Admin with fake services.
pub struct ReconciliationHarness {
    pub admin: AdminHarness,
    pub played: Arc<Mutex<Played>>,
    _serving: JoinSet<()>,
}

/// State of the fake services.
pub struct Played {
    pub shop: Shop,
    /// Entries in one page.
    pub page: usize,
    pub service_stats: BTreeMap<String, ServiceStats>,
    pub folds: BTreeMap<String, VerificationReport>,
    /// Verification result of each page of orders.
    pub checked: Option<Folds>,
    /// Number of pages with that result; all without it.
    pub checked_pages: Option<usize>,
    /// Separate verifications, with the service.
    pub verified: Vec<String>,
    /// Service that rejects separate verifications.
    pub unverified: Option<&'static str>,
    /// Unreadable reservations.
    pub unreadable: Vec<String>,
    /// The order service publishes a fact before each of its statistics.
    pub publishes_meanwhile: bool,
    /// Number of statistics in which payment has an unpublished entry.
    pub busy_looks: u32,
    /// Endless traffic: in each statistics more is published, and more waits.
    pub has_traffic: bool,
    /// Shop from the first request for single entries on.
    pub mended: Option<Shop>,
    /// Service that does not answer, and whether it hangs.
    pub away: Option<(&'static str, bool)>,
}

impl ReconciliationHarness {
    /// Starts with consistent services and a complete saga view.
    pub async fn of(shop: Shop) -> Self {
        let harness = Self::without_view(shop, NOON).await;
        let shop = harness.played.lock().shop.clone();
        for (entry, facts) in shop.orders.iter().zip(published_facts(&shop)) {
            for published in facts {
                harness.admin.receives(&message(entry, published.fact)).await;
            }
        }
        harness
    }

    /// Starts with all facts published at this time, and an empty saga view.
    pub async fn without_view(mut shop: Shop, at: Timestamp) -> Self {
        let orders = shop.orders.iter_mut().map(|entry| &mut entry.published);
        let reservations = shop.reservations.iter_mut().map(|entry| &mut entry.published);
        let payments = shop.payments.iter_mut().map(|entry| &mut entry.published);
        orders.chain(reservations).chain(payments).flatten().for_each(|published| published.at = at);
        let mut service_stats: BTreeMap<_, _> = others().map(|name| (name.to_owned(), quiet(name))).collect();
        for published in published_facts(&shop).concat() {
            let subject = subject(published.fact);
            let producer = subject.split('.').next().expect("a producer");
            *service_stats.get_mut(producer).expect("it is played").published.entry(subject).or_default() +=
                1;
        }
        let (page, folds, unreadable) = (2_000, BTreeMap::new(), vec![]);
        let played = Played {
            shop,
            page,
            service_stats,
            folds,
            checked: None,
            checked_pages: None,
            verified: vec![],
            unverified: None,
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
        let flags: Vec<_> = others().map(|name| format!("service.{name}={base}/{name}")).collect();
        let admin = AdminHarness::with(&flags.iter().map(String::as_str).collect::<Vec<_>>()).await;
        Self { admin, played, _serving: serving }
    }

    pub async fn reconcile_within(&self, seconds: u32) -> Value {
        answered(self.admin.request(Method::GET, &format!("/reconciliation?wait={seconds}")), 200).await
    }

    pub async fn reconcile(&self) -> Value {
        answered(self.admin.request(Method::GET, "/reconciliation"), 200).await
    }

    /// Publishes a message of payment to admin.
    pub async fn payment_publishes(&self, message: &AdminMessage) {
        self.admin.receives(message).await;
        let subject = message.message_type().subject("payment", "");
        let mut played = self.played.lock();
        let payment = played.service_stats.get_mut("payment").expect("it is played");
        *payment.published.entry(subject).or_default() += 1;
    }

    pub fn set_tasks(&self, tasks: u64) {
        self.played.lock().service_stats.get_mut("payment").expect("it is played").stats.tasks = tasks;
    }

    /// Changes the statistics of the last step of inventory.
    pub fn change_step(&self, change: fn(&mut StepStats)) {
        let mut played = self.played.lock();
        let inventory = played.service_stats.get_mut("inventory").expect("it is played");
        change(inventory.steps.last_mut().expect("a step"));
    }
}

async fn answer(State(played): State<Arc<Mutex<Played>>>, encoding: Encoding, uri: Uri) -> Response {
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
        (_, "internal/stats") => {
            if played.publishes_meanwhile && service == "order" {
                let order = played.service_stats.get_mut("order").expect("it is played");
                *order.published.entry("order.something".to_owned()).or_default() += 1;
            }
            let mut service_stats = played.service_stats[service].clone();
            if played.has_traffic {
                trade(&mut service_stats);
                played.service_stats.insert(service.to_owned(), service_stats.clone());
            }
            if service == "payment" && played.busy_looks > 0 {
                played.busy_looks -= 1;
                service_stats.stats.outbox_pending = 1;
            }
            Json(service_stats).into_response()
        }
        (_, "internal/verify") if played.unverified == Some(service) => {
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
        (_, "internal/verify") => {
            played.verified.push(format!("{service}: {query}"));
            Json(played.folds.get(service).cloned().unwrap_or_default()).into_response()
        }
        ("order", "internal/ledger") => {
            let whole = page_of(&shop.orders, |entry| entry.order.to_string(), &which, page);
            let place = whole.entries.first().and_then(|first| {
                shop.orders.iter().position(|entry| entry.order == first.order).map(|at| at / page)
            });
            let says = played.checked_pages.is_none_or(|pages| place.is_some_and(|place| place < pages));
            sent(&Page { folds: played.checked.clone().filter(|_| says), ..whole }, encoding)
        }
        ("order", "internal/ledger/catalogue") => {
            sent(&page_of(&shop.copies, |entry| entry.sku.clone(), &which, page), encoding)
        }
        ("inventory", "internal/ledger/stock") => {
            sent(&page_of(&shop.stock, |entry| entry.sku.clone(), &which, page), encoding)
        }
        ("inventory", "internal/ledger/reservations") => {
            let key = |entry: &contract::reconciliation::ReservationEntry| entry.order.to_string();
            let whole = page_of(&shop.reservations, key, &which, page);
            sent(&Page { unreadable: played.unreadable.clone(), ..whole }, encoding)
        }
        ("payment", "internal/ledger") => {
            sent(&page_of(&shop.payments, |entry| entry.order.to_string(), &which, page), encoding)
        }
        ("bank", "v1/charges") => {
            sent(&page_of(&shop.charges, |entry| entry.reference.clone(), &which, page), encoding)
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn sent<T: Serialize>(page: &Page<T>, encoding: Encoding) -> Response {
    page.encode(encoding).into_response()
}

/// Requested entries.
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
            return Page { entries, next: None, unreadable: vec![], purged_before: None, folds: None };
        }
    };
    let mut rest = all.iter().filter(|entry| after.is_none_or(|after| key(entry).as_str() > after));
    let entries: Vec<T> = rest.by_ref().take(length).cloned().collect();
    let next = rest.next().and_then(|_| entries.last()).map(key);
    Page { entries, next, unreadable: vec![], purged_before: None, folds: None }
}

/// Adds one published and processed fact; one is always left.
fn trade(service_stats: &mut ServiceStats) {
    let newest = service_stats.newest.unwrap_or_default() + 1;
    service_stats.newest = Some(newest);
    service_stats.at += SignedDuration::from_millis(20);
    service_stats.stats.outbox_pending = 1;
    service_stats.stats.outbox_oldest = Some(service_stats.at);
    let others = ["order", "inventory", "payment"].map(|producer| (producer.to_owned(), newest));
    let busy = StepStats { waiting: Some(1), acknowledged: others.into(), ..step("some-step", &[], 0) };
    service_stats.steps.retain(|step| step.step != busy.step);
    service_stats.steps.push(busy);
}

fn quiet(service: &str) -> ServiceStats {
    ServiceStats {
        service: service.to_owned(),
        instance: service.to_owned(),
        at: NOON,
        stats: saga_core::service_stats::StoreStats::default(),
        calls_open: 0,
        published: BTreeMap::new(),
        newest: None,
        lost_before: None,
        steps: vec![],
    }
}

pub fn step(name: &str, subjects: &[&str], handled: u64) -> StepStats {
    StepStats {
        step: name.to_owned(),
        subjects: subjects.iter().map(|subject| (*subject).to_owned()).collect(),
        handled,
        retrying: 0,
        dead: 0,
        waiting: Some(0),
        acknowledged: BTreeMap::new(),
    }
}

/// Published facts of each order.
fn published_facts(shop: &Shop) -> Vec<Vec<PublishedFact>> {
    let of = |index: usize| {
        let (order, reservation) = (&shop.orders[index].published, &shop.reservations[index].published);
        [order.clone(), reservation.clone(), shop.payments[index].published.clone()].concat()
    };
    (0..shop.orders.len()).map(of).collect()
}

fn subject(fact_type: FactType) -> String {
    fact_type.message_type().subject(fact_type.producer(), "")
}

/// A fact about an order, as its service publishes it.
fn message(entry: &OrderEntry, fact_type: FactType) -> AdminMessage {
    let OrderEntry { order, customer, lines, total, deadline, .. } = entry.clone();
    let message = fact(fact_type.name(), order);
    match message {
        AdminMessage::Fact(contract::Fact::OrderCreated(_)) => {
            let payment =
                PaymentContext { customer, total, token: "tok_ok".to_owned(), id: payment_id(order) };
            AdminMessage::Fact(OrderCreated { order, lines, payment, deadline }.into())
        }
        AdminMessage::Fact(contract::Fact::OrderCancelled(cancelled)) => {
            let reason = entry.cancelled_because.expect("it is cancelled");
            AdminMessage::Fact(OrderCancelled { reason, ..cancelled }.into())
        }
        AdminMessage::Fact(_) | AdminMessage::DeadLetter(_) => message,
    }
}
