//! Shell: the calls that payment has noted: any of them may be lost on the way there or back.

use bank::policy::{Answer, Command as BankCommand, Wish};
use payment::policy::{BankAnswer, BankCall, BankTask, PaymentService};
use shared::engine::{Input, Outcome};
use shared::ids;
use shared::resilience::{Permit, Verdict};
use shared::retry::{FailedTry, Severity};
use shared::store::Task;

use crate::network::failed;
use crate::node::clock;
use crate::sabotage::Sabotage;
use crate::trouble::NO_ANSWER;
use crate::world::World;

/// The bank's breaker.
const BANK: &str = "bank";

impl World {
    /// Makes the calls that the breaker lets through; one of them, as long as the world is rough.
    pub(crate) fn call_the_bank(&mut self) {
        while !self.payment.tasks.is_empty() {
            let at = clock(self.now);
            let Some(permit) = self.payment.breakers.acquire(BANK, at) else {
                return;
            };
            let index = self.rng.usize(0..self.payment.tasks.len());
            let task = self.payment.tasks.swap_remove(index);
            let answer = self.ask_the_bank(&task);
            self.note(|| format!("bank: {} -> {answer:?}", task.payload));
            if self.chance(self.weather.dies) {
                self.payment.crash(self.now);
                return;
            }
            let id = task.id;
            let answer = self.judged(&task, answer, permit);
            let input = Input::called(task, answer, self.rng.u32(..));
            if let Ok(committed) = self.payment.commit(vec![input], self.now) {
                committed.outcomes.iter().for_each(|outcome| self.see(outcome));
                if !matches!(committed.outcomes[..], [Outcome::Retried(_)]) {
                    self.payment.breakers.answers.settled(id);
                }
            }
            if self.is_rough {
                return;
            }
        }
    }

    /// Tells the breaker, and finds out what a failure means, as `shared::engine::calls` does.
    fn judged(
        &mut self,
        task: &Task,
        answer: Result<serde_json::Value, NoAnswer>,
        permit: Permit,
    ) -> Result<serde_json::Value, FailedTry> {
        let at = clock(self.now);
        match answer {
            Ok(answer) => {
                self.payment.breakers.answers.answered(at);
                self.payment.breakers.record(BANK, permit, Verdict::Success, at);
                Ok(answer)
            }
            // It was there to say no.
            Err(NoAnswer::Never(why)) => {
                self.payment.breakers.answers.answered(at);
                self.payment.breakers.record(BANK, permit, Verdict::Ignored, at);
                Err(FailedTry::new(Severity::Permanent, format!("{NO_ANSWER}{why}")))
            }
            Err(NoAnswer::NotNow(why)) => {
                let left = failed::<PaymentService>(self, |world| &mut world.payment, BANK, permit);
                let is_about_the_call = self.payment.breakers.answers.failed(task.id, at);
                let consumes = self.sabotage == Sabotage::OutageConsumesAttempts || is_about_the_call;
                let severity = if consumes { left } else { Severity::Outage };
                Err(FailedTry::new(severity, format!("{NO_ANSWER}{why}")))
            }
        }
    }

    fn ask_the_bank(&mut self, task: &Task) -> Result<serde_json::Value, NoAnswer> {
        let BankTask { order, call } = serde_json::from_str(&task.payload)?;
        if self.sabotage == Sabotage::RefundOnPaperOnly && call == BankCall::Refund {
            return Ok(serde_json::to_value(BankAnswer::Undone)?);
        }
        let is_charge = matches!(call, BankCall::Charge(_));
        let fails = if is_charge { self.weather.charge_fails } else { self.weather.refund_fails };
        if self.is_bank_away() || self.chance(fails) {
            return Err(NoAnswer::NotNow("it cannot be reached".to_owned()));
        }
        if !is_charge && self.chance(self.weather.refund_refused) {
            return Err(NoAnswer::Never("it refuses to give money back".to_owned()));
        }
        let ignores_key = self.sabotage == Sabotage::BankIgnoresKey && is_charge;
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
        let not_now = |why: &str| NoAnswer::NotNow(why.to_owned());
        let committed =
            self.bank.commit(vec![input], self.now).map_err(|fault| not_now(&fault.to_string()))?;
        if self.chance(self.weather.answer_lost) {
            return Err(not_now("its answer was lost"));
        }
        let answer = match committed.outcomes.into_iter().next() {
            Some(Outcome::Done(answer) | Outcome::Replayed(answer)) => answer,
            Some(other) => return Err(not_now(other.name())),
            None => return Err(not_now("it said nothing")),
        };
        let answer = match answer {
            Answer::Captured { reference, .. } => BankAnswer::Captured { reference },
            Answer::Refused { reason } => BankAnswer::Refused { reason },
            Answer::Undone => BankAnswer::Undone,
            Answer::Stumbled => return Err(not_now("it stumbled")),
        };
        Ok(serde_json::to_value(answer)?)
    }
}

/// Why a call has no answer.
#[derive(Debug)]
enum NoAnswer {
    /// It may or may not have had its effect, and is worth another try.
    NotNow(String),
    /// The bank says that it can never work.
    Never(String),
}

impl From<serde_json::Error> for NoAnswer {
    fn from(error: serde_json::Error) -> Self {
        Self::Never(error.to_string())
    }
}
