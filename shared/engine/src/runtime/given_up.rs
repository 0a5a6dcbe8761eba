//! Shell: what the broker gives up on: each service parks what one of its steps was to have.

use std::collections::BTreeMap;
use std::time::Duration;

use saga_core::ids;
use saga_core::input::Input;
use saga_core::retry::{FailedTry, FailureKind};
use saga_core::service::Service;
use tracing::{debug, warn};

use super::admission::StepAdmission;
use super::bus::{Bus, BusError, Durable, GivenUp, GivenUps};
use super::engine::Engine;

/// Pause after something went wrong.
const PAUSE: Duration = Duration::from_secs(1);

/// Parks what the broker gives up on, until dropped.
pub async fn run<S: Service, B: Bus>(bus: B, engine: Engine<S>, durables: Vec<(Durable, StepAdmission)>) {
    let names: Vec<Durable> = durables.iter().map(|(durable, _)| *durable).collect();
    let admissions = durables.into_iter().map(|(durable, admission)| (durable.name(), admission)).collect();
    loop {
        if let Err(reason) = listen(&bus, &engine, &names, &admissions).await {
            debug!("what is given up cannot be heard: {reason}");
        }
        tokio::time::sleep(PAUSE).await;
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
            park(engine, admission, given_up).await?;
        }
        given_ups.acknowledge().await?;
    }
}

/// Parks a message that was given up. What the step has handled meanwhile stays handled.
async fn park<S: Service>(
    engine: &Engine<S>,
    admission: &StepAdmission,
    given_up: GivenUp,
) -> Result<(), BusError> {
    let GivenUp { payload, delivery, why, is_terminated, .. } = given_up;
    let step = admission.step();
    warn!(step = step.name, stream = delivery.stream, sequence = delivery.sequence, "{why}");
    let fallback_id = ids::of_stream_position(&delivery.stream, delivery.sequence);
    // What this very process left alone, because a breaker was open or nothing could be stored, has done nothing
    // wrong and is handled now. What kills the process finds one that remembers nothing of the kind.
    let is_ours = !is_terminated && admission.was_interrupted();
    let failure = (!is_ours).then(|| FailedTry::new(FailureKind::Permanent, why));
    let input =
        Input::message(step, payload, fallback_id, fastrand::u32(..)).delivered(delivery).failing(failure);
    engine.settle(input).await.map(|_| ()).map_err(|unavailable| unavailable.to_string())
}
