//! Shell: the loop of admin that drives redrives, as it runs in each of its instances.

use std::sync::Arc;

use admin::commands::{Command, CommandKind, Reply};
use admin::driver::{Surroundings, drive};
use admin::policy::AdminService;
use admin::redrive::roster::{Roster, THE_ROSTER};
use admin::request::By;
use saga_core::input::{CommandOutcome, Input, Outcome};
use saga_core::row::RowKey;
use saga_engine::runtime::admission::BreakerView;
use saga_engine::store::Store;

use crate::instance::Inside;

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
