//! Shell: trials of messages that may have killed earlier processes, and injected crashes.
//!
//! A trial costs two changes of the record of crashes. There are none unless this instance has crashed again and again.

use std::ops::Range;

use jiff::Timestamp;
use saga_core::input::{Input, InputKind, MessageOutcome, Outcome};
use saga_core::retry::{FailedAttempt, FailureKind, error_chain};
use saga_core::run_record::RunRecord;
use saga_core::service::Service;
use tracing::{error, warn};
use uuid::Uuid;

use crate::runtime::overrides::Overrides;

/// Trials of one engine. Without overrides there are none.
#[derive(Default)]
pub(super) struct Trials {
    overrides: Option<Overrides>,
}

/// Treatment of a part of a batch.
pub(super) enum Treatment {
    /// Processed as always: nothing in it can be blamed for a crash.
    Ordinary,
    /// Messages are recorded first, and blamed if the process dies.
    Trial,
    /// The only message is one of which processes keep dying. It fails unprocessed.
    Fail { step: &'static str, message: Uuid, failure: FailedAttempt },
}

impl Trials {
    pub(super) const fn new(overrides: Overrides) -> Self {
        Self { overrides: Some(overrides) }
    }

    fn record_in_trials(&self, now: Timestamp) -> Option<RunRecord> {
        self.overrides.as_ref()?.record_in_trials(now)
    }

    /// Splits a batch so that suspects are alone. In reverse order, to be popped.
    pub(super) fn split<S: Service>(&self, inputs: &[Input<S>], now: Timestamp) -> Vec<Range<usize>> {
        let Some(record) = self.record_in_trials(now) else {
            return std::iter::once(0..inputs.len()).collect();
        };
        let is_suspect = |index: usize| {
            inputs[index].suspect_step().is_some_and(|step| record.is_suspect(step, inputs[index].id))
        };
        let mut parts: Vec<Range<usize>> = Vec::new();
        for index in 0..inputs.len() {
            match parts.last_mut() {
                Some(last) if !is_suspect(index) && !is_suspect(last.start) => last.end = index + 1,
                Some(_) | None => parts.push(index..index + 1),
            }
        }
        parts.reverse();
        parts
    }

    /// Records the trial of a part, if there is one to record. Makes the crash of an injected fault.
    pub(super) async fn begin<S: Service>(&self, part: &[Input<S>], now: Timestamp) -> Treatment {
        let Some(overrides) = &self.overrides else { return Treatment::Ordinary };
        let treatment = match overrides.record_in_trials(now) {
            Some(record) => begin_trial(overrides, &record, part).await,
            None => Treatment::Ordinary,
        };
        if !matches!(treatment, Treatment::Fail { .. }) {
            for input in part {
                if let InputKind::Message(delivered) = &input.kind {
                    overrides.crash_on(delivered.step.name, input.id).await;
                }
            }
        }
        treatment
    }

    /// Records that the outcome of a trial is stored.
    pub(super) async fn end(&self, treatment: Treatment) {
        if matches!(treatment, Treatment::Trial) {
            self.change(RunRecord::end_trial).await;
        }
    }

    /// Records what became of a deadly message.
    pub(super) async fn end_deadly(&self, step: &'static str, message: Uuid, failed: FailedMessage) {
        match failed {
            FailedMessage::DeadLettered => self.change(|record| record.dead_lettered(step, message)).await,
            // The process died between its commit and the acknowledgement.
            FailedMessage::Duplicate => self.change(|record| record.processed(step, message)).await,
            // It is never processed while it is deadly.
            FailedMessage::Retried | FailedMessage::NotStored => {}
        }
    }

    async fn change(&self, change: impl FnOnce(&mut RunRecord) + Send) {
        let Some(overrides) = &self.overrides else { return };
        if let Err(fault) = overrides.change_run(change).await {
            warn!("end of a trial not recorded: {}", error_chain(&fault));
        }
    }
}

/// Outcome of a message that failed without being processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailedMessage {
    DeadLettered,
    /// A message that is never dead-lettered, such as the report of a dead letter.
    Retried,
    /// Already processed before the crash.
    Duplicate,
    NotStored,
}

impl FailedMessage {
    pub(super) fn of<S: Service>(outcomes: &[Outcome<S>]) -> Self {
        match outcomes {
            [Outcome::Message(MessageOutcome::Dead(_))] => Self::DeadLettered,
            [Outcome::Message(MessageOutcome::Retried(_))] => Self::Retried,
            _ => Self::Duplicate,
        }
    }
}

async fn begin_trial<S: Service>(overrides: &Overrides, record: &RunRecord, part: &[Input<S>]) -> Treatment {
    let tried = |input: &Input<S>| input.suspect_step().map(|step| (step, input.id));
    let messages: Vec<(&'static str, Uuid)> = part.iter().filter_map(tried).collect();
    if let [(step, message)] = messages[..]
        && let Some(deaths) = record.deadly(step, message)
    {
        let why = format!("the process has died {deaths} times of this message alone");
        error!(step, message_id = %message, "message not processed: {why}");
        return Treatment::Fail { step, message, failure: FailedAttempt::new(FailureKind::Permanent, why) };
    }
    if messages.is_empty() {
        return Treatment::Ordinary;
    }
    let is_alone = part.len() == 1;
    match overrides.change_run(|record| record.begin_trial(messages, is_alone)).await {
        Ok(()) => Treatment::Trial,
        Err(fault) => {
            warn!("trial of messages not recorded: {}", error_chain(&fault));
            Treatment::Ordinary
        }
    }
}
