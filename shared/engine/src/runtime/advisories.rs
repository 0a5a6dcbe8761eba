//! Shell: processes advisories: each message that the broker gave up is tried once more, or dead-lettered.

use std::collections::BTreeMap;
use std::time::Duration;

use saga_core::dead_letter::DeliveryInfo;
use saga_core::input::{Input, MessageOutcome, Outcome};
use saga_core::retry::{FailedAttempt, FailureKind};
use saga_core::service::Service;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::admission::StepAdmission;
use super::bus::{Advisories, Advisory, Bus, BusError, Durable};
use super::engine::{Engine, Unavailable};

const PAUSE: Duration = Duration::from_secs(1);

/// Deliveries of one advisory up to which its message is tried. Earlier receivers died of the message, or lost the broker
/// at that moment. More than one, as operators restart healthy processes during an outage.
const MAX_ADVISORY_DELIVERIES: u64 = 3;

/// Processes the advisories about these consumers until dropped.
pub async fn run<S: Service, B: Bus>(bus: B, engine: Engine<S>, durables: Vec<(Durable, StepAdmission)>) {
    let names: Vec<Durable> = durables.iter().map(|(durable, _)| *durable).collect();
    let admissions = durables.into_iter().map(|(durable, admission)| (durable.name(), admission)).collect();
    loop {
        if let Err(reason) = process_all(&bus, &engine, &names, &admissions).await {
            debug!("advisories interrupted: {reason}");
        }
        sleep(PAUSE).await;
    }
}

async fn process_all<S: Service, B: Bus>(
    bus: &B,
    engine: &Engine<S>,
    durables: &[Durable],
    admissions: &BTreeMap<String, StepAdmission>,
) -> Result<(), BusError> {
    let mut advisories = bus.advisories(durables).await?;
    let mut dead_lettered = None;
    loop {
        let mut advisory = advisories.next().await?;
        let DeliveryInfo { stream, sequence, .. } = &advisory.delivery;
        let message = (advisory.durable.clone(), stream.clone(), *sequence);
        // Earlier receivers died of another fact in the same message, and did not get to this one.
        if dead_lettered.as_ref() == Some(&message) {
            advisory.deliveries = 1;
        }
        if let Some(admission) = admissions.get(&advisory.durable) {
            let is_too_often = advisory.deliveries > MAX_ADVISORY_DELIVERIES;
            let mut processing = std::pin::pin!(process_until_stored(engine, admission, advisory));
            // In progress as long as it takes: the advisory goes to no other process, and counts as delivered once.
            let outcome = loop {
                match timeout(bus.ack_wait() / 3, &mut processing).await {
                    Ok(outcome) => break outcome,
                    Err(_) => advisories.in_progress().await?,
                }
            };
            if is_too_often && matches!(outcome, Outcome::Message(MessageOutcome::Dead(_))) {
                dead_lettered = Some(message);
            }
        }
        advisories.acknowledge().await?;
    }
}

/// Processes an advisory, and repeats that until its outcome is stored.
async fn process_until_stored<S: Service>(
    engine: &Engine<S>,
    admission: &StepAdmission,
    advisory: Advisory,
) -> Outcome<S> {
    let DeliveryInfo { stream, sequence, .. } = &advisory.delivery;
    warn!(
        step = admission.step().name,
        stream, sequence, "message given up by the broker: {}", advisory.reason
    );
    loop {
        match process(engine, admission, advisory.clone()).await {
            Ok(outcome) => return outcome,
            Err(Unavailable) => sleep(PAUSE).await,
        }
    }
}

/// Runs the step once more, as an outage may have caused the advisory. The message is then processed, retried or
/// dead-lettered like any other; if the step has processed it meanwhile, it is a duplicate.
async fn process<S: Service>(
    engine: &Engine<S>,
    admission: &StepAdmission,
    advisory: Advisory,
) -> Result<Outcome<S>, Unavailable> {
    let step = admission.step();
    let failure = failure(admission, &advisory);
    let Advisory { payload, delivery, .. } = advisory;
    let input = Input::from_broker(step, payload, delivery, fastrand::u32(..))
        .with_redelivery(true)
        .with_injected_failure(failure);
    engine.process(input).await
}

/// Reason not to run the step now, if any.
fn failure(admission: &StepAdmission, advisory: &Advisory) -> Option<FailedAttempt> {
    let Advisory { payload, reason, is_terminated, deliveries, .. } = advisory;
    // A message that this process left alone, as a breaker was open or the store failed, is not to blame. After a crash
    // nothing of that is remembered. A replica does not know what another one left alone, and need not: it runs the step,
    // unless several receivers died or lost the broker before. Then a dead letter keeps the message for a replay.
    let was_left_alone = admission.was_interrupted();
    let is_too_often = *deliveries > MAX_ADVISORY_DELIVERIES && !was_left_alone;
    let kind = if *is_terminated || payload.is_empty() || is_too_often {
        FailureKind::Permanent
    } else if admission.is_blocked() {
        // The message waits with its step, and no attempt is consumed.
        FailureKind::Outage
    } else {
        return None;
    };
    Some(FailedAttempt::new(kind, reason.clone()))
}
