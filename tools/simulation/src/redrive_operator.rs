//! Shell: operators who start, pause, resume and cancel redrives.

use admin::commands::CommandKind;
use admin::redrive::events::{Plan, RedriveCommand};
use admin_api::actor::Actor;
use admin_api::dead_letters::Filter;
use admin_api::redrives::RedriveStatus;
use tokio::time::sleep;
use uuid::Uuid;

use crate::world::World;

impl World {
    /// Starts a redrive of some dead letters, or changes one that is open.
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
        let report = dead_letters[self.sim.below(dead_letters.len())].1.report().cloned();
        let filter = match (self.sim.below(3), report) {
            (0, Some(report)) => Filter { step: Some(report.step), ..Filter::default() },
            (1, Some(report)) => Filter { service: Some(report.service), ..Filter::default() },
            _ => Filter::default(),
        };
        self.redrive(filter).await;
    }

    /// Starts a redrive of all pending dead letters.
    pub async fn redrive_all(&self) {
        self.redrive(Filter::default()).await;
    }

    async fn redrive(&self, filter: Filter) {
        let plan = Plan {
            filter,
            canary: self.sim.one_of(&[0, 1, 2]),
            rate: self.sim.one_of(&[None, None, Some(1), Some(7)]),
            force: self.sim.below(10) == 0,
            by: Actor { operator: "grace".to_owned(), reason: None },
            matching: 0,
        };
        let id = self.sim.fresh_id();
        self.sim.note(|| format!("redrive {id} starts: {plan:?}"));
        self.ask_redrive(id, RedriveCommand::Start(Box::new(plan))).await;
        // The operator may reconsider between two rounds of the driver.
        if self.sim.below(3) == 0 {
            sleep(self.sim.up_to(300)).await;
            let command = if self.sim.below(2) == 0 { RedriveCommand::Pause } else { RedriveCommand::Cancel };
            self.sim.note(|| format!("redrive {id} is changed: {command:?}"));
            self.ask_redrive(id, command).await;
        }
    }

    async fn ask_redrive(&self, id: Uuid, command: RedriveCommand) {
        self.ask_admin(id, CommandKind::Redrive(id, command)).await;
    }
}
