//! Shell: what admin's loops ask of it, and no operator.

use saga_core::input::{CommandOutcome, Input, Outcome};
use uuid::Uuid;

use crate::AdminApp;
use crate::commands::{Command, CommandKind, Reply};
use crate::request::By;

/// Asks the engine.
///
/// # Errors
/// Why it is not done.
pub(crate) async fn ask(app: &AdminApp, kind: CommandKind) -> Result<Reply, String> {
    let command = Command { id: Uuid::now_v7(), by: By::system(None), kind };
    match app.engine.process(Input::command(command.id, command.id, command, None)).await {
        Ok(Outcome::Command(CommandOutcome::Done(reply))) => Ok(reply),
        Ok(outcome) => Err(format!("it ends as {}", outcome.name())),
        Err(unavailable) => Err(unavailable.to_string()),
    }
}
