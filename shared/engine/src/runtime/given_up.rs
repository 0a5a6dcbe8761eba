//! Shell: what the broker gives up on: each service tries once more what one of its steps was to have, and parks what
//! cannot be tried.

use std::collections::BTreeMap;
use std::time::Duration;

use saga_core::dead_letter::Delivery;
use saga_core::input::Input;
use saga_core::retry::{FailedTry, FailureKind};
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
    loop {
        let given_up = given_ups.next().await?;
        if let Some(admission) = admissions.get(&given_up.durable) {
            let mut taken = std::pin::pin!(until_taken(engine, admission, given_up));
            // As long as it takes it is told to this process alone, and counts as told once.
            while timeout(bus.ack_wait() / 3, &mut taken).await.is_err() {
                given_ups.in_progress().await?;
            }
        }
        given_ups.acknowledge().await?;
    }
}

/// Takes it as soon as anything can be stored.
async fn until_taken<S: Service>(engine: &Engine<S>, admission: &StepAdmission, given_up: GivenUp) {
    let Delivery { stream, sequence, .. } = &given_up.delivery;
    warn!(step = admission.step().name, stream, sequence, "{}", given_up.why);
    while take(engine, admission, given_up.clone()).await.is_err() {
        sleep(PAUSE).await;
    }
}

/// Runs the step once more on a message that was given up: an outage may be to blame, and be over. Then it is handled,
/// tried again or parked as any message is. What the step has handled meanwhile stays handled.
async fn take<S: Service>(
    engine: &Engine<S>,
    admission: &StepAdmission,
    given_up: GivenUp,
) -> Result<(), Unavailable> {
    let step = admission.step();
    let failure = failure(admission, &given_up);
    let GivenUp { payload, delivery, .. } = given_up;
    let input = Input::delivered(step, payload, delivery, fastrand::u32(..)).failing(failure);
    engine.settle(input).await.map(drop)
}

/// Why it is not tried now, if it is not.
fn failure(admission: &StepAdmission, given_up: &GivenUp) -> Option<FailedTry> {
    let GivenUp { payload, why, is_terminated, told, .. } = given_up;
    // What this very process left alone, because a breaker was open or nothing could be stored, has done nothing
    // wrong. What kills the process finds one that remembers nothing of the kind.
    let is_ours = admission.was_interrupted();
    let kind = if *is_terminated || payload.is_empty() || (*told > TRIED_UNTIL_TOLD && !is_ours) {
        FailureKind::Permanent
    } else if admission.is_shut() {
        // It waits with the step, and no attempt is consumed.
        FailureKind::Outage
    } else {
        return None;
    };
    Some(FailedTry::new(kind, why.clone()))
}
