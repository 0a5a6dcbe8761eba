//! Shell: the loop of admin that drives redrives, as it runs in each of its instances.

use std::sync::Arc;

use admin::driver::{Surroundings, drive};
use admin::policy::AdminService;
use saga_engine::runtime::admission::BreakerView;
use saga_engine::runtime::engine::Engine;
use saga_engine::store::Store;
use uuid::Uuid;

use crate::instance::Inside;
use crate::tampered::Tampered;

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
    type Service = Tampered<AdminService>;

    fn store(&self) -> &dyn Store {
        self.inside.store.as_ref()
    }

    fn engine(&self) -> &Engine<Self::Service> {
        &self.inside.engine
    }

    fn fresh_id(&self) -> Uuid {
        self.inside.process.sim().fresh_id()
    }

    async fn breakers_of(&self, service: &str) -> Option<Vec<BreakerView>> {
        match service {
            admin::NAME => Some(self.inside.admission.breakers()),
            other => (self.others)(other),
        }
    }
}
