//! Pure: what holds of payments whatever is heard, and whatever the bank does, in whatever order, however often.

use std::collections::{BTreeMap, BTreeSet};

use contract::FactType;
use contract::payment::PaymentFailure;
use payment::domain::{Payment, PaymentEvent};
use payment::policy::{BankAnswer, BankCall, BankTask, CHARGE, GIVE_BACK, PaymentService, Refund, fact_of};
use proptest::prelude::*;
use saga_core::Message as _;
use saga_core::retry::{FailedTry, FailureKind};
use saga_core::waiting::Task;
use uuid::Uuid;

use crate::given::{cancelled, reserved, settled_outside};
use crate::table::commands;
use saga_engine::testing::decider::any_sequence;
use saga_engine::testing::{ATTEMPTS, ServiceUnderTest, Stimulus, batches_do_what_single_inputs_do};

const ORDERS: u128 = 3;
/// More than what operators have said of any order.
const REVISIONS: u64 = 20;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_payment_takes_any_sequence_of_commands(
        commands in prop::collection::vec(prop::sample::select(commands()), 0..16),
    ) {
        let mut happened = Vec::new();
        any_sequence::<Payment>(&commands, |_| false, |payment, events| {
            happened.extend(events.iter().cloned());
            let count = |wanted: fn(&PaymentEvent) -> bool| happened.iter().filter(|event| wanted(event)).count();
            let captured = count(|event| matches!(event, PaymentEvent::Captured(_)));
            assert!(captured <= 1, "money comes at most once");
            assert!(count(|event| matches!(event, PaymentEvent::Refunded)) <= captured, "and goes back if it came");
            assert_eq!(payment.reference().is_empty(), captured == 0, "{payment:?} knows whether it came");
        });
    }

    #[test]
    fn money_of_a_cancelled_order_never_stays(
        acts in prop::collection::vec(act(), 0..50), declining in 0..=ORDERS,
    ) {
        let mut scene = Scene::new(declining);
        for act in &acts {
            scene.play(act);
            scene.check(false);
        }
        scene.let_everything_end();
        scene.unsettle_all();
        scene.let_everything_end();
        scene.check(true);
        scene.payment.kept.measures_only(payment::program().metrics);
    }

    #[test]
    fn a_batch_does_what_its_inputs_do_one_by_one(
        acts in prop::collection::vec(act(), 1..50), size in 2_usize..51, use_inbox: bool,
    ) {
        let mut scene = Scene::new(2);
        acts.iter().for_each(|act| scene.play(act));
        batches_do_what_single_inputs_do(|| PaymentService, &scene.played, size, use_inbox);
    }
}

/// Something that may happen.
#[derive(Debug, Clone)]
enum Act {
    Reserve(u128),
    Cancel(u128),
    Refund(u128),
    /// Settled outside, or no longer; words of an older revision come late.
    Settle(u128, bool, u64),
    /// One of the tasks noted so far is called, again if it was before; a call may be lost before or after the
    /// bank has done what it was asked.
    Call(prop::sample::Index, Fate),
    /// One of the tasks is about to be called, and asked about.
    Ask(prop::sample::Index),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Answered,
    AnswerLost,
    NeverArrived,
}

/// How a charge stands in the bank's ledger.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ledger {
    Captured,
    GivenBack,
    Refused,
    Blocked,
}

/// A payment service and a bank that honours the payment's id as idempotency key.
struct Scene {
    payment: ServiceUnderTest<PaymentService>,
    ledger: BTreeMap<Uuid, Ledger>,
    cancelled: BTreeSet<Uuid>,
    /// Tasks that nobody called, nor will.
    withdrawn: BTreeSet<Uuid>,
    declining: u128,
    played: Vec<Stimulus<PaymentService>>,
}

impl Scene {
    /// The bank declines the order of this number.
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
            Act::Refund(order) => {
                let (id, order) =
                    (Uuid::from_u128(1000 + self.played.len() as u128), Uuid::from_u128(*order));
                Stimulus::Command { id, saga: order, command: Refund { order }, key: None }
            }
            Act::Settle(order, settled, revision) => {
                Stimulus::Fact(settled_outside(Uuid::from_u128(*order), *settled, *revision))
            }
            Act::Call(..) | Act::Ask(_) if self.payment.kept.called.is_empty() => return,
            Act::Ask(index) => {
                let unknown = FailedTry::new(FailureKind::Untried, "nobody wants it any more");
                Stimulus::Called(self.task(*index), Err(unknown))
            }
            Act::Call(index, fate) => {
                let task = self.task(*index);
                // Its only claim was that of the one who did not call.
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
            Some((id, 1, FailureKind::Untried)) if outcome == "done" => drop(self.withdrawn.insert(id)),
            None | Some((_, _, FailureKind::Untried)) => {}
            // Whoever tries it next has claimed it anew.
            Some((id, ..)) => drop(self.payment.kept.tasks.get_mut(&id).map(|task| task.claim += 1)),
        }
    }

    /// One of the tasks noted so far, as it is now if it is open.
    fn task(&self, index: prop::sample::Index) -> Task {
        let noted = index.get(&self.payment.kept.called);
        self.payment.kept.tasks.get(&noted.id).unwrap_or(noted).clone()
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
            (BankCall::Reverse, None) => Ledger::Blocked,
            (BankCall::Refund | BankCall::Reverse, Some(Ledger::Captured)) => Ledger::GivenBack,
            (BankCall::Refund | BankCall::Reverse, Some(before)) => before,
            (BankCall::Refund, None) => panic!("a refund of a charge that the bank never saw"),
        };
        let is_charge = task.kind == CHARGE;
        self.ledger.insert(order, after);
        if is_charge { answer_to_charge(after) } else { BankAnswer::Undone }
    }

    /// Every open task is called until it is answered or given up, and what that causes too.
    fn let_everything_end(&mut self) {
        while let Some(task) = self.payment.kept.tasks.values().next().cloned() {
            let stimulus = self.call(task, Fate::Answered);
            self.payment.takes(stimulus);
        }
    }

    /// Nothing was settled outside, after all.
    fn unsettle_all(&mut self) {
        for order in (0..ORDERS).map(Uuid::from_u128) {
            self.payment.hears(settled_outside(order, false, REVISIONS));
        }
    }

    fn check(&self, at_the_end: bool) {
        let kept = &self.payment.kept;
        for (event, fact) in kept.events_told::<Payment>() {
            assert_eq!(fact, fact_of(&event).map(FactType::name), "the ledger knows what {event:?} tells");
        }
        for order in (0..ORDERS).map(Uuid::from_u128) {
            let of_order = kept.called.iter().filter(|task| task.correlation_id == order);
            let charges = of_order.filter(|task| task.kind == CHARGE).count();
            assert!(charges <= 1, "{charges} charges of one order");

            let count = |wanted| {
                let told = self.payment.told();
                told.iter().filter(|fact| fact.saga() == Some(order) && fact.fact_type() == wanted).count()
            };
            let (processed, refunded) = (count(FactType::PaymentProcessed), count(FactType::PaymentRefunded));
            let failed = count(FactType::PaymentFailed);
            assert!(processed + failed <= 1, "the outcome of a payment is told once");
            assert!(refunded <= processed, "money goes back once, if it came");
            let voided = count(FactType::PaymentVoided);
            assert!(voided + refunded <= 1, "a cancellation is answered once");

            let state: Payment = self.payment.row(order);
            let is_open = kept.tasks.values().any(|task| task.correlation_id == order);
            let is_parked = kept
                .dead
                .iter()
                .any(|dead_letter| dead_letter.saga == Some(order) && dead_letter.step == GIVE_BACK);
            if self.cancelled.contains(&order) {
                assert!(
                    !matches!(state, Payment::Captured(..)),
                    "money of a cancelled order is on its way back"
                );
                let is_settled = matches!(state, Payment::Settled(_));
                let money_is_there = self.ledger.get(&order) == Some(&Ledger::Captured);
                assert!(
                    !money_is_there || is_open || is_parked || is_settled,
                    "{state:?}: money of a cancelled order stays"
                );
            }
            if at_the_end && !is_parked {
                let is_unclear = matches!(state, Payment::Failed(_, reason) if reason.is_unclear());
                let is_answered = voided + refunded == 1 || (failed == 1 && !is_unclear);
                assert!(
                    is_answered || !self.cancelled.contains(&order),
                    "{state:?}: a cancellation is answered"
                );
                assert!(voided == 0 || self.ledger.get(&order) != Some(&Ledger::Captured), "void is void");
                let books = match &state {
                    Payment::Captured(..) => Some(Ledger::Captured),
                    Payment::Refunded(..) => Some(Ledger::GivenBack),
                    Payment::New => None,
                    // The bank may have heard of it before.
                    Payment::Void | Payment::Voided(_) => continue,
                    Payment::Failed(_, PaymentFailure::Exhausted) => {
                        assert_ne!(
                            self.ledger.get(&order),
                            Some(&Ledger::Captured),
                            "an exhausted charge is undone"
                        );
                        continue;
                    }
                    Payment::Failed(..) => Some(Ledger::Refused),
                    Payment::Charging(_)
                    | Payment::Doomed(_)
                    | Payment::Reversing(_)
                    | Payment::Voiding(_)
                    | Payment::Refunding(..)
                    | Payment::Settled(_) => {
                        panic!("{state:?} is not the end of a payment")
                    }
                };
                assert_eq!(self.ledger.get(&order).copied(), books, "bank ledger = payments");
            }
        }
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

fn act() -> impl Strategy<Value = Act> {
    // Most calls are answered; few enough are that some tasks use up all their tries.
    let fate = prop_oneof![
        ATTEMPTS => Just(Fate::Answered),
        2 => Just(Fate::AnswerLost),
        2 => Just(Fate::NeverArrived),
    ];
    prop_oneof![
        3 => (0..ORDERS).prop_map(Act::Reserve),
        2 => (0..ORDERS).prop_map(Act::Cancel),
        1 => (0..ORDERS).prop_map(Act::Refund),
        2 => (0..ORDERS, any::<bool>(), 1..REVISIONS).prop_map(|(order, is, at)| Act::Settle(order, is, at)),
        8 => (any::<prop::sample::Index>(), fate).prop_map(|(index, fate)| Act::Call(index, fate)),
        3 => any::<prop::sample::Index>().prop_map(Act::Ask),
    ]
}

fn no_answer(reason: &str) -> FailedTry {
    FailedTry::new(FailureKind::Transient, reason)
}
