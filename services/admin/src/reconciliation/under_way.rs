//! Pure: what is still under way in a service, since when, and what it waits for.

use contract::overview::counted;
use jiff::Timestamp;
use saga_core::service_stats::{ServiceStats, StoreStats};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Something that is not finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnderWay {
    /// Where, and how much of what.
    pub what: String,
    /// When the oldest of it began; absent where nothing says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// What has to happen before it is done.
    pub waits_for: String,
}

impl UnderWay {
    /// Something of which nobody says when it began.
    #[must_use]
    pub fn new(what: impl Into<String>, waits_for: &str) -> Self {
        Self { what: what.into(), since: None, waits_for: waits_for.to_owned() }
    }
}

/// A service that could not be asked, or not everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unanswered {
    /// The service.
    pub service: String,
    /// What it was asked, and what came instead of an answer.
    pub why: String,
}

/// Everything that is not finished.
#[must_use]
pub fn under_way(service_stats: &[ServiceStats]) -> Vec<UnderWay> {
    service_stats.iter().filter(|service| !service.is_quiet()).flat_map(of_service).collect()
}

fn of_service(service_stats: &ServiceStats) -> Vec<UnderWay> {
    let name = &service_stats.service;
    let StoreStats { outbox_pending, outbox_oldest, retries, tasks, task_oldest, .. } = service_stats.stats;
    let found = [
        (outbox_pending, outbox_oldest, ["to publish"; 2], "the broker to take it"),
        (retries, None, ["to try again"; 2], "the next try"),
        (tasks, task_oldest, ["call open", "calls open"], "an answer from outside"),
    ];
    let found = found.into_iter().filter(|(count, ..)| *count > 0);
    let found = found.map(|(count, since, [one, many], waits_for)| UnderWay {
        since,
        ..UnderWay::new(format!("{name}: {}", counted(count, one, many)), waits_for)
    });
    let steps = service_stats.steps.iter().filter_map(|step| match step.waiting {
        Some(0) => None,
        Some(count) => Some(UnderWay::new(
            format!("{name}: {} on the way to {}", counted(count, "message", "messages"), step.step),
            "the step to handle them",
        )),
        None => Some(UnderWay::new(
            format!("{name}: what waits for {} is not known", step.step),
            "the broker, which does not answer",
        )),
    });
    found.chain(steps).collect()
}
