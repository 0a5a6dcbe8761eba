//! Pure: whether work that was in flight at some moment has completed. Discrepancies that remain then are certain.

use std::collections::BTreeMap;

use jiff::Timestamp;
use saga_core::service_stats::{ServiceStats, StepStats};

/// Follows the work that was in flight at the first snapshot, through later snapshots, until it has completed. Work that
/// started later does not matter: in a busy system it never ends.
#[derive(Debug)]
pub struct Draining {
    /// Time of the first snapshot, by the clock of each service.
    since: BTreeMap<String, Timestamp>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Entries of the first snapshot may be unpublished.
    Publishing,
    /// All entries are published. The next snapshot tells the ends of the streams.
    Published,
    /// Steps have to process the streams up to these positions, by producer.
    Delivering(BTreeMap<String, u64>),
    Done,
}

impl Draining {
    pub fn since(service_stats: &[ServiceStats]) -> Self {
        let since = service_stats.iter().map(|service| (service.service.clone(), service.at)).collect();
        Self { since, stage: Stage::Publishing }
    }

    /// Takes a later snapshot. Returns true once the work has completed. Each stage needs a snapshot of its own, as services
    /// are not asked at the same moment.
    pub fn advance(&mut self, service_stats: &[ServiceStats]) -> bool {
        match &self.stage {
            Stage::Publishing if service_stats.iter().all(|service| self.has_published(service)) => {
                self.stage = Stage::Published;
            }
            Stage::Published => {
                let newest = |service: &ServiceStats| Some((service.service.clone(), service.newest?));
                self.stage = Stage::Delivering(service_stats.iter().filter_map(newest).collect());
            }
            Stage::Delivering(positions)
                if service_stats.iter().all(|service| has_processed(service, positions)) =>
            {
                self.stage = Stage::Done;
            }
            Stage::Publishing | Stage::Delivering(_) | Stage::Done => {}
        }
        matches!(self.stage, Stage::Done)
    }

    fn has_published(&self, service: &ServiceStats) -> bool {
        let is_later = |oldest| self.since.get(&service.service).is_some_and(|since| oldest > *since);
        service.stats.outbox_pending == 0 || service.stats.outbox_oldest.is_some_and(is_later)
    }
}

/// Retries may be of any age, so that none may be left.
fn has_processed(service: &ServiceStats, positions: &BTreeMap<String, u64>) -> bool {
    let is_done = |step: &StepStats| {
        let is_there =
            |(producer, position): (&String, &u64)| positions.get(producer).is_some_and(|to| position >= to);
        let is_past = !step.acknowledged.is_empty() && step.acknowledged.iter().all(is_there);
        step.waiting == Some(0) || (step.waiting.is_some() && is_past)
    };
    service.stats.retries == 0 && service.steps.iter().all(is_done)
}
