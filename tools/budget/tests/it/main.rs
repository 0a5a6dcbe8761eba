//! Shell: the cost of a saga in each service, compared with the stored figures.
//!
//! The real services run on their engines and SQLite stores, with a scripted clock and scripted ids, batch by
//! batch. No time is measured.

mod allocations;
mod database;
mod site;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use admin::service::AdminService;
use bank::domain::ChargeRequest;
use bank::service::{Answer, BankService, CommandKind};
use budget::{Figures, differences};
use contract::money::{Currency, Money};
use inventory::domain::{Listing, ProductCommand};
use inventory::service::InventoryService;
use jiff::SignedDuration;
use order::domain::Order;
use order::service::{NewOrder, OrderService};
use payment::bank_task::{BankAnswer, BankCall, BankTask};
use payment::service::PaymentService;
use saga_core::decider::Decider as _;
use saga_core::ids;
use saga_core::input::{CommandOutcome, Input, Outcome};
use saga_core::query::Query;
use saga_core::waiting::Task;
use saga_engine::store::roles::Queries as _;
use uuid::{Builder, Uuid};

use self::site::{NOON, PublishedBatch, ScriptedClock, Site};

/// Orders before the counted ones, in larger batches. They fill statement caches and buffers, and let tables
/// grow to a realistic size.
const WARM_UP: u64 = 1_000;
const WARM_UP_BATCH: u64 = 250;
const ORDERS: u64 = 200;
const BATCH: u64 = 50;
const PRODUCTS: u64 = 50;

const FILE: &str = "figures.json";

/// Guards the cost that follows from the code and not from the machine. `BUDGET_UPDATE=1 cargo test -p
/// budget` stores new figures after an intended change.
#[tokio::test]
async fn saga_costs_match_stored_figures() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let new = Shop::new().await.sell_all().await;
    if std::env::var_os("BUDGET_UPDATE").is_some() {
        let text = serde_json::to_string_pretty(&new).expect("figures have a JSON form");
        std::fs::write(&path, format!("{text}\n")).expect("the figures can be written");
        return;
    }
    let stored = std::fs::read_to_string(&path).expect("the stored figures");
    let found = differences(&serde_json::from_str(&stored).expect("figures"), &new);
    assert!(
        found.is_empty(),
        "a saga does not cost what its budget says.\n\n{}\n\nWhen that is wanted, store it, and say why:\n    \
         BUDGET_UPDATE=1 cargo test -p budget\n",
        found.join("\n")
    );
}

struct Shop {
    order: Site<OrderService>,
    inventory: Site<InventoryService>,
    payment: Site<PaymentService>,
    bank: Site<BankService>,
    admin: Site<AdminService>,
    _folder: tempfile::TempDir,
}

impl Shop {
    /// Creates a shop with a catalogue known to every service, and enough stock.
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Arc::new(ScriptedClock::default());
        let (at, time) = (folder.path(), || clock.clone());
        let mut shop = Self {
            order: Site::new(OrderService, at, time()),
            inventory: Site::new(InventoryService, at, time()),
            payment: Site::new(PaymentService, at, time()),
            bank: Site::new(BankService { limit_major: 10_000 }, at, time()),
            admin: Site::new(AdminService, at, time()),
            _folder: folder,
        };
        let list = |product: u64| {
            let unit_price = Money::new(100 + i64::try_from(product).expect("few products"), Currency::EUR);
            let listing = Listing { name: format!("product {product}"), unit_price, replenish: false };
            let change = ProductCommand::List(listing, 1_000_000);
            let command = inventory::service::Command { sku: sku(product), change, operator: None };
            let id = scripted_id("list", product);
            Input::command(id, id, command, None)
        };
        shop.inventory.run_batch(|| (0..PRODUCTS).map(list).collect()).await;
        let published = shop.inventory.publish().await.expect("products are published");
        shop.deliver(published).await;
        shop
    }

    /// Sells all orders, and returns the cost of the counted ones.
    async fn sell_all(mut self) -> Figures {
        for from in (0..WARM_UP).step_by(WARM_UP_BATCH as usize) {
            self.sell(from..from + WARM_UP_BATCH).await;
        }
        self.order.begin();
        self.inventory.begin();
        self.payment.begin();
        self.bank.begin();
        self.admin.begin();
        for from in (WARM_UP..WARM_UP + ORDERS).step_by(BATCH as usize) {
            self.sell(from..from + BATCH).await;
        }
        let orders = self.order.store.clone();
        let services = [
            (order::NAME.to_owned(), self.order.end()),
            (inventory::NAME.to_owned(), self.inventory.end()),
            (payment::NAME.to_owned(), self.payment.end()),
            (bank::NAME.to_owned(), self.bank.end()),
            (admin::NAME.to_owned(), self.admin.end()),
        ];
        let by_status = orders.counts(Order::KIND, "status", Query::default()).await;
        let confirmed = [("CONFIRMED".to_owned(), WARM_UP + ORDERS)];
        assert_eq!(by_status.expect("the store works"), confirmed.into(), "all orders are confirmed");
        Figures { warm_up: WARM_UP, orders: ORDERS, batch: BATCH, services: services.into() }
    }

    async fn sell(&mut self, numbers: Range<u64>) {
        let outcomes = self.order.run_batch(|| numbers.map(place).collect()).await;
        assert!(outcomes.iter().all(|outcome| outcome.name() == "done"), "all orders are placed");
        let published = self.order.publish().await.expect("orders are published");
        self.deliver(published).await;
    }

    /// Delivers messages and runs tasks until none is left.
    async fn deliver(&mut self, published: PublishedBatch) {
        let mut in_flight = vec![published];
        while !in_flight.is_empty() {
            let published = in_flight.remove(0);
            in_flight.extend(self.order.consume(&published).await);
            in_flight.extend(self.inventory.consume(&published).await);
            in_flight.extend(self.payment.consume(&published).await);
            in_flight.extend(self.admin.consume(&published).await);
            let tasks = self.payment.tasks();
            if !tasks.is_empty() {
                in_flight.extend(self.pay(tasks).await);
            }
        }
    }

    /// Calls the bank for these tasks.
    async fn pay(&mut self, tasks: Vec<Task>) -> Option<PublishedBatch> {
        let commands: Vec<_> = tasks.iter().map(bank_command).collect();
        let outcomes = self
            .bank
            .run_batch(|| {
                commands
                    .into_iter()
                    .map(|(id, command)| Input::command(id, command.charge, command, None))
                    .collect()
            })
            .await;
        let answers: Vec<_> = outcomes.into_iter().map(answer).collect();
        let called = || {
            tasks
                .into_iter()
                .zip(answers)
                .map(|(task, answer)| Input::task_result(task, Ok(answer), 0))
                .collect()
        };
        let outcomes = self.payment.run_batch(called).await;
        assert!(outcomes.iter().all(|outcome| outcome.name() == "done"), "all payments are made");
        self.payment.publish().await
    }
}

fn sku(product: u64) -> String {
    format!("sku-{:03}", product % PRODUCTS)
}

/// Derives an id like those of real time, by number.
fn scripted_id(what: &str, number: u64) -> Uuid {
    let millis = u64::try_from(NOON.as_millisecond()).expect("after 1970") + number;
    let derived = ids::derived(&[what, &number.to_string()]);
    let rest: [u8; 10] = derived.as_bytes()[6..].try_into().expect("ten bytes");
    Builder::from_unix_timestamp_millis(millis, &rest).into_uuid()
}

/// An order of two products.
fn place(number: u64) -> Input<OrderService> {
    let order = scripted_id("order", number);
    let command = order::service::Command::Place(NewOrder {
        order,
        customer: format!("customer-{number:06}"),
        lines: vec![(sku(number), 1), (sku(number * 7 + 1), 2)],
        token: "tok_ok".to_owned(),
        timeout: SignedDuration::from_secs(60),
    });
    Input::command(scripted_id("place", number), order, command, None)
}

/// Translates a task into a command for the bank.
fn bank_command(task: &Task) -> (Uuid, bank::service::Command) {
    let BankTask { order, payment: charge, call, .. } =
        serde_json::from_str(&task.payload).expect("a task of the bank");
    let BankCall::Charge { context, .. } = call else { panic!("nothing is undone here: {call:?}") };
    let (amount, token, reference) = (context.total, context.token, order.to_string());
    let kind = CommandKind::Capture(ChargeRequest { amount, token, reference });
    (task.id, bank::service::Command { charge, kind })
}

fn answer(outcome: Outcome<BankService>) -> serde_json::Value {
    let Outcome::Command(CommandOutcome::Done(Answer::Captured { reference, .. })) = outcome else {
        panic!("not captured: {}", outcome.name());
    };
    serde_json::to_value(BankAnswer::Captured { reference }).expect("answers have a JSON form")
}
