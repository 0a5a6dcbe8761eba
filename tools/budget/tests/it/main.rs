//! Shell: what a saga costs each service, held against the stored figures.
//!
//! The real services on their real engines and SQLite stores, at a scripted time, with scripted ids, one batch after the
//! other. Nothing is timed.

mod allocations;
mod database;
mod site;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use admin::policy::AdminService;
use bank::domain::Asked;
use bank::policy::{Answer, BankService, CommandKind};
use budget::{Figures, complaints};
use contract::money::{Currency, Money};
use inventory::domain::{Listing, ProductCommand};
use inventory::policy::InventoryService;
use jiff::SignedDuration;
use order::domain::Order;
use order::policy::{NewOrder, OrderService};
use payment::policy::{BankAnswer, BankCall, BankTask, PaymentService};
use saga_core::decider::Decider as _;
use saga_core::ids;
use saga_core::input::{CommandOutcome, Input, Outcome};
use saga_core::query::Query;
use saga_core::waiting::Task;
use saga_engine::store::Store as _;
use uuid::{Builder, Uuid};

use self::site::{NOON, ScriptedClock, Site, Told};

/// Orders before those that are counted, some at a time: there statements are prepared and buffers made, and tables grow
/// until it shows what lies apart in them that belongs together.
const PAST: u64 = 1_000;
const PAST_TOGETHER: u64 = 250;
/// Orders that are counted.
const ORDERS: u64 = 200;
/// Orders that go together.
const TOGETHER: u64 = 50;
const PRODUCTS: u64 = 50;

const FILE: &str = "figures.json";

/// The guard: what is decided by the code and not by the machine may not grow, nor shrink, unnoticed. When that is wanted:
/// `BUDGET_UPDATE=1 cargo test -p budget` stores what was counted.
#[tokio::test]
async fn a_saga_costs_what_its_budget_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let new = Shop::new().await.sells().await;
    if std::env::var_os("BUDGET_UPDATE").is_some() {
        let text = serde_json::to_string_pretty(&new).expect("figures have a JSON form");
        std::fs::write(&path, format!("{text}\n")).expect("the figures can be written");
        return;
    }
    let stored = std::fs::read_to_string(&path).expect("the stored figures");
    let found = complaints(&serde_json::from_str(&stored).expect("figures"), &new);
    assert!(
        found.is_empty(),
        "a saga does not cost what its budget says.\n\n{}\n\nWhen that is wanted, store it, and say why:\n    \
         BUDGET_UPDATE=1 cargo test -p budget\n",
        found.join("\n")
    );
}

/// All services of the shop.
struct Shop {
    order: Site<OrderService>,
    inventory: Site<InventoryService>,
    payment: Site<PaymentService>,
    bank: Site<BankService>,
    admin: Site<AdminService>,
    _folder: tempfile::TempDir,
}

impl Shop {
    /// A shop with a catalogue that everybody knows, and enough of everything.
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
            let asked = ProductCommand::List(listing, 1_000_000);
            let command = inventory::policy::Command { sku: sku(product), asked };
            let id = scripted_id("list", product);
            Input::command(id, id, command, None)
        };
        shop.inventory.takes(|| (0..PRODUCTS).map(list).collect()).await;
        let told = shop.inventory.publishes().await.expect("products are told");
        shop.deliver(told).await;
        shop
    }

    /// Sells, and answers what the last orders cost.
    async fn sells(mut self) -> Figures {
        for from in (0..PAST).step_by(PAST_TOGETHER as usize) {
            self.sells_some(from..from + PAST_TOGETHER).await;
        }
        self.order.begin();
        self.inventory.begin();
        self.payment.begin();
        self.bank.begin();
        self.admin.begin();
        for from in (PAST..PAST + ORDERS).step_by(TOGETHER as usize) {
            self.sells_some(from..from + TOGETHER).await;
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
        let confirmed = [("CONFIRMED".to_owned(), PAST + ORDERS)];
        assert_eq!(by_status.expect("the store works"), confirmed.into(), "all orders are confirmed");
        Figures { past: PAST, orders: ORDERS, together: TOGETHER, services: services.into() }
    }

    async fn sells_some(&mut self, numbers: Range<u64>) {
        let outcomes = self.order.takes(|| numbers.map(place).collect()).await;
        assert!(outcomes.iter().all(|outcome| outcome.name() == "done"), "all orders are placed");
        let told = self.order.publishes().await.expect("orders are told");
        self.deliver(told).await;
    }

    /// Delivers and calls until nothing is left to do.
    async fn deliver(&mut self, told: Told) {
        let mut on_its_way = vec![told];
        while !on_its_way.is_empty() {
            let told = on_its_way.remove(0);
            on_its_way.extend(self.order.hears(&told).await);
            on_its_way.extend(self.inventory.hears(&told).await);
            on_its_way.extend(self.payment.hears(&told).await);
            on_its_way.extend(self.admin.hears(&told).await);
            let tasks = self.payment.tasks();
            if !tasks.is_empty() {
                on_its_way.extend(self.pays(tasks).await);
            }
        }
    }

    /// The bank is called, and answers.
    async fn pays(&mut self, tasks: Vec<Task>) -> Option<Told> {
        let asked: Vec<_> = tasks.iter().map(asked).collect();
        let outcomes = self
            .bank
            .takes(|| {
                asked
                    .into_iter()
                    .map(|(id, command)| Input::command(id, command.charge, command, None))
                    .collect()
            })
            .await;
        let answers: Vec<_> = outcomes.into_iter().map(answer).collect();
        let called = || {
            tasks.into_iter().zip(answers).map(|(task, answer)| Input::called(task, Ok(answer), 0)).collect()
        };
        let outcomes = self.payment.takes(called).await;
        assert!(outcomes.iter().all(|outcome| outcome.name() == "done"), "all payments are made");
        self.payment.publishes().await
    }
}

fn sku(product: u64) -> String {
    format!("sku-{:03}", product % PRODUCTS)
}

/// An id as it would be made at the time, by number.
fn scripted_id(what: &str, number: u64) -> Uuid {
    let millis = u64::try_from(NOON.as_millisecond()).expect("after 1970") + number;
    let derived = ids::derived(&[what, &number.to_string()]);
    let rest: [u8; 10] = derived.as_bytes()[6..].try_into().expect("ten bytes");
    Builder::from_unix_timestamp_millis(millis, &rest).into_uuid()
}

/// An order of two products.
fn place(number: u64) -> Input<OrderService> {
    let order = scripted_id("order", number);
    let command = order::policy::Command::Place(NewOrder {
        order,
        customer: format!("customer-{number:06}"),
        lines: vec![(sku(number), 1), (sku(number * 7 + 1), 2)],
        token: "tok_ok".to_owned(),
        patience: SignedDuration::from_secs(60),
    });
    Input::command(scripted_id("place", number), order, command, None)
}

/// What a task asks of the bank.
fn asked(task: &Task) -> (Uuid, bank::policy::Command) {
    let asked: BankTask = serde_json::from_str(&task.payload).expect("a task of the bank");
    let charge = asked.payment;
    let BankCall::Charge { context, .. } = asked.call else {
        panic!("nothing is undone here: {:?}", asked.call)
    };
    let asked = Asked { amount: context.total, token: context.token, reference: asked.order.to_string() };
    (task.id, bank::policy::Command { charge, kind: CommandKind::Capture(asked) })
}

fn answer(outcome: Outcome<BankService>) -> serde_json::Value {
    let Outcome::Command(CommandOutcome::Done(Answer::Captured { reference, .. })) = outcome else {
        panic!("not captured: {}", outcome.name());
    };
    serde_json::to_value(BankAnswer::Captured { reference }).expect("answers have a JSON form")
}
