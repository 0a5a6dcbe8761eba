//! Pure: properties of payments under any order and repetition of inputs, and any behaviour of the bank.

use std::collections::{BTreeMap, BTreeSet};

use contract::FactType;
use contract::payment::PaymentFailure;
use jiff::Timestamp;
use payment::bank_task::{BankAnswer, BankCall, BankTask, CHARGE, REFUND};
use payment::domain::{Payment, PaymentEvent};
use payment::ledger::fact_of;
use payment::service::{PaymentService, Refund};
use proptest::prelude::*;
use saga_core::Message as _;
use saga_core::decider::Decider as _;
use saga_core::retry::{FailedAttempt, FailureKind};
use saga_core::waiting::Task;
use uuid::Uuid;

use crate::given::{DEADLINE, cancelled, extended, reserved, resolved_manually};
use crate::table::commands;
use saga_engine::testing::decider::any_sequence;
use saga_engine::testing::in_memory_store::InMemoryStore;
use saga_engine::testing::{ATTEMPTS, ServiceUnderTest, Stimulus, batches_do_what_single_inputs_do};

const ORDERS: u128 = 3;
const EXTENDED: Timestamp = Timestamp::constant(1_800_000_360, 0);
/// Higher than any generated revision.
const REVISIONS: u64 = 20;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn payment_accepts_any_sequence_of_commands(
        commands in prop::collection::vec(prop::sample::select(commands()), 0..16),
    ) {
        let mut happened = Vec::new();
        any_sequence::<Payment>(&commands, |_| false, |payment, events| {
            happened.extend(events.iter().cloned());
            let count = |wanted: fn(&PaymentEvent) -> bool| happened.iter().filter(|event| wanted(event)).count();
            let captured = count(|event| matches!(event, PaymentEvent::Captured(_)));
            assert!(captured <= 1, "money is captured at most once");
            assert!(count(|event| matches!(event, PaymentEvent::Refunded)) <= captured, "and refunded at most once");
            assert_eq!(payment.reference().is_empty(), captured == 0, "{payment:?} has a reference if captured");
        });
    }

    #[test]
    fn money_of_cancelled_order_is_given_back_in_any_order_of_inputs(
        acts in prop::collection::vec(act(), 0..50), declining in 0..=ORDERS,
    ) {
        let mut scene = Scene::new(declining);
        for act in &acts {
            scene.play(act);
            scene.check(false);
        }
        scene.let_everything_end();
        scene.withdraw_all_resolutions();
        scene.let_everything_end();
        scene.check(true);
        scene.payment.store.measures_only(payment::program().metrics);
    }

    /// The service is restored from an older copy, and the other services publish their facts again.
    #[test]
    fn restored_payment_gives_back_cancelled_orders_and_keeps_all_others(
        kept in prop::collection::vec(act(), 0..20), lost in prop::collection::vec(act(), 0..30),
        declining in 0..=ORDERS, restored_at in prop::option::of(prop::sample::select(vec![DEADLINE, EXTENDED])),
        is_reversed: bool,
    ) {
        let is_published = |act: &&Act| matches!(act, Act::Reserve(_) | Act::Cancel(_) | Act::Extend(_));
        let is_refund = |act: &Act| matches!(act, Act::Refund(_) | Act::Resolve(..));
        let acts = |acts: &[Act]| acts.iter().filter(|act| !is_refund(act)).cloned().collect::<Vec<_>>();
        let (kept, lost) = (acts(&kept), acts(&lost));
        let mut scene = Scene::new(declining);
        scene.payment.use_inbox = true;
        kept.iter().for_each(|act| scene.play(act));
        let copy = scene.payment.store.clone();
        lost.iter().for_each(|act| scene.play(act));
        scene.restore(copy, restored_at);
        let captured_before = scene.captured_of_standing_orders();
        let mut published: Vec<_> = kept.iter().chain(&lost).filter(is_published).collect();
        if is_reversed {
            published.reverse();
        }
        scene.let_needed_calls_end();
        published.into_iter().for_each(|act| scene.play(act));
        scene.let_needed_calls_end();
        scene.check_restored(&captured_before);
    }

    #[test]
    fn batch_has_same_effect_as_single_inputs(
        acts in prop::collection::vec(act(), 1..50), size in 2_usize..51, use_inbox: bool,
    ) {
        let mut scene = Scene::new(2);
        acts.iter().for_each(|act| scene.play(act));
        batches_do_what_single_inputs_do(|| PaymentService, &scene.played, size, use_inbox);
    }
}

#[derive(Debug, Clone)]
enum Act {
    Reserve(u128),
    Cancel(u128),
    /// Extends the deadline to [`EXTENDED`].
    Extend(u128),
    /// The first deadline passes.
    PassDeadline,
    Refund(u128),
    /// Manual resolution or withdrawal; older revisions may arrive late.
    Resolve(u128, bool, u64),
    /// Runs one of the tasks, possibly again. The request may be lost before or after the bank has acted.
    Call(prop::sample::Index, Fate),
    /// Asks whether one of the tasks is still needed.
    Ask(prop::sample::Index),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Answered,
    AnswerLost,
    NeverArrived,
}

/// State of a charge at the bank.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ledger {
    Captured,
    GivenBack,
    Refused,
    Blocked,
}

/// Payment service, and a bank that honours the payment id as idempotency key.
struct Scene {
    payment: ServiceUnderTest<PaymentService>,
    ledger: BTreeMap<Uuid, Ledger>,
    cancelled: BTreeSet<Uuid>,
    /// Tasks that were withdrawn before they were sent.
    withdrawn: BTreeSet<Uuid>,
    declining: u128,
    played: Vec<Stimulus<PaymentService>>,
}

impl Scene {
    /// Creates a scene in which the bank declines the order with this number.
    fn new(declining: u128) -> Self {
        let (ledger, cancelled) = (BTreeMap::new(), BTreeSet::new());
        Self {
            payment: ServiceUnderTest::of(PaymentService),
            ledger,
            cancelled,
            withdrawn: BTreeSet::new(),
            declining,
            played: Vec::new(),
        }
    }

    fn play(&mut self, act: &Act) {
        let stimulus = match act {
            Act::Reserve(order) => Stimulus::Fact(reserved(Uuid::from_u128(*order))),
            Act::Cancel(order) => {
                self.cancelled.insert(Uuid::from_u128(*order));
                Stimulus::Fact(cancelled(Uuid::from_u128(*order)))
            }
            Act::Extend(order) => Stimulus::Fact(extended(Uuid::from_u128(*order), EXTENDED)),
            Act::PassDeadline => {
                self.payment.now = self.payment.now.max(DEADLINE);
                return;
            }
            Act::Refund(order) => {
                let (id, order) =
                    (Uuid::from_u128(1000 + self.played.len() as u128), Uuid::from_u128(*order));
                Stimulus::Command { id, saga: order, command: Refund { order, operator: None }, key: None }
            }
            Act::Resolve(order, resolved, revision) => {
                Stimulus::Fact(resolved_manually(Uuid::from_u128(*order), *resolved, *revision))
            }
            Act::Call(..) | Act::Ask(_) if self.payment.store.called.is_empty() => return,
            Act::Ask(index) => {
                let unknown = FailedAttempt::new(FailureKind::NeverAttempted, "no longer needed");
                Stimulus::Called(self.task(*index), Err(unknown))
            }
            Act::Call(index, fate) => {
                let task = self.task(*index);
                // The runner held the only claim and did not call.
                if self.withdrawn.contains(&task.id) {
                    return;
                }
                self.call(task, *fate)
            }
        };
        self.played.push(stimulus.clone());
        let ended = if let Stimulus::Called(task, Err(failed)) = &stimulus {
            Some((task.id, task.claim, failed.kind))
        } else {
            None
        };
        let outcome = self.payment.takes(stimulus).outcome.name();
        match ended {
            Some((id, 1, FailureKind::NeverAttempted)) if outcome == "done" => {
                self.withdrawn.insert(id);
            }
            None | Some((_, _, FailureKind::NeverAttempted)) => {}
            // The next attempt has a new claim.
            Some((id, ..)) => drop(self.payment.store.tasks.get_mut(&id).map(|task| task.claim += 1)),
        }
    }

    /// One of the tasks so far, in its current state if it is open.
    fn task(&self, index: prop::sample::Index) -> Task {
        let noted = index.get(&self.payment.store.called);
        self.payment.store.tasks.get(&noted.id).unwrap_or(noted).clone()
    }

    fn call(&mut self, task: Task, fate: Fate) -> Stimulus<PaymentService> {
        if fate == Fate::NeverArrived {
            return Stimulus::Called(task, Err(no_answer("no connection")));
        }
        let answer = self.bank_does(&task);
        match fate {
            Fate::Answered => Stimulus::Called(task, Ok(serde_json::to_value(answer).expect("JSON"))),
            Fate::AnswerLost | Fate::NeverArrived => Stimulus::Called(task, Err(no_answer("timed out"))),
        }
    }

    fn bank_does(&mut self, task: &Task) -> BankAnswer {
        let BankTask { order, call, .. } = serde_json::from_str(&task.payload).expect("a task of the bank");
        let before = self.ledger.get(&order).copied();
        let after = match (call, before) {
            (BankCall::Charge { .. }, None) if order == Uuid::from_u128(self.declining) => Ledger::Refused,
            (BankCall::Charge { .. }, None) => Ledger::Captured,
            (BankCall::Charge { .. }, Some(before)) => {
                self.ledger.insert(order, before);
                return answer_to_charge(before);
            }
            (BankCall::Close, Some(before)) => return answer_to_closure(before),
            (BankCall::Reverse | BankCall::Close, None) => Ledger::Blocked,
            (BankCall::Refund | BankCall::Reverse, Some(Ledger::Captured)) => Ledger::GivenBack,
            (BankCall::Refund | BankCall::Reverse, Some(before)) => before,
            (BankCall::Refund, None) => panic!("a refund of a charge that the bank never saw"),
        };
        let is_charge = task.kind == CHARGE;
        self.ledger.insert(order, after);
        if is_charge { answer_to_charge(after) } else { BankAnswer::Undone }
    }

    /// Runs every open task until it is answered or given up, and all that follows.
    fn let_everything_end(&mut self) {
        while let Some(task) = self.payment.store.tasks.values().next().cloned() {
            let stimulus = self.call(task, Fate::Answered);
            self.payment.takes(stimulus);
        }
    }

    /// Puts the service back to an older copy, with the loss accepted.
    fn restore(&mut self, copy: InMemoryStore, at: Option<Timestamp>) {
        self.payment.store = copy;
        self.payment.lost_before = Some(self.payment.now);
        self.withdrawn.clear();
        self.payment.now = at.unwrap_or(self.payment.now).max(self.payment.now);
    }

    /// Orders whose money the bank has, without those that fail because their payment was given up or has expired.
    fn captured_of_standing_orders(&self) -> BTreeSet<Uuid> {
        let captured = self.ledger.iter().filter(|(_, state)| **state == Ledger::Captured);
        let captured = captured.map(|(order, _)| *order);
        let is_lost = |payment| matches!(payment, Payment::Reversing(_) | Payment::Expired { .. });
        captured.filter(|order| !is_lost(self.payment.row(*order))).collect()
    }

    /// Runs every open task that is still needed until it is answered, and all that follows.
    fn let_needed_calls_end(&mut self) {
        while let Some(task) = self.payment.store.tasks.values().next().cloned() {
            self.payment.checks_task(&task);
            if let Some(task) = self.payment.store.tasks.get(&task.id).cloned() {
                let stimulus = self.call(task, Fate::Answered);
                self.payment.takes(stimulus);
            }
        }
    }

    fn check_restored(&self, captured_before: &BTreeSet<Uuid>) {
        for order in (0..ORDERS).map(Uuid::from_u128) {
            let (state, at_bank): (Payment, _) = (self.payment.row(order), self.ledger.get(&order));
            if self.payment.store.dead.iter().any(|dead| dead.saga == Some(order)) {
                continue;
            }
            assert!(
                state.is_finished()
                    || state == Payment::New
                    || (matches!(state, Payment::Expired { .. }) && !self.cancelled.contains(&order)),
                "{state:?} ends"
            );
            if self.cancelled.contains(&order) {
                assert_ne!(at_bank, Some(&Ledger::Captured), "{state:?}: money of a cancelled order stays");
            } else if captured_before.contains(&order) {
                assert_eq!(at_bank, Some(&Ledger::Captured), "{state:?}: money of a standing order is gone");
                assert!(matches!(state, Payment::Captured(..)), "{state:?}: the capture is known again");
            }
        }
    }

    fn withdraw_all_resolutions(&mut self) {
        for order in (0..ORDERS).map(Uuid::from_u128) {
            self.payment.receives(resolved_manually(order, false, REVISIONS));
        }
    }

    fn check(&self, at_the_end: bool) {
        let kept = &self.payment.store;
        for (event, fact) in kept.events_with_facts::<Payment>() {
            assert_eq!(fact, fact_of(&event).map(FactType::name), "ledger and outbox agree about {event:?}");
        }
        for order in (0..ORDERS).map(Uuid::from_u128) {
            let of_order = kept.called.iter().filter(|task| task.correlation_id == order);
            let charges = of_order.filter(|task| task.kind == CHARGE).count();
            let events = kept.events_with_facts::<Payment>();
            let expired = events.filter(|(event, _)| matches!(event, PaymentEvent::Expired { .. })).count();
            assert!(charges <= 1 + expired, "{charges} charges of one order");

            let count = |wanted| {
                let published = self.payment.published();
                published
                    .iter()
                    .filter(|fact| fact.saga() == Some(order) && fact.fact_type() == wanted)
                    .count()
            };
            let (processed, refunded) = (count(FactType::PaymentProcessed), count(FactType::PaymentRefunded));
            let failed = count(FactType::PaymentFailed);
            // An extension has it published again.
            assert!(processed == 0 || failed == 0, "a payment has one outcome");
            assert!(refunded <= processed, "captured money is refunded at most once");
            let voided = count(FactType::PaymentVoided);
            assert!(voided + refunded <= 1, "a cancellation is answered once");

            let state: Payment = self.payment.row(order);
            let is_open = kept.tasks.values().any(|task| task.correlation_id == order);
            let is_dead_lettered = kept
                .dead
                .iter()
                .any(|dead_letter| dead_letter.saga == Some(order) && dead_letter.step == REFUND);
            if self.cancelled.contains(&order) {
                assert!(
                    !matches!(state, Payment::Captured(..)),
                    "money of a cancelled order is being refunded"
                );
                let is_resolved = matches!(state, Payment::ResolvedManually(_));
                let money_is_there = self.ledger.get(&order) == Some(&Ledger::Captured);
                assert!(
                    !money_is_there || is_open || is_dead_lettered || is_resolved,
                    "{state:?}: money of a cancelled order stays"
                );
            }
            if at_the_end && !is_dead_lettered {
                let is_unclear = matches!(state, Payment::Failed(_, reason) if reason.is_unclear());
                let is_answered = voided + refunded == 1 || (failed > 0 && !is_unclear);
                assert!(
                    is_answered || !self.cancelled.contains(&order),
                    "{state:?}: a cancellation is answered"
                );
                assert!(voided == 0 || self.ledger.get(&order) != Some(&Ledger::Captured), "void is void");
                self.check_end(order, &state);
            }
        }
    }

    /// Compares an ended payment with the bank's ledger.
    fn check_end(&self, order: Uuid, state: &Payment) {
        let at_bank = self.ledger.get(&order).copied();
        let expected = match state {
            Payment::Captured(..) => Some(Ledger::Captured),
            Payment::Refunded(..) => Some(Ledger::GivenBack),
            Payment::New => None,
            // The bank may have received the charge before.
            Payment::Void | Payment::Voided(_) => return,
            Payment::Failed(_, PaymentFailure::Exhausted) => {
                return assert_ne!(at_bank, Some(Ledger::Captured), "an exhausted charge is undone");
            }
            Payment::Failed(..) => Some(Ledger::Refused),
            Payment::Expired { .. } => {
                return assert!(!self.cancelled.contains(&order), "a charge of a cancelled order is undone");
            }
            Payment::Charging(_)
            | Payment::Doomed(_)
            | Payment::Closing(_)
            | Payment::Reversing(_)
            | Payment::Voiding(_)
            | Payment::Refunding(..)
            | Payment::ResolvedManually(_) => {
                panic!("{state:?} is not the end of a payment")
            }
        };
        assert_eq!(at_bank, expected, "bank ledger = payments");
    }
}

fn answer_to_charge(ledger: Ledger) -> BankAnswer {
    match ledger {
        Ledger::Captured => BankAnswer::Captured { reference: "ch_1".to_owned() },
        Ledger::Refused | Ledger::GivenBack | Ledger::Blocked => {
            BankAnswer::Refused { reason: PaymentFailure::Declined }
        }
    }
}

fn answer_to_closure(ledger: Ledger) -> BankAnswer {
    match ledger {
        Ledger::Captured | Ledger::Refused => answer_to_charge(ledger),
        Ledger::GivenBack | Ledger::Blocked => BankAnswer::Undone,
    }
}

fn act() -> impl Strategy<Value = Act> {
    // Most calls are answered, but few enough that some tasks use up their attempts.
    let fate = prop_oneof![
        ATTEMPTS => Just(Fate::Answered),
        2 => Just(Fate::AnswerLost),
        2 => Just(Fate::NeverArrived),
    ];
    prop_oneof![
        3 => (0..ORDERS).prop_map(Act::Reserve),
        2 => (0..ORDERS).prop_map(Act::Cancel),
        2 => (0..ORDERS).prop_map(Act::Extend),
        1 => Just(Act::PassDeadline),
        1 => (0..ORDERS).prop_map(Act::Refund),
        2 => (0..ORDERS, any::<bool>(), 1..REVISIONS).prop_map(|(order, is, at)| Act::Resolve(order, is, at)),
        8 => (any::<prop::sample::Index>(), fate).prop_map(|(index, fate)| Act::Call(index, fate)),
        3 => any::<prop::sample::Index>().prop_map(Act::Ask),
    ]
}

fn no_answer(reason: &str) -> FailedAttempt {
    FailedAttempt::new(FailureKind::Transient, reason)
}
