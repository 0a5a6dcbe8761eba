//! Shell: the running admin service, as its routes and loops see it.

use admin_api::actor::Actor;
use saga_core::input::{CommandOutcome, Input, Outcome};
use saga_engine::host::app::App;
use uuid::Uuid;

use crate::commands::{Command, CommandKind, Reply};
use crate::service::AdminService;
use crate::settings::AdminSettings;

pub type AdminApp = App<AdminService, AdminSettings>;

/// Executes a command of admin's own loops.
pub(crate) async fn execute_as_system(app: &AdminApp, kind: CommandKind) -> Result<Reply, String> {
    let command = Command { id: Uuid::now_v7(), by: Actor::system(None), kind };
    match app.engine.process(Input::command(command.id, command.id, command, None)).await {
        Ok(Outcome::Command(CommandOutcome::Done(reply))) => Ok(reply),
        Ok(outcome) => Err(format!("the command ended as {}", outcome.name())),
        Err(unavailable) => Err(unavailable.to_string()),
    }
}
