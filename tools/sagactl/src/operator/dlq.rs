//! Shell: `sagactl dlq`: the subcommands for dead letters.

use std::process::ExitCode;

use admin_api::dead_letters::{
    DeadLetterCounts, DeadLetterDetail, DeadLetterGroups, DeadLetterPage, GroupParams,
};
use clap::{Args, Subcommand};
use uuid::Uuid;

use super::dead_letter::change::{
    self, ChangeOptions, DISCARD, NoteOptions, RESOLVE, RestoreOptions, WITHDRAW_RESOLUTION,
};
use super::dead_letter::edit::{self, EditOptions};
use super::dead_letter::replay::{self, ReplayOptions};
use super::dead_letter::selection::{FilterOptions, OriginOptions, StatusOptions};
use super::dead_letter::{group, view};
use super::redrive::{self, RedriveOptions};
use crate::admin::{Admin, Form, Page, PageOptions, show};
use crate::args;

#[derive(Debug, Subcommand)]
pub enum DlqCommand {
    /// List dead letters, latest failure first; by default those that are pending or being replayed
    List(Box<ListOptions>),
    /// Count dead letters by status and service
    Count(Form),
    /// Group dead letters by cause, largest group first; same statuses as list
    Groups(GroupOptions),
    /// Show a dead letter with its message, notes and history
    Show {
        /// Id of the dead letter.
        #[arg(value_parser = args::id)]
        id: Uuid,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Replay messages to the step that failed
    Replay(ReplayOptions),
    /// Edit a message and replay it
    Edit(EditOptions),
    /// Discard dead letters: their messages are not processed
    Discard(ChangeOptions),
    /// Restore discarded dead letters
    Restore(RestoreOptions),
    /// Resolve dead letters manually: their work was done by other means. A saga is resolved with its last dead letter
    Resolve(ChangeOptions),
    /// Withdraw the resolution: the dead letters are pending again, and their sagas are open again
    #[command(mut_arg("reason", |reason| reason.help("Reason, for the audit log")))]
    WithdrawResolution(ChangeOptions),
    /// Add a note to dead letters
    Note(NoteOptions),
    /// Replay many dead letters: first a canary, then the rest at a limited rate; stops if replays fail again
    Redrive(Box<RedriveOptions>),
}

#[derive(Debug, Args)]
pub struct ListOptions {
    #[command(flatten)]
    status: StatusOptions,
    #[command(flatten)]
    filter: FilterOptions,
    #[command(flatten)]
    page: PageOptions,
}

#[derive(Debug, Args)]
pub struct GroupOptions {
    #[command(flatten)]
    status: StatusOptions,
    #[command(flatten)]
    origin: OriginOptions,
    /// Maximum number of groups (1 to 200) [default: 50].
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    form: Form,
}

pub async fn run(admin: &Admin, command: DlqCommand) -> anyhow::Result<ExitCode> {
    match command {
        DlqCommand::List(options) => {
            let ListOptions { status, filter, page } = *options;
            let params = filter.list_params(Some(status.joined()), page.limit, page.cursor);
            let DeadLetterPage { dead_letters, unreadable, next, total, unconsumed } =
                admin.get(&["dlq"], &params).await?;
            let list = Page { unreadable, next, total, unconsumed, ..Page::from_iter(dead_letters) };
            show(&list, page.form, view::list)
        }
        DlqCommand::Count(form) => {
            show(&admin.get::<DeadLetterCounts>(&["dlq", "count"], &()).await?, form, view::counts)
        }
        DlqCommand::Groups(options) => {
            let GroupOptions { status, origin, limit, form } = options;
            let OriginOptions { service, step, message_type } = origin;
            let params = GroupParams { status: Some(status.joined()), service, step, message_type, limit };
            let DeadLetterGroups { groups } = admin.get(&["dlq", "groups"], &params).await?;
            show(&groups.into_iter().collect(), form, group::list)
        }
        DlqCommand::Show { id, json } => {
            let dead_letter: DeadLetterDetail = admin.get(&["dlq", &id.to_string()], &()).await?;
            show(&dead_letter, Form { json }, view::detail)
        }
        DlqCommand::Replay(options) => replay::run(admin, options).await,
        DlqCommand::Edit(options) => edit::run(admin, options).await,
        DlqCommand::Discard(options) => change::run(admin, DISCARD, options).await,
        DlqCommand::Restore(options) => change::restore(admin, options).await,
        DlqCommand::Resolve(options) => change::run(admin, RESOLVE, options).await,
        DlqCommand::WithdrawResolution(options) => change::run(admin, WITHDRAW_RESOLUTION, options).await,
        DlqCommand::Note(options) => change::note(admin, options).await,
        DlqCommand::Redrive(options) => redrive::start(admin, *options).await,
    }
}
