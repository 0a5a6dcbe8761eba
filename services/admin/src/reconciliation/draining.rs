//! Pure: whether what was under way at some moment has arrived: only then is what still looks wrong no matter of time.

use std::collections::BTreeMap;

use jiff::Timestamp;
use saga_core::service_stats::{ServiceStats, StepStats};

/// Looks at the machinery of all services, one after another, until everything that was under way at the first has
/// come to whoever waited for it. What began afterwards does not matter: it goes on as long as the shop is open.
#[derive(Debug)]
pub struct Draining {
    /// When each service was first asked, by its own clock.
    since: BTreeMap<String, Timestamp>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Something that was to be published at the first look need not be in its stream.
    Publishing,
    /// All of it is in the streams; they are to be measured.
    Published,
    /// It stands up to these places of the producers' streams.
    Delivering(BTreeMap<String, u64>),
    Done,
}

impl Draining {
    /// From this look on.
    #[must_use]
    pub fn since(service_stats: &[ServiceStats]) -> Self {
        let since = service_stats.iter().map(|service| (service.service.clone(), service.at)).collect();
        Self { since, stage: Stage::Publishing }
    }

    /// Takes a later look. Answers whether all has arrived. Each stage needs a look of its own: the services of one
    /// look were not asked at the same moment.
    pub fn look(&mut self, service_stats: &[ServiceStats]) -> bool {
        match &self.stage {
            Stage::Publishing if service_stats.iter().all(|service| self.has_published(service)) => {
                self.stage = Stage::Published;
            }
            Stage::Published => {
                let newest = |service: &ServiceStats| Some((service.service.clone(), service.newest?));
                self.stage = Stage::Delivering(service_stats.iter().filter_map(newest).collect());
            }
            Stage::Delivering(places) if service_stats.iter().all(|service| has_come_to(service, places)) => {
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

/// What is to be tried again may be of any age.
fn has_come_to(service: &ServiceStats, places: &BTreeMap<String, u64>) -> bool {
    let has_heard = |step: &StepStats| {
        let is_there =
            |(producer, place): (&String, &u64)| places.get(producer).is_some_and(|to| place >= to);
        let is_past = !step.come_to.is_empty() && step.come_to.iter().all(is_there);
        step.waiting == Some(0) || (step.waiting.is_some() && is_past)
    };
    service.stats.retries == 0 && service.steps.iter().all(has_heard)
}
