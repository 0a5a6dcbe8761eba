//! Shell: everything there is, what may happen to it while it is rough, and how it comes to rest.
//!
//! `customer`, `bank`, `operator` and `trouble` say what each of them does; `network` what lies between the
//! services; `publishing` how they speak; [`crate::weather`] how often things go wrong.

use std::collections::BTreeMap;

use admin::policy::AdminService;
use bank::policy::BankService;
use inventory::domain::{Listing, ProductCommand};
use inventory::policy::{Command as InventoryCommand, InventoryService};
use jiff::{SignedDuration, Timestamp};
use order::policy::OrderService;
use payment::policy::PaymentService;
use shared::engine::{Input, Outcome};
use shared::money::{Currency, Money};
use shared::service::{Service, Step};
use shared::store::sqlite::SqliteStore;
use uuid::Uuid;

use crate::broker::Broker;
use crate::endings::{Ending, Endings};
use crate::laws;
use crate::network::{Fired, deliver, fire, hand_in_given_up};
use crate::node::{Node, clock};
use crate::publishing::relay;
use crate::sabotage::Sabotage;
use crate::weather::Weather;

/// Things that happen before the world comes to rest.
const HAPPENINGS: usize = 200;
/// Rounds in which everything left is delivered; a world that needs more is stuck.
const ROUNDS_TO_REST: usize = 400;

/// Everything.
pub struct World {
    /// Chance, from the seed alone.
    pub rng: fastrand::Rng,
    /// Now.
    pub now: Timestamp,
    /// What goes wrong.
    pub weather: Weather,
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
    /// Laws that were seen broken on the way.
    pub objections: Vec<String>,
    /// Whether things still go wrong.
    pub(crate) is_rough: bool,
    /// Whether it did not come to rest, and never will.
    is_stuck: bool,
    /// How many things have happened.
    happening: usize,
    /// How many messages were delivered.
    pub(crate) deliveries: u64,
    /// Messages with an envelope that no service has published, by subject.
    pub forged: BTreeMap<String, u64>,
    /// Orders by the key that they were placed with.
    pub(crate) keys: BTreeMap<String, Uuid>,
    trace: bool,
}

impl World {
    /// A world with a stocked catalogue that everybody knows of.
    #[must_use]
    pub fn new(seed: u64, sabotage: Sabotage, trace: bool) -> Self {
        let weather = Weather::of(seed);
        let mut world = Self {
            rng: fastrand::Rng::with_seed(seed),
            now: Timestamp::UNIX_EPOCH,
            broker: Broker::default(),
            orders: Vec::new(),
            order: Node::new(OrderService, sabotage.of_order(), sabotage, &weather),
            inventory: Node::new(InventoryService, sabotage.of_inventory(), sabotage, &weather),
            payment: Node::new(PaymentService, sabotage.of_payment(), sabotage, &weather),
            admin: Node::new(AdminService, None, sabotage, &weather),
            bank: Node::new(BankService { limit_major: 10_000 }, None, sabotage, &weather),
            weather,
            sabotage,
            seen: Endings::default(),
            objections: Vec::new(),
            is_rough: false,
            is_stuck: false,
            happening: 0,
            deliveries: 0,
            forged: BTreeMap::new(),
            keys: BTreeMap::new(),
            trace,
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
        world
    }

    /// Lets things happen.
    pub fn live(&mut self) {
        self.is_rough = true;
        for happening in 0..HAPPENINGS {
            self.happening = happening;
            let pause = self.rng.i64(0..800);
            self.now = self.after(SignedDuration::from_millis(pause));
            match self.rng.u8(0..118) {
                0..=9 => self.place_an_order(),
                10..=12 => self.cancel_an_order(),
                13..=27 => deliver::<OrderService>(self, |world| &mut world.order),
                28..=42 => deliver::<InventoryService>(self, |world| &mut world.inventory),
                43..=54 => deliver::<PaymentService>(self, |world| &mut world.payment),
                55..=62 => deliver::<AdminService>(self, |world| &mut world.admin),
                63..=69 => relay::<OrderService>(self, |world| &mut world.order),
                70..=76 => relay::<InventoryService>(self, |world| &mut world.inventory),
                77..=83 => relay::<PaymentService>(self, |world| &mut world.payment),
                84..=87 => relay::<AdminService>(self, |world| &mut world.admin),
                88..=96 => self.call_the_bank(),
                97..=102 => {
                    self.fire_timers();
                }
                103..=105 => self.crash_somebody(),
                106 => {
                    let pause = self.rng.i64(5..70);
                    self.now = self.after(SignedDuration::from_secs(pause));
                }
                107..=112 => self.operate(),
                113 => self.hear_what_was_given_up(),
                _ => self.deliver_again(),
            }
            if self.is_bank_away() {
                // Whoever waits for it tries again as soon as it may.
                fire::<PaymentService>(self, |world| &mut world.payment);
                self.call_the_bank();
            }
            self.publish_poison();
            self.give_up_on_something();
        }
        self.is_rough = false;
    }

    /// Nothing goes wrong any more; everything left is delivered, until nobody owes anything.
    pub fn come_to_rest(&mut self) {
        if self.is_stuck {
            return;
        }
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
            self.hear_what_was_given_up();
            self.call_the_bank();
            let fired = self.fire_timers();
            let is_idle = self.broker.len() == before && !fired.any && self.is_quiet();
            if is_idle && self.is_at_rest() {
                return;
            }
            let soon = self.after(SignedDuration::from_secs(2));
            // Nothing happens until then, unless something waits for a breaker.
            self.now = fired.next.filter(|next| is_idle && *next > soon && !self.is_shut()).unwrap_or(soon);
        }
        self.is_stuck = true;
        self.object(format!("not at rest after {ROUNDS_TO_REST} rounds"));
    }

    /// Once more everything that was ever parked: whatever became of it, nothing may follow from that.
    pub fn deliver_all_that_was_parked(&mut self) {
        for place in laws::places_of_letters(self) {
            self.broker.forget_acknowledgement(place);
        }
        self.come_to_rest();
    }

    /// Whether nothing is under way that memory knows of.
    fn is_quiet(&self) -> bool {
        self.payment.tasks.is_empty() && self.broker.is_quiet()
    }

    fn is_at_rest(&self) -> bool {
        !(self.order.owes() || self.inventory.owes() || self.payment.owes() || self.admin.owes())
    }

    /// Whether a breaker is open.
    fn is_shut(&self) -> bool {
        let at = clock(self.now);
        let all =
            [&self.order.breakers, &self.inventory.breakers, &self.payment.breakers, &self.admin.breakers];
        all.into_iter().any(|breakers| breakers.is_any_open(at))
    }

    /// The stores of those who speak on the bus.
    #[must_use]
    pub fn stores(&self) -> [(&'static str, &SqliteStore); 4] {
        [
            (OrderService::NAME, &self.order.store),
            (InventoryService::NAME, &self.inventory.store),
            (PaymentService::NAME, &self.payment.store),
            (AdminService::NAME, &self.admin.store),
        ]
    }

    /// The steps of each service.
    #[must_use]
    pub fn all_declared() -> [&'static [Step]; 4] {
        [OrderService::steps(), InventoryService::steps(), PaymentService::steps(), AdminService::steps()]
    }

    /// The names of all steps.
    #[must_use]
    pub fn all_steps() -> Vec<&'static str> {
        Self::all_declared().into_iter().flatten().map(|step| step.name).collect()
    }

    /// Notes that something is not as it must be.
    pub(crate) fn object(&mut self, what: String) {
        if !self.objections.contains(&what) {
            self.objections.push(what);
        }
    }

    pub(crate) fn after(&self, span: SignedDuration) -> Timestamp {
        self.now.checked_add(span).unwrap_or(Timestamp::MAX)
    }

    pub(crate) fn fresh_id(&mut self) -> Uuid {
        Uuid::from_u128(self.rng.u128(..))
    }

    pub(crate) fn chance(&mut self, percent: u8) -> bool {
        self.is_rough && self.rng.u8(0..100) < percent
    }

    pub(crate) fn is_bank_away(&self) -> bool {
        self.is_rough && self.weather.bank_away.is_on(self.happening, HAPPENINGS)
    }

    pub(crate) fn is_broker_away(&self) -> bool {
        self.is_rough && self.weather.broker_away.is_on(self.happening, HAPPENINGS)
    }

    pub(crate) fn note(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{} {}", self.now, what());
        }
    }

    fn hear_what_was_given_up(&mut self) {
        hand_in_given_up::<OrderService>(self, |world| &mut world.order);
        hand_in_given_up::<InventoryService>(self, |world| &mut world.inventory);
        hand_in_given_up::<PaymentService>(self, |world| &mut world.payment);
        hand_in_given_up::<AdminService>(self, |world| &mut world.admin);
    }

    fn fire_timers(&mut self) -> Fired {
        let before = self.payment.tasks.len();
        let all = [
            fire::<OrderService>(self, |world| &mut world.order),
            fire::<InventoryService>(self, |world| &mut world.inventory),
            fire::<PaymentService>(self, |world| &mut world.payment),
            fire::<AdminService>(self, |world| &mut world.admin),
        ];
        if self.sabotage == Sabotage::TasksDieWithTheProcess {
            self.payment.tasks.truncate(before);
        }
        let any = all.iter().any(|fired| fired.any) || self.payment.tasks.len() > before;
        Fired { any, next: all.iter().filter_map(|fired| fired.next).min() }
    }

    /// Takes note of an outcome; only a fault is a reason to try again or to park.
    pub(crate) fn see<S: Service>(&mut self, outcome: &Outcome<S>) {
        match outcome {
            Outcome::Retried(reason) | Outcome::Dead(reason) if !laws::is_fault(reason) => {
                self.object(format!("law 6: {} because of {reason:?}", outcome.name()));
            }
            Outcome::Retried(_) => self.seen.count(Ending::Retried),
            Outcome::Dead(reason) => {
                self.seen.count(Ending::Parked);
                self.seen.count_many(Ending::PoisonParked, u64::from(laws::is_poison(reason)));
            }
            Outcome::Rejected(_) => self.seen.count(Ending::Rejected),
            Outcome::Done(_)
            | Outcome::Replayed(_)
            | Outcome::Duplicate
            | Outcome::KeyReused
            | Outcome::Faulted(_) => {}
        }
    }
}
