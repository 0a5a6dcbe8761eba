//! Pure: the declaration of the saga, compared with what the services really do.
//!
//! The real handlers of order, inventory, payment and bank run through every kind of path. Each published
//! fact is recorded with its step and the fact that caused it. [`ORDER_SAGA`] must declare exactly these.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bank::domain::ChargeRequest;
use bank::service::{BankService, CommandKind};
use contract::money::{Currency, Money};
use contract::order::CancelReason;
use contract::saga::{ORDER_SAGA, SagaStatus, Stage};
use contract::saga_fact::SagaFact;
use contract::saga_view::{Owed, SagaView};
use contract::{Fact, FactType};
use inventory::domain::{Listing, ProductCommand};
use inventory::service::InventoryService;
use jiff::SignedDuration;
use order::domain::Order;
use order::service::{NewOrder, OrderService};
use payment::bank_task::{BankCall, BankTask};
use payment::service::PaymentService;
use saga_core::message::{Envelope, Message};
use saga_core::service::{Service, Step};
use saga_engine::testing::service_under_test::envelope;
use saga_engine::testing::then::Then;
use saga_engine::testing::{NOON, ServiceUnderTest};
use uuid::Uuid;

const ORDER: Uuid = Uuid::from_u128(1);
const TIMEOUT: SignedDuration = SignedDuration::from_secs(60);
const STOCK: u32 = 10;

#[test]
fn each_stage_is_done_by_declared_step() {
    let seen = seen_on_all_paths();
    for stage in &ORDER_SAGA {
        let Some(after) = stage.triggered_by else {
            let placed = Seen { owner: stage.owner, step: COMMAND, after: None, fact: stage.completed_by };
            assert!(seen.contains(&placed), "{placed:?} was not seen");
            assert!(step(stage.owner, stage.step).is_none(), "{} begins with a command", stage.step);
            continue;
        };
        assert!(consumes(stage.owner, stage.step, after), "{} consumes {after:?}", stage.step);
        for fact in [stage.completed_by].into_iter().chain(stage.rejected_by) {
            let done = Seen { owner: stage.owner, step: stage.step, after: Some(after), fact };
            assert!(seen.contains(&done), "{done:?} was not seen");
        }
    }
}

#[test]
fn each_stage_is_undone_by_declared_step() {
    let seen = seen_on_all_paths();
    for stage in &ORDER_SAGA {
        assert_eq!(stage.compensated_by.is_empty(), stage.compensation_step.is_none(), "{}", stage.step);
        let Some(compensation_step) = stage.compensation_step else { continue };
        let after = FactType::OrderCancelled;
        assert!(consumes(stage.owner, compensation_step, after), "{compensation_step} consumes {after:?}");
        for fact in stage.compensated_by {
            let undone =
                Seen { owner: stage.owner, step: compensation_step, after: Some(after), fact: *fact };
            assert!(seen.contains(&undone), "{undone:?} was not seen");
        }
    }
}

#[test]
fn every_published_fact_of_saga_is_declared() {
    let declared = |fact: FactType| {
        let by = |stage: &Stage| {
            stage.completed_by == fact
                || stage.rejected_by == Some(fact)
                || stage.compensated_by.contains(&fact)
        };
        ORDER_SAGA.iter().filter(|stage| by(stage)).map(|stage| stage.owner).collect::<Vec<_>>()
    };
    for seen in seen_on_all_paths() {
        // The compensation fact belongs to no stage: every participant consumes it.
        let wanted = if seen.fact == FactType::OrderCancelled { vec!["order"] } else { declared(seen.fact) };
        assert_eq!(wanted, [seen.owner], "{seen:?}");
    }
}

#[test]
fn each_stage_follows_fact_of_earlier_stage() {
    for (index, stage) in ORDER_SAGA.iter().enumerate() {
        let earlier: Vec<_> = ORDER_SAGA[..index].iter().map(|stage| stage.completed_by).collect();
        assert!(stage.triggered_by.is_none_or(|after| earlier.contains(&after)), "{}", stage.step);
        assert_eq!(stage.triggered_by.is_none(), index == 0, "{}", stage.step);
    }
}

#[test]
fn view_predicts_next_fact() {
    for path in [happy, cancelled_after_confirmation] {
        let mut view = SagaView::default();
        for (seen, fact) in path().published {
            let done = Owed { step: seen.step.to_owned(), owner: seen.owner.to_owned(), fact: seen.fact };
            // Commands are not declared.
            assert!(seen.after.is_none() || view.remaining().contains(&done), "{done:?} was not owed");
            view.record(&fact);
        }
        assert_eq!(view.remaining(), []);
    }
}

#[test]
fn each_path_ends_in_expected_status() {
    assert_eq!(happy().status(), SagaStatus::Completed);
    let undone: [fn() -> System; 5] = [
        out_of_stock,
        declined,
        cancelled_while_charging,
        timed_out_before_payment,
        cancelled_after_confirmation,
    ];
    for path in undone {
        assert_eq!(path().status(), SagaStatus::Compensated);
    }
}

fn happy() -> System {
    let mut system = System::with_order(2, "tok_ok");
    system.run();
    system
}

fn out_of_stock() -> System {
    let mut system = System::with_order(STOCK + 1, "tok_ok");
    system.run();
    system
}

fn declined() -> System {
    let mut system = System::with_order(2, "tok_declined");
    system.run();
    system
}

/// The bank captures the money of an order that was cancelled meanwhile.
fn cancelled_while_charging() -> System {
    let mut system = System::with_order(2, "tok_ok");
    system.deliver();
    system.cancel();
    system.deliver();
    system.run();
    system
}

/// Payment receives the order after the deadline.
fn timed_out_before_payment() -> System {
    let mut system = System::with_order(2, "tok_ok");
    system.order.now = NOON + TIMEOUT;
    let then = system.order.is_due::<Order>(ORDER, NOON + TIMEOUT);
    system.note(COMMAND, None, then);
    system.run();
    system
}

fn cancelled_after_confirmation() -> System {
    let mut system = happy();
    system.cancel();
    system.run();
    system
}

fn seen_on_all_paths() -> BTreeSet<Seen> {
    let paths: [fn() -> System; 6] = [
        happy,
        out_of_stock,
        declined,
        cancelled_while_charging,
        timed_out_before_payment,
        cancelled_after_confirmation,
    ];
    paths.into_iter().flat_map(|path| path().published).map(|(seen, _)| seen).collect()
}

/// Step name for commands and deadlines.
const COMMAND: &str = "a command";

/// A fact published by a step because of another fact.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    owner: &'static str,
    step: &'static str,
    after: Option<FactType>,
    fact: FactType,
}

/// All participants, and the facts in flight between them.
struct System {
    order: ServiceUnderTest<OrderService>,
    inventory: ServiceUnderTest<InventoryService>,
    payment: ServiceUnderTest<PaymentService>,
    bank: ServiceUnderTest<BankService>,
    in_flight: VecDeque<(&'static str, Fact)>,
    /// Step and fact that caused each task.
    task_causes: BTreeMap<Uuid, (&'static str, Option<FactType>)>,
    published: Vec<(Seen, SagaFact)>,
}

impl System {
    fn with_order(quantity: u32, token: &str) -> Self {
        let mut system = Self {
            order: ServiceUnderTest::of(OrderService),
            inventory: ServiceUnderTest::of(InventoryService),
            payment: ServiceUnderTest::of(PaymentService),
            bank: ServiceUnderTest::of(BankService { limit_major: 10_000 }),
            in_flight: VecDeque::new(),
            task_causes: BTreeMap::new(),
            published: Vec::new(),
        };
        let listing =
            Listing { name: "Mug".to_owned(), unit_price: Money::new(800, Currency::EUR), replenish: false };
        let change = ProductCommand::List(listing, STOCK);
        let listed = system.inventory.executes(inventory::service::Command {
            sku: "mug".to_owned(),
            change,
            operator: None,
        });
        system.note(COMMAND, None, listed);
        system.deliver();

        let (customer, lines) = ("ada".to_owned(), vec![("mug".to_owned(), quantity)]);
        let new = NewOrder { order: ORDER, customer, lines, token: token.to_owned(), timeout: TIMEOUT };
        let placed = system.order.executes(order::service::Command::Place(new));
        system.note(COMMAND, None, placed);
        system
    }

    fn cancel(&mut self) {
        let reason = CancelReason::CustomerRequest;
        let then = self.order.executes(order::service::Command::Cancel { order: ORDER, reason });
        self.note(COMMAND, None, then);
    }

    /// Delivers facts and runs tasks until none is left.
    fn run(&mut self) {
        self.deliver();
        while let Some(task) = self.payment.store.tasks.values().next().cloned() {
            let task_payload: BankTask = serde_json::from_str(&task.payload).expect("a task of the bank");
            let BankTask { order, payment: charge, call, .. } = task_payload;
            let kind = match call {
                BankCall::Charge { context, .. } => CommandKind::Capture(ChargeRequest {
                    amount: context.total,
                    token: context.token,
                    reference: order.to_string(),
                }),
                BankCall::Refund => CommandKind::Refund,
                BankCall::Reverse => CommandKind::Reverse,
                BankCall::Close => CommandKind::Close,
            };
            let reply = self.bank.executes(bank::service::Command { charge, kind }).reply();
            let answer = serde_json::to_value(reply).expect("every answer has a JSON form");
            let then = self.payment.gets_result(&task, answer);
            let (step, after) = self.task_causes[&task.id];
            self.note(step, after, then);
            self.deliver();
        }
    }

    /// Delivers all facts in flight, in the order of publication.
    fn deliver(&mut self) {
        while let Some((producer, fact)) = self.in_flight.pop_front() {
            let after = fact.fact_type();
            for step in steps_that_consume::<OrderService>(producer, after) {
                let then = self.order.receives_from(producer, fact.clone());
                self.note(step.name, Some(after), then);
            }
            for step in steps_that_consume::<InventoryService>(producer, after) {
                let then = self.inventory.receives_from(producer, fact.clone());
                self.note(step.name, Some(after), then);
            }
            for step in steps_that_consume::<PaymentService>(producer, after) {
                let then = self.payment.receives_from(producer, fact.clone());
                self.note(step.name, Some(after), then);
            }
        }
    }

    fn note<S: Service<Fact = Fact>>(&mut self, step: &'static str, after: Option<FactType>, then: Then<S>) {
        assert!(matches!(then.outcome.name(), "done" | "rejected"), "{step} after {after:?}");
        for task in then.tasks {
            self.task_causes.insert(task.id, (step, after));
        }
        for fact in then.facts {
            if fact.saga().is_some() {
                let seen = Seen { owner: S::NAME, step, after, fact: fact.fact_type() };
                let envelope = Envelope::from_bytes(&envelope(S::NAME, &fact)).expect("an envelope");
                self.published.push((seen, SagaFact::of(&envelope.open().expect("it can be read"))));
            }
            self.in_flight.push_back((S::NAME, fact));
        }
    }

    fn status(&self) -> SagaStatus {
        let mut view = SagaView::default();
        self.published.iter().for_each(|(_, fact)| view.record(fact));
        view.status()
    }
}

fn step(owner: &str, name: &str) -> Option<&'static Step> {
    let steps = match owner {
        order::NAME => OrderService::steps(),
        inventory::NAME => InventoryService::steps(),
        payment::NAME => PaymentService::steps(),
        _ => panic!("{owner} takes no part in the saga"),
    };
    steps.iter().find(|step| step.name == name)
}

fn steps_that_consume<S: Service>(producer: &str, fact: FactType) -> Vec<&'static Step> {
    let consumes = |step: &&Step| {
        let mut own = step.consumes.iter().filter(|subscription| subscription.producer == producer);
        own.any(|subscription| subscription.types.contains(&fact.message_type()))
    };
    S::steps().iter().filter(consumes).collect()
}

fn consumes(owner: &str, name: &str, fact: FactType) -> bool {
    let step = step(owner, name).unwrap_or_else(|| panic!("{owner} has no step {name}"));
    step.consumes.iter().any(|subscription| subscription.types.contains(&fact.message_type()))
}
