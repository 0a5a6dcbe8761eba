//! Shell: what the broker gives up on: each service tries once more what one of its steps was to have, and parks what
//! cannot be tried.

use std::collections::BTreeMap;
use std::time::Duration;

use saga_core::dead_letter::DeliveryInfo;
use saga_core::input::{Input, MessageOutcome, Outcome};
use saga_core::retry::{FailedAttempt, FailureKind};
use saga_core::service::Service;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::admission::StepAdmission;
use super::bus::{Bus, BusError, Durable, GivenUp, GivenUps};
use super::engine::{Engine, Unavailable};

/// Pause after something went wrong.
const PAUSE: Duration = Duration::from_secs(1);

/// Who was told of a message so often, this time counted, tries it no more: those who were told before died of it, or
/// lost the broker at that moment. More than one, because an outage has people restart what has done nothing wrong.
const TRIED_UNTIL_TOLD: u64 = 3;

/// Tries or parks what the broker gives up on, until dropped.
pub async fn run<S: Service, B: Bus>(bus: B, engine: Engine<S>, durables: Vec<(Durable, StepAdmission)>) {
    let names: Vec<Durable> = durables.iter().map(|(durable, _)| *durable).collect();
    let admissions = durables.into_iter().map(|(durable, admission)| (durable.name(), admission)).collect();
    loop {
        if let Err(reason) = listen(&bus, &engine, &names, &admissions).await {
            debug!("what is given up cannot be heard: {reason}");
        }
        sleep(PAUSE).await;
    }
}

async fn listen<S: Service, B: Bus>(
    bus: &B,
    engine: &Engine<S>,
    durables: &[Durable],
    admissions: &BTreeMap<String, StepAdmission>,
) -> Result<(), BusError> {
    let mut given_ups = bus.given_ups(durables).await?;
    let mut blamed = None;
    loop {
        let mut given_up = given_ups.next().await?;
        let DeliveryInfo { stream, sequence, .. } = &given_up.delivery;
        let place = (given_up.durable.clone(), stream.clone(), *sequence);
        // Whoever died of what came before in the same message did not get to this: it is told for the first time.
        if blamed.as_ref() == Some(&place) {
            given_up.told = 1;
        }
        if let Some(admission) = admissions.get(&given_up.durable) {
            let is_too_often = given_up.told > TRIED_UNTIL_TOLD;
            let mut taken = std::pin::pin!(until_taken(engine, admission, given_up));
            // As long as it takes it is told to this process alone, and counts as told once.
            let outcome = loop {
                match timeout(bus.ack_wait() / 3, &mut taken).await {
                    Ok(outcome) => break outcome,
                    Err(_) => given_ups.in_progress().await?,
                }
            };
            if is_too_often && matches!(outcome, Outcome::Message(MessageOutcome::Dead(_))) {
                blamed = Some(place);
            }
        }
        given_ups.acknowledge().await?;
    }
}

/// Takes it as soon as anything can be stored. Answers what became of it.
async fn until_taken<S: Service>(
    engine: &Engine<S>,
    admission: &StepAdmission,
    given_up: GivenUp,
) -> Outcome<S> {
    let DeliveryInfo { stream, sequence, .. } = &given_up.delivery;
    warn!(step = admission.step().name, stream, sequence, "{}", given_up.why);
    loop {
        match take(engine, admission, given_up.clone()).await {
            Ok(outcome) => return outcome,
            Err(Unavailable) => sleep(PAUSE).await,
        }
    }
}

/// Runs the step once more on a message that was given up: an outage may be to blame, and be over. Then it is handled,
/// tried again or parked as any message is. What the step has handled meanwhile stays handled.
async fn take<S: Service>(
    engine: &Engine<S>,
    admission: &StepAdmission,
    given_up: GivenUp,
) -> Result<Outcome<S>, Unavailable> {
    let step = admission.step();
    let failure = failure(admission, &given_up);
    let GivenUp { payload, delivery, .. } = given_up;
    let input = Input::from_broker(step, payload, delivery, fastrand::u32(..)).with_injected_failure(failure);
    engine.settle(input).await
}

/// Why it is not tried now, if it is not.
fn failure(admission: &StepAdmission, given_up: &GivenUp) -> Option<FailedAttempt> {
    let GivenUp { payload, why, is_terminated, told, .. } = given_up;
    // What this very process left alone, because a breaker was open or nothing could be stored, has done nothing
    // wrong. What kills the process finds one that remembers nothing of the kind. A replica does not know what another one
    // left alone, and need not: who is told tries it all the same, unless so many were told in vain before, which died or
    // lost the broker at that very moment. Then it is a dead letter, which may be replayed: nothing is lost.
    let is_ours = admission.was_interrupted();
    let kind = if *is_terminated || payload.is_empty() || (*told > TRIED_UNTIL_TOLD && !is_ours) {
        FailureKind::Permanent
    } else if admission.is_shut() {
        // It waits with the step, and no attempt is consumed.
        FailureKind::Outage
    } else {
        return None;
    };
    Some(FailedAttempt::new(kind, why.clone()))
}
