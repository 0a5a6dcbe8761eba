//! Shell: trials of messages that may have killed earlier processes, and injected crashes.
//!
//! A trial costs two changes of the record of crashes. There are none unless this instance has crashed again and again.

use std::ops::Range;

use jiff::Timestamp;
use saga_core::input::{Input, InputKind};
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

/// How a part of a batch begins.
pub(super) enum Begun {
    /// Nothing in it can be blamed for a crash.
    Untried,
    /// Its messages are recorded, and blamed if the process dies.
    Trial,
    /// It is one message of which processes keep dying, to be dead-lettered.
    Deadly { step: &'static str, message: Uuid, failure: FailedAttempt },
}

impl Trials {
    pub(super) const fn new(overrides: Overrides) -> Self {
        Self { overrides: Some(overrides) }
    }

    fn careful_record(&self, now: Timestamp) -> Option<RunRecord> {
        self.overrides.as_ref()?.careful_record(now)
    }

    /// Splits a batch: suspects are alone. The first part is last.
    pub(super) fn split<S: Service>(&self, inputs: &[Input<S>], now: Timestamp) -> Vec<Range<usize>> {
        let Some(record) = self.careful_record(now) else {
            return std::iter::once(0..inputs.len()).collect();
        };
        let is_suspect = |index: usize| {
            inputs[index].suspected_at().is_some_and(|step| record.is_suspect(step, inputs[index].id))
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
    pub(super) async fn begin<S: Service>(&self, part: &[Input<S>], now: Timestamp) -> Begun {
        let Some(overrides) = &self.overrides else { return Begun::Untried };
        let begun = match overrides.careful_record(now) {
            Some(record) => begin_trial(overrides, &record, part).await,
            None => Begun::Untried,
        };
        if !matches!(begun, Begun::Deadly { .. }) {
            for input in part {
                if let InputKind::Message(delivered) = &input.kind {
                    overrides.crash_on(delivered.step.name, input.id).await;
                }
            }
        }
        begun
    }

    /// Records that the outcome of a part is stored.
    pub(super) async fn end(&self, begun: Begun) {
        let Some(overrides) = &self.overrides else { return };
        let recorded = match begun {
            Begun::Untried => return,
            Begun::Trial => overrides.change_run(RunRecord::end_trial).await,
            Begun::Deadly { step, message, .. } => {
                overrides.change_run(|record| record.dead_lettered(step, message)).await
            }
        };
        if let Err(fault) = recorded {
            warn!("end of a trial not recorded: {}", error_chain(&fault));
        }
    }
}

async fn begin_trial<S: Service>(overrides: &Overrides, record: &RunRecord, part: &[Input<S>]) -> Begun {
    let tried = |input: &Input<S>| input.suspected_at().map(|step| (step, input.id));
    let messages: Vec<(&'static str, Uuid)> = part.iter().filter_map(tried).collect();
    if let [(step, message)] = messages[..]
        && let Some(deaths) = record.deadly(step, message)
    {
        let why = format!("the process has died {deaths} times of this message alone");
        error!(step, message_id = %message, "message dead-lettered: {why}");
        return Begun::Deadly { step, message, failure: FailedAttempt::new(FailureKind::Permanent, why) };
    }
    if messages.is_empty() {
        return Begun::Untried;
    }
    let is_alone = part.len() == 1;
    match overrides.change_run(|record| record.begin_trial(messages, is_alone)).await {
        Ok(()) => Begun::Trial,
        Err(fault) => {
            warn!("trial of messages not recorded: {}", error_chain(&fault));
            Begun::Untried
        }
    }
}
