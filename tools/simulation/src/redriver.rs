//! Shell: the loop of admin that drives redrives, as it runs in each of its instances, and the operators who start,
//! pause, resume and cancel them.

use std::sync::Arc;

use admin::commands::{Command, CommandKind, Reply};
use admin::dead_letter::filter::Filter;
use admin::driver::{Surroundings, drive};
use admin::policy::AdminService;
use admin::redrive::decider::{Drive, Redrive};
use admin::redrive::events::{Plan, RedriveCommand, RedriveStatus};
use admin::redrive::progress;
use admin::redrive::roster::{Roster, THE_ROSTER};
use admin::request::By;
use saga_core::input::{CommandOutcome, Input, Outcome};
use saga_core::row::RowKey;
use saga_engine::runtime::admission::BreakerView;
use saga_engine::store::Store;
use uuid::Uuid;

use crate::endings::Ending;
use crate::instance::Inside;
use crate::world::{World, ready, rows};

/// The breakers of another service, whichever of its instances answers.
pub type Breakers = Arc<dyn Fn(&str) -> Option<Vec<BreakerView>> + Send + Sync>;

/// Drives redrives in one life of an instance of admin.
pub async fn run(inside: Inside<AdminService>, others: Breakers) {
    drive(Here { inside, others }).await;
}

struct Here {
    inside: Inside<AdminService>,
    others: Breakers,
}

impl Surroundings for Here {
    fn store(&self) -> &dyn Store {
        self.inside.store.as_ref()
    }

    fn roster_changed(&self) -> impl Future<Output = ()> + Send + use<> {
        self.inside.engine.changed(RowKey::of::<Roster>(THE_ROSTER))
    }

    async fn ask(&self, by: By, kind: CommandKind) -> Option<Reply> {
        let command = Command { id: self.inside.process.sim().fresh_id(), by, kind };
        let input = Input::command(command.id, command.correlation_id(), command, None);
        match self.inside.engine.settle(input).await.map(Outcome::of_command) {
            Ok(Some(CommandOutcome::Done(reply))) => Some(reply),
            Ok(_) | Err(_) => None,
        }
    }

    async fn breakers_of(&self, service: &str) -> Option<Vec<BreakerView>> {
        match service {
            admin::NAME => Some(self.inside.admission.breakers()),
            other => (self.others)(other),
        }
    }
}

impl World {
    /// All redrives, whatever became of them.
    #[must_use]
    pub fn redrives(&self) -> Vec<(Uuid, Drive)> {
        let rows = rows::<Redrive>(self.admin.store()).into_iter();
        rows.filter_map(|(id, redrive)| Some((id.parse().ok()?, redrive.drive()?.clone()))).collect()
    }

    /// A redrive that waits for nothing outside of admin, and is not over.
    #[must_use]
    pub fn redrive_under_way(&self) -> Option<Uuid> {
        let goes_on = |(id, drive): &(Uuid, Drive)| {
            drive.status.is_sending()
                && ready(progress::in_flight(self.admin.store(), drive.tag(*id)))
                    .is_ok_and(|count| count == 0)
        };
        self.redrives().into_iter().find(goes_on).map(|(id, _)| id)
    }

    /// Starts a redrive of some dead letters, or changes the course of one that is not over.
    pub async fn redrive_some(&self) {
        let redrives = self.redrives().into_iter().filter(|(_, drive)| drive.status != RedriveStatus::Done);
        let open: Vec<_> = redrives.collect();
        if self.sim.below(2) == 0 && !open.is_empty() {
            let (id, drive) = &open[self.sim.below(open.len())];
            let command = match self.sim.below(3) {
                0 => RedriveCommand::Pause,
                1 => RedriveCommand::Resume,
                _ => RedriveCommand::Cancel,
            };
            self.sim.note(|| format!("redrive {id}, {}: {command:?}", drive.status));
            return self.ask_redrive(*id, command).await;
        }
        let dead_letters = self.dead_letters();
        let said = dead_letters[self.sim.below(dead_letters.len())].1.said().cloned();
        let filter = match (self.sim.below(3), said) {
            (0, Some(said)) => Filter { step: Some(said.step), ..Filter::default() },
            (1, Some(said)) => Filter { service: Some(said.service), ..Filter::default() },
            _ => Filter::default(),
        };
        self.redrive(filter).await;
    }

    /// Starts a redrive of all dead letters that wait.
    pub async fn redrive_all(&self) {
        self.redrive(Filter::default()).await;
    }

    async fn redrive(&self, filter: Filter) {
        let plan = Plan {
            filter,
            canary: self.sim.one_of(&[0, 1, 2]),
            rate: self.sim.one_of(&[None, None, Some(1), Some(20)]),
            force: self.sim.below(10) == 0,
            by: By { operator: "grace".to_owned(), reason: None },
            matching: 0,
        };
        let id = self.sim.fresh_id();
        self.sim.note(|| format!("redrive {id} is started: {plan:?}"));
        self.ask_redrive(id, RedriveCommand::Start(Box::new(plan))).await;
    }

    async fn ask_redrive(&self, id: Uuid, command: RedriveCommand) {
        self.ask_admin(id, CommandKind::Redrive(id, command)).await;
    }

    /// What redrives came to.
    pub fn count_redrives(&self) {
        for (_, drive) in self.redrives() {
            match drive.status {
                RedriveStatus::Done => self.sim.count(Ending::RedriveDone),
                RedriveStatus::Stopped => self.sim.count(Ending::RedriveStopped),
                RedriveStatus::Canary
                | RedriveStatus::Running
                | RedriveStatus::Paused
                | RedriveStatus::Cancelled => {}
            }
        }
    }
}
