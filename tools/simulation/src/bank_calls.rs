//! Shell: the calls to a real bank, any of which may be lost on the way there or back.

use std::time::Duration;

use bank::domain::ChargeRequest;
use bank::service::{Answer, BankService, Command, CommandKind};
use futures::future::BoxFuture;
use payment::bank_task::{BankAnswer, BankCall, BankTask};
use saga_core::input::{CommandOutcome, Input, Outcome};
use saga_core::waiting::Task;
use saga_engine::runtime::task_runner::{CallFailed, TaskHandler};
use serde_json::Value;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::coverage::CoveragePoint;
use crate::failure_reasons::BANK_FAILED;
use crate::instance::LiveInstances;
use crate::invariants::BANK;
use crate::planted_fault::PlantedFault;
use crate::process::Process;

/// Time limit for the bank's engine, shorter than that of the call.
const BANK_TIMEOUT: Duration = Duration::from_secs(6);

/// The bank as one process of payment reaches it.
pub struct BankHandler {
    process: Process,
    bank: LiveInstances<BankService>,
}

impl BankHandler {
    pub const fn new(process: Process, bank: LiveInstances<BankService>) -> Self {
        Self { process, bank }
    }

    async fn ask(&self, task: &Task) -> Result<Value, CallFailed> {
        let sim = self.process.sim();
        let task: BankTask =
            serde_json::from_str(&task.payload).map_err(|error| permanent(&error.to_string()))?;
        let BankTask { order, payment, call, .. } = task;
        self.process.crash_point("before it calls the bank").await;
        if sim.has(PlantedFault::RefundNotSent) && call == BankCall::Refund {
            return answered(&BankAnswer::Undone);
        }
        sleep(sim.up_to(20)).await;
        let is_charge = matches!(call, BankCall::Charge { .. });
        let fails = if is_charge { sim.profile().charge_fails } else { sim.profile().refund_fails };
        if sim.is_bank_away() || sim.chance(fails) {
            self.maybe_hang().await;
            return Err(transient("it cannot be reached"));
        }
        if !is_charge && sim.chance(sim.profile().refund_refused) {
            return Err(permanent("it refuses to give money back"));
        }
        let ignores_key = sim.has(PlantedFault::BankIgnoresKey) && is_charge;
        let charge = if ignores_key { sim.fresh_id() } else { payment };
        let answer = self.answer_of(charge, kind(order, call)).await;
        self.process.crash_point("with the bank's answer in hand").await;
        if sim.chance(sim.profile().answer_lost) {
            self.maybe_hang().await;
            return Err(transient("its answer was lost"));
        }
        answered(&answer?)
    }

    /// Sometimes hangs in place of an error, so that only the call's time-out ends it.
    async fn maybe_hang(&self) {
        if self.process.sim().chance(self.process.sim().profile().bank_hangs) {
            self.process.sim().count(CoveragePoint::CallTimedOut);
            std::future::pending::<()>().await;
        }
    }

    async fn answer_of(&self, charge: Uuid, kind: CommandKind) -> Result<BankAnswer, CallFailed> {
        let id = self.process.sim().fresh_id();
        let Some(engine) = self.bank.engine() else { return Err(transient("it refuses the connection")) };
        let input = Input::command(id, charge, Command { charge, kind }, None);
        let processed = timeout(BANK_TIMEOUT, engine.process(input)).await;
        let outcome = match processed {
            Ok(Ok(Outcome::Command(outcome))) => outcome,
            Ok(Ok(Outcome::Message(_) | Outcome::Due(_)) | Err(_)) => return Err(transient("it broke")),
            Err(_) => return Err(transient("it is too slow")),
        };
        match outcome {
            CommandOutcome::Done(answer) | CommandOutcome::Replayed(answer) => match answer {
                Answer::Captured { reference, .. } => Ok(BankAnswer::Captured { reference }),
                Answer::Refused { reason } => Ok(BankAnswer::Refused { reason }),
                Answer::Undone => Ok(BankAnswer::Undone),
                Answer::FailedOnce => Err(transient("it failed once, on purpose")),
            },
            CommandOutcome::Rejected(rejection) => Err(permanent(&rejection.to_string())),
            CommandOutcome::KeyReused => Err(transient("it has another request under the key")),
            CommandOutcome::Faulted(reason) => Err(transient(&reason)),
        }
    }
}

impl TaskHandler for BankHandler {
    fn dependency(&self) -> &'static str {
        BANK
    }

    fn call<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<Value, CallFailed>> {
        Box::pin(async move {
            let answer = self.ask(task).await;
            self.process.sim().note(|| format!("bank: {} -> {answer:?}", task.payload));
            answer
        })
    }
}

fn kind(order: Uuid, call: BankCall) -> CommandKind {
    match call {
        BankCall::Charge { context, .. } => CommandKind::Capture(ChargeRequest {
            amount: context.total,
            token: context.token,
            reference: order.to_string(),
        }),
        BankCall::Refund => CommandKind::Refund,
        BankCall::Reverse => CommandKind::Reverse,
        BankCall::Close => CommandKind::Close,
    }
}

fn answered(answer: &BankAnswer) -> Result<Value, CallFailed> {
    serde_json::to_value(answer).map_err(|error| transient(&error.to_string()))
}

fn transient(why: &str) -> CallFailed {
    CallFailed::transient(format!("{BANK_FAILED}{why}"))
}

fn permanent(why: &str) -> CallFailed {
    CallFailed { is_final: true, ..transient(why) }
}
