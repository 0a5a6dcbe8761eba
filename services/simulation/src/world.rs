//! Shell: what can happen: everything that a network, a disk, a bank and an operator's thumb do to a system.

use std::collections::BTreeMap;

use admin::policy::AdminService;
use bank::policy::{Answer, BankService, Command as BankCommand, Wish};
use inventory::domain::{Listing, ProductCommand};
use inventory::policy::{Command as InventoryCommand, InventoryService};
use jiff::{SignedDuration, Timestamp};
use order::policy::{Command as OrderCommand, NewOrder, OrderService};
use payment::policy::{BankAnswer, BankCall, BankTask, PaymentService};
use shared::contract::CancelReason;
use shared::engine::{Input, Outcome, RequestKey};
use shared::ids;
use shared::money::{Currency, Money};
use shared::service::Service;
use shared::store::Task;
use uuid::Uuid;

use crate::Endings;
use crate::broker::Broker;
use crate::network::{deliver, fire, relay};
use crate::node::Node;
use crate::sabotage::Sabotage;

/// Things that happen before the world comes to rest.
const HAPPENINGS: usize = 160;
/// Orders at most.
const ORDERS: usize = 8;
/// Rounds in which everything left is delivered; a world that needs more is stuck.
const ROUNDS_TO_REST: usize = 400;
/// Patience of an order.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// Everything.
pub struct World {
    /// Chance, from the seed alone.
    pub rng: fastrand::Rng,
    /// Now.
    pub now: Timestamp,
    /// The streams.
    pub broker: Broker,
    /// Orders placed.
    pub orders: Vec<Uuid>,
    /// The order service.
    pub order: Node<OrderService>,
    /// The inventory service.
    pub inventory: Node<InventoryService>,
    /// The payment service.
    pub payment: Node<PaymentService>,
    /// The admin service.
    pub admin: Node<AdminService>,
    /// The bank.
    pub bank: Node<BankService>,
    /// The planted fault.
    pub sabotage: Sabotage,
    /// What was seen on the way.
    pub seen: Endings,
    /// Whether things still go wrong.
    pub(crate) is_rough: bool,
    /// How often the bank cannot be reached for a charge: in some worlds, nearly always.
    charge_fails_percent: u8,
    /// How often it cannot be reached to give money back.
    refund_fails_percent: u8,
    trace: bool,
    /// Why the world does not come to rest.
    pub stuck: Option<String>,
    keys: BTreeMap<String, Uuid>,
}

impl World {
    /// A world with a stocked catalogue that everybody knows of.
    #[must_use]
    pub fn new(seed: u64, sabotage: Sabotage, trace: bool) -> Self {
        // Every other seed without inboxes: the domain is right without them. Not with an inbox fault planted.
        let use_inbox = seed.is_multiple_of(2) || sabotage == Sabotage::InboxBeforeWork;
        let mut world = Self {
            rng: fastrand::Rng::with_seed(seed),
            now: Timestamp::UNIX_EPOCH,
            broker: Broker::default(),
            orders: Vec::new(),
            order: Node::new(OrderService, sabotage.of_order(), use_inbox),
            inventory: Node::new(InventoryService, sabotage.of_inventory(), use_inbox),
            payment: Node::new(PaymentService, sabotage.of_payment(), use_inbox),
            admin: Node::new(AdminService, None, use_inbox),
            bank: Node::new(BankService { limit_major: 10_000 }, None, use_inbox),
            sabotage,
            seen: Endings::default(),
            is_rough: false,
            charge_fails_percent: if seed % 8 == 6 { 75 } else { 20 },
            refund_fails_percent: if seed % 8 == 7 { 95 } else { 20 },
            trace,
            stuck: None,
            keys: BTreeMap::new(),
        };
        for (step, subject) in Node::<OrderService>::subscriptions()
            .into_iter()
            .chain(Node::<InventoryService>::subscriptions())
            .chain(Node::<PaymentService>::subscriptions())
            .chain(Node::<AdminService>::subscriptions())
        {
            world.broker.subscribe(step, subject);
        }
        for (sku, pieces) in [("tea", 6), ("cup", 4), ("pot", 1)] {
            let unit_price = Money::new(500, Currency::EUR);
            let listing = Listing { name: sku.to_owned(), unit_price, replenish: false };
            let command =
                InventoryCommand { sku: sku.to_owned(), wish: ProductCommand::List(listing, pieces) };
            let id = world.fresh_id();
            let _ = world.inventory.commit(vec![Input::command(id, id, command, None)], world.now);
        }
        world.come_to_rest();
        world.is_rough = true;
        world
    }

    /// Lets things happen.
    pub fn live(&mut self) {
        for _ in 0..HAPPENINGS {
            let pause = self.rng.i64(0..800);
            self.now = self.after(SignedDuration::from_millis(pause));
            match self.rng.u8(0..100) {
                0..=9 => self.place_an_order(),
                10..=12 => self.cancel_an_order(),
                13..=27 => deliver::<OrderService>(self, |world| &mut world.order),
                28..=42 => deliver::<InventoryService>(self, |world| &mut world.inventory),
                43..=54 => deliver::<PaymentService>(self, |world| &mut world.payment),
                55..=59 => deliver::<AdminService>(self, |world| &mut world.admin),
                60..=66 => relay::<OrderService>(self, |world| &mut world.order),
                67..=73 => relay::<InventoryService>(self, |world| &mut world.inventory),
                74..=80 => relay::<PaymentService>(self, |world| &mut world.payment),
                81..=88 => self.call_the_bank(),
                89..=92 => self.fire_timers(),
                93..=95 => self.crash_somebody(),
                96 => {
                    let pause = self.rng.i64(5..70);
                    self.now = self.after(SignedDuration::from_secs(pause));
                }
                _ => self.deliver_again(),
            }
        }
    }

    /// Nothing goes wrong any more; everything left is delivered, until nobody owes anything.
    pub fn come_to_rest(&mut self) {
        self.is_rough = false;
        for _ in 0..ROUNDS_TO_REST {
            let before = self.broker.len();
            relay::<OrderService>(self, |world| &mut world.order);
            relay::<InventoryService>(self, |world| &mut world.inventory);
            relay::<PaymentService>(self, |world| &mut world.payment);
            relay::<AdminService>(self, |world| &mut world.admin);
            deliver::<OrderService>(self, |world| &mut world.order);
            deliver::<InventoryService>(self, |world| &mut world.inventory);
            deliver::<PaymentService>(self, |world| &mut world.payment);
            deliver::<AdminService>(self, |world| &mut world.admin);
            self.call_the_bank();
            let was_due = self.fire_timers_and_tell();
            if self.broker.len() == before && !was_due && self.is_at_rest() {
                return;
            }
            self.now = self.after(SignedDuration::from_secs(2));
        }
        self.stuck = Some(format!("not at rest after {ROUNDS_TO_REST} rounds"));
    }

    fn is_at_rest(&self) -> bool {
        let all_steps: Vec<_> = Node::<OrderService>::steps()
            .into_iter()
            .chain(Node::<InventoryService>::steps())
            .chain(Node::<PaymentService>::steps())
            .chain(Node::<AdminService>::steps())
            .collect();
        let deadlines_passed = self.sabotage == Sabotage::NoDeadline || self.next_due().is_none();
        let all_said = !self.order.owes_facts() && !self.inventory.owes_facts() && !self.payment.owes_facts();
        let all_heard = self.broker.deliverable(&all_steps).is_empty();
        all_said && all_heard && self.payment.tasks.is_empty() && deadlines_passed
    }

    fn next_due(&self) -> Option<Timestamp> {
        use shared::store::Store as _;
        let look =
            |due: Result<shared::store::Due, shared::store::StoreFault>| due.ok().and_then(|due| due.next);
        let (now, until) = (self.now, self.now);
        let order = look(crate::node::ready(self.order.store.due(now, 0, "nobody", until, false)));
        let inventory = look(crate::node::ready(self.inventory.store.due(now, 0, "nobody", until, false)));
        let payment = look(crate::node::ready(self.payment.store.due(now, 0, "nobody", until, false)));
        let dies_with = self.sabotage == Sabotage::TasksDieWithTheProcess;
        order.or(inventory).or(if dies_with { None } else { payment })
    }

    fn after(&self, span: SignedDuration) -> Timestamp {
        self.now.checked_add(span).unwrap_or(Timestamp::MAX)
    }

    fn fresh_id(&mut self) -> Uuid {
        Uuid::from_u128(self.rng.u128(..))
    }

    pub(crate) fn chance(&mut self, percent: u8) -> bool {
        self.is_rough && self.rng.u8(0..100) < percent
    }

    pub(crate) fn note(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{} {}", self.now, what());
        }
    }

    fn place_an_order(&mut self) {
        if self.orders.len() >= ORDERS {
            return;
        }
        let order = self.fresh_id();
        // Sometimes the client repeats itself, with the key it used before.
        let key = format!("key-{}", self.rng.u8(0..10));
        let repeated = self.keys.get(&key).copied();
        let lines = match self.rng.u8(0..4) {
            0 => vec![("tea".to_owned(), 1)],
            1 => vec![("tea".to_owned(), 2), ("cup".to_owned(), 1)],
            2 => vec![("cup".to_owned(), 1), ("tea".to_owned(), 1), ("cup".to_owned(), 1)],
            _ => vec![("pot".to_owned(), 1), ("cup".to_owned(), 1)],
        };
        let token =
            ["tok_ok", "tok_ok", "tok_ok", "tok_ok", "tok_declined", "tok_error_once"][self.rng.usize(0..6)];
        let new = NewOrder {
            order,
            customer: "ada".to_owned(),
            lines,
            token: token.to_owned(),
            patience: PATIENCE,
        };
        let request = RequestKey { key: key.clone(), fingerprint: "same".to_owned() };
        let input = Input::command(order, order, OrderCommand::Place(new), Some(request));
        let Ok(committed) = self.order.commit(vec![input], self.now) else {
            return;
        };
        match committed.outcomes.first() {
            Some(Outcome::Done(_)) => {
                self.orders.push(order);
                self.keys.insert(key, order);
                self.note(|| format!("order {order} placed, {token}"));
            }
            Some(Outcome::Replayed(reply)) if reply.order.as_ref().map(|order| order.id) == repeated => {}
            other => self.stuck = Some(format!("an order was answered with {:?}", other.map(Outcome::name))),
        }
        // The answer may be lost with the process: the client would repeat it with the same key.
        if self.chance(10) {
            self.order.crash();
        }
    }

    fn cancel_an_order(&mut self) {
        let Some(order) = self.some_order() else {
            return;
        };
        let id = self.fresh_id();
        let command = OrderCommand::Cancel { order, reason: CancelReason::CustomerRequest };
        let _ = self.order.commit(vec![Input::command(id, order, command, None)], self.now);
        self.note(|| format!("order {order} cancelled by its customer"));
    }

    fn some_order(&mut self) -> Option<Uuid> {
        (!self.orders.is_empty()).then(|| self.orders[self.rng.usize(0..self.orders.len())])
    }

    /// An acknowledgement that was lost, or a message that the stream holds twice: delivered again, much later.
    fn deliver_again(&mut self) {
        if self.broker.is_empty() {
            return;
        }
        let index = self.rng.usize(0..self.broker.len());
        for step in self.broker.hearers(index) {
            self.broker.forget_acknowledgement(step, index);
        }
    }

    fn crash_somebody(&mut self) {
        match self.rng.u8(0..4) {
            0 => self.order.crash(),
            1 => self.inventory.crash(),
            2 => self.payment.crash(),
            _ => self.admin.crash(),
        }
        self.note(|| "somebody crashed".to_owned());
    }

    fn fire_timers(&mut self) {
        self.fire_timers_and_tell();
    }

    fn fire_timers_and_tell(&mut self) -> bool {
        let dies_with = self.sabotage == Sabotage::TasksDieWithTheProcess;
        let before = self.payment.tasks.len();
        let fired = fire::<OrderService>(self, |world| &mut world.order)
            | fire::<InventoryService>(self, |world| &mut world.inventory)
            | fire::<PaymentService>(self, |world| &mut world.payment)
            | fire::<AdminService>(self, |world| &mut world.admin);
        if let Some(order) = self.outlived_deadline() {
            self.stuck = Some(format!("order {order} outlived its deadline although the timers fired"));
        }
        if dies_with {
            self.payment.tasks.truncate(before);
        }
        fired || self.payment.tasks.len() > before
    }

    fn outlived_deadline(&self) -> Option<String> {
        use shared::store::Store as _;
        let due = crate::node::ready(self.order.store.due(self.now, 1, "nobody", self.now, false)).ok()?;
        due.rows.first().map(|(key, _)| key.id.clone())
    }

    /// Makes the calls that payment has noted; any of them may be lost on the way there or back.
    fn call_the_bank(&mut self) {
        while !self.payment.tasks.is_empty() {
            let index = self.rng.usize(0..self.payment.tasks.len());
            let task = self.payment.tasks.swap_remove(index);
            let answer = self.ask_the_bank(&task);
            self.note(|| format!("bank: {} -> {answer:?}", task.payload));
            if self.chance(8) {
                self.payment.crash();
                return;
            }
            let roll = self.rng.u32(..);
            let input = Input::called(task, answer, roll);
            if let Ok(committed) = self.payment.commit(vec![input], self.now) {
                for outcome in &committed.outcomes {
                    self.see(outcome);
                }
            }
            if self.is_rough {
                return;
            }
        }
    }

    fn ask_the_bank(&mut self, task: &Task) -> Result<serde_json::Value, String> {
        let BankTask { order, call } =
            serde_json::from_str(&task.payload).map_err(|error| error.to_string())?;
        if self.sabotage == Sabotage::RefundOnPaperOnly && call == BankCall::Refund {
            return serde_json::to_value(BankAnswer::Undone).map_err(|error| error.to_string());
        }
        let fails_percent = if matches!(call, BankCall::Charge(_)) {
            self.charge_fails_percent
        } else {
            self.refund_fails_percent
        };
        if self.chance(fails_percent) {
            return Err("the bank cannot be reached".to_owned());
        }
        let ignores_key = self.sabotage == Sabotage::BankIgnoresKey && matches!(call, BankCall::Charge(_));
        let charge = if ignores_key { self.fresh_id() } else { ids::payment_id(order) };
        let wish = match call {
            BankCall::Charge(context) => Wish::Capture(bank::domain::Asked {
                amount: context.total,
                token: context.token,
                reference: order.to_string(),
            }),
            BankCall::Refund => Wish::Refund,
            BankCall::Reverse => Wish::Reverse,
        };
        let id = self.fresh_id();
        let input = Input::command(id, charge, BankCommand { charge, wish }, None);
        let committed = self.bank.commit(vec![input], self.now).map_err(|fault| fault.to_string())?;
        if self.chance(20) {
            return Err("the answer was lost".to_owned());
        }
        let answer = match committed.outcomes.into_iter().next() {
            Some(Outcome::Done(answer) | Outcome::Replayed(answer)) => answer,
            other => {
                return Err(format!("the bank said {:?}", other.as_ref().map(Outcome::name)));
            }
        };
        match answer {
            Answer::Captured { reference, .. } => serde_json::to_value(BankAnswer::Captured { reference }),
            Answer::Refused { reason } => serde_json::to_value(BankAnswer::Refused { reason }),
            Answer::Undone => serde_json::to_value(BankAnswer::Undone),
            Answer::Stumbled => return Err("the bank stumbled".to_owned()),
        }
        .map_err(|error| error.to_string())
    }

    pub(crate) fn see<S: Service>(&mut self, outcome: &Outcome<S>) {
        match outcome {
            Outcome::Retried(_) => self.seen.retried += 1,
            Outcome::Dead(_) => self.seen.parked += 1,
            Outcome::Done(_)
            | Outcome::Replayed(_)
            | Outcome::Duplicate
            | Outcome::Rejected(_)
            | Outcome::KeyReused
            | Outcome::Faulted(_) => {}
        }
    }
}
