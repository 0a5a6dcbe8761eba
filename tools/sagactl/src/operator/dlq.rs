//! Shell: `sagactl dlq`: what people can do with dead letters.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;
use uuid::Uuid;

use super::dead_letter::change::{self, DeadLetterOptions, NoteOptions, ReplayOptions, RestoreOptions};
use super::dead_letter::edit::{self, EditOptions};
use super::dead_letter::filter::{FailedAt, Filter, InStatus};
use super::dead_letter::{group, view};
use super::redrive::{self, RedriveOptions};
use super::resolution::{self, RESOLVE, WITHDRAW};
use crate::admin::{Admin, Form, Items, PageOptions};
use crate::args;

/// What to do with dead letters.
#[derive(Debug, Subcommand)]
pub enum DlqCommand {
    /// List dead letters, the last to fail first; those that wait or are replayed when no status is given
    List(Box<ListOptions>),
    /// Count them by status and service
    Count(Form),
    /// List the ways in which messages failed, the most frequent first; the same statuses as list
    Groups(GroupOptions),
    /// Show all there is to know of one
    Show {
        /// The one to show.
        #[arg(value_parser = args::id)]
        id: Uuid,
        /// The API's own JSON.
        #[arg(long)]
        json: bool,
    },
    /// Hand messages back to the step that failed
    Replay(ReplayOptions),
    /// Hand a message back with other contents
    Edit(EditOptions),
    /// Give dead letters up
    Discard(DeadLetterOptions),
    /// Take discarded dead letters back
    Restore(RestoreOptions),
    /// Resolve dead letters manually: their work was done by other means. A saga is resolved with its last dead letter
    Resolve(DeadLetterOptions),
    /// Withdraw that: they are pending again, and their sagas are open again
    WithdrawResolution(DeadLetterOptions),
    /// Write a note at dead letters
    Note(NoteOptions),
    /// Hand many back: a few first, the rest when those did not fail again; stops when they do
    Redrive(Box<RedriveOptions>),
}

/// Which dead letters to list.
#[derive(Debug, Args, Serialize)]
pub struct ListOptions {
    #[command(flatten)]
    #[serde(flatten)]
    status: InStatus,
    #[command(flatten)]
    #[serde(flatten)]
    filter: Filter,
    #[command(flatten)]
    #[serde(flatten)]
    page: PageOptions,
}

/// Which groups to list.
#[derive(Debug, Args, Serialize)]
pub struct GroupOptions {
    #[command(flatten)]
    #[serde(flatten)]
    status: InStatus,
    #[command(flatten)]
    #[serde(flatten)]
    failed_at: FailedAt,
    /// At most this many (1 to 200; 50 when not given).
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    #[command(flatten)]
    #[serde(skip)]
    form: Form,
}

pub async fn run(admin: &Admin, command: DlqCommand) -> anyhow::Result<ExitCode> {
    match command {
        DlqCommand::List(options) => {
            admin.list(&["dlq"], &options, Items::In("dead_letters"), options.page.form, view::list).await
        }
        DlqCommand::Count(form) => admin.show(&["dlq", "count"], &(), form, view::counts).await,
        DlqCommand::Groups(options) => {
            admin.list(&["dlq", "groups"], &options, Items::In("groups"), options.form, group::list).await
        }
        DlqCommand::Show { id, json } => {
            admin.show(&["dlq", &id.to_string()], &(), Form { json }, view::detail).await
        }
        DlqCommand::Replay(options) => change::replay(admin, options).await,
        DlqCommand::Edit(options) => edit::run(admin, options).await,
        DlqCommand::Discard(options) => change::discard(admin, options).await,
        DlqCommand::Restore(options) => change::restore(admin, options).await,
        DlqCommand::Resolve(options) => resolution::dead_letters(admin, RESOLVE, options).await,
        DlqCommand::WithdrawResolution(options) => resolution::dead_letters(admin, WITHDRAW, options).await,
        DlqCommand::Note(options) => change::note(admin, options).await,
        DlqCommand::Redrive(options) => redrive::start(admin, *options).await,
    }
}
