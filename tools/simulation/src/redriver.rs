//! Shell: admin's redrive loop, as it runs in each of its instances.

use std::sync::Arc;

use admin::redrive_driver::{DriverContext, drive};
use admin::service::AdminService;
use saga_engine::runtime::admission::BreakerView;
use saga_engine::runtime::engine::Engine;
use saga_engine::store::roles::Queries;
use uuid::Uuid;

use crate::instance::InstanceParts;
use crate::instrumented::Instrumented;

/// Breakers of another service, from any of its instances.
pub type Breakers = Arc<dyn Fn(&str) -> Option<Vec<BreakerView>> + Send + Sync>;

/// Runs the loop in one life of an instance.
pub async fn run(parts: InstanceParts<AdminService>, others: Breakers) {
    drive(SimSurroundings { parts, others }).await;
}

struct SimSurroundings {
    parts: InstanceParts<AdminService>,
    others: Breakers,
}

impl DriverContext for SimSurroundings {
    type Service = Instrumented<AdminService>;

    fn rows(&self) -> &dyn Queries {
        self.parts.store.as_ref()
    }

    fn engine(&self) -> &Engine<Self::Service> {
        &self.parts.engine
    }

    fn fresh_id(&self) -> Uuid {
        self.parts.process.sim().fresh_id()
    }

    async fn breakers_of(&self, service: &str) -> Option<Vec<BreakerView>> {
        match service {
            admin::NAME => Some(self.parts.admission.breakers()),
            other => (self.others)(other),
        }
    }
}
