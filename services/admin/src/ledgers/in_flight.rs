//! Pure: unfinished work of a service: since when, and what completes it.

use admin_api::reconciliation::InFlight;
use admin_api::text::counted;
use saga_core::service_stats::{ServiceStats, StoreStats};

pub fn in_flight(service_stats: &[ServiceStats]) -> Vec<InFlight> {
    service_stats.iter().filter(|service| !service.is_quiet()).flat_map(of_service).collect()
}

fn of_service(service_stats: &ServiceStats) -> Vec<InFlight> {
    let name = &service_stats.service;
    let StoreStats {
        outbox_pending, outbox_republishing, outbox_oldest, retries, tasks, task_oldest, ..
    } = service_stats.stats;
    let found = [
        (outbox_pending, outbox_oldest, ["outbox entry", "outbox entries"], "publication"),
        (outbox_republishing, None, ["repeated outbox entry", "repeated outbox entries"], "publication"),
        (retries, None, ["retry", "retries"], "the next attempt"),
        (tasks, task_oldest, ["open call", "open calls"], "an answer from outside"),
    ];
    let found = found.into_iter().filter(|(count, ..)| *count > 0);
    let found = found.map(|(count, since, [one, many], waits_for)| InFlight {
        since,
        ..InFlight::new(format!("{name}: {}", counted(count, one, many)), waits_for)
    });
    let steps = service_stats.steps.iter().filter_map(|step| match step.waiting {
        Some(0) => None,
        Some(count) => Some(InFlight::new(
            format!("{name}: {} for {}", counted(count, "message", "messages"), step.step),
            "the step to process them",
        )),
        None => Some(InFlight::new(
            format!("{name}: backlog of {} unknown", step.step),
            "the broker, which does not answer",
        )),
    });
    found.chain(steps).collect()
}
