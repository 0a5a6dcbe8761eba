//! Shell: dead letters: what people can do with them.

mod change;
mod edit;
mod filter;
mod secrets;
mod views;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use uuid::Uuid;

pub use self::edit::EditOptions;
pub use self::filter::Filter;
use self::filter::{InStatus, Place};
pub use self::views::{Group, group_table};
use super::admin::{Admin, Asked};
use super::redrive::RedriveOptions;
use super::{PageOptions, redrive, show};

/// What to do with dead letters.
#[derive(Debug, Subcommand)]
pub enum DlqCommand {
    /// List dead letters, the last to fail first
    List(Box<ListOptions>),
    /// Count them by status and service
    Count {
        /// The API's own JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the ways in which messages failed, the most frequent first; those that are pending when no status is given
    Groups(GroupOptions),
    /// Show all there is to know of one
    Show {
        /// Which.
        id: Uuid,
        /// The API's own JSON; card tokens are in it.
        #[arg(long)]
        json: bool,
    },
    /// Hand messages back to the step that failed
    Replay(ReplayOptions),
    /// Hand a message back with other contents
    Edit(EditOptions),
    /// Give dead letters up
    Discard {
        /// Which.
        #[arg(required = true)]
        id: Vec<Uuid>,
        /// Why.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Take discarded dead letters back
    Restore {
        /// Which.
        #[arg(required = true)]
        id: Vec<Uuid>,
        /// Why.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Write a note at a dead letter
    Note {
        /// Which.
        id: Uuid,
        /// The note.
        text: String,
    },
    /// Hand many back: a few first, the rest when those did not fail again; stops when they do
    Redrive(Box<RedriveOptions>),
}

/// Which dead letters to list.
#[derive(Debug, Args)]
pub struct ListOptions {
    #[command(flatten)]
    status: InStatus,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    page: PageOptions,
}

/// Which groups to list.
#[derive(Debug, Args)]
pub struct GroupOptions {
    #[command(flatten)]
    status: InStatus,
    #[command(flatten)]
    place: Place,
    /// At most this many (1 to 200; 50 when not given).
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// The API's own JSON.
    #[arg(long)]
    json: bool,
}

/// Which dead letters to replay.
#[derive(Debug, Args)]
pub struct ReplayOptions {
    /// Which.
    #[arg(required_unless_present = "fingerprint", conflicts_with = "fingerprint")]
    id: Vec<Uuid>,
    /// All pending ones that failed in this way, at most 1000.
    #[arg(long, requires = "reason")]
    fingerprint: Option<String>,
    /// Even one that was replayed three times, or whose replay is under way and seems lost.
    #[arg(long, requires = "reason")]
    force: bool,
    /// Why.
    #[arg(long)]
    reason: Option<String>,
}

/// `sagactl dlq`.
pub async fn run(admin: &Admin, command: DlqCommand) -> anyhow::Result<ExitCode> {
    let everything = Asked::default();
    match command {
        DlqCommand::List(options) => {
            let ListOptions { status, filter, page } = *options;
            let asked = page.asked(filter.asked(status.asked()));
            show(admin.ask(&["dlq"], &asked).await?, page.json, views::list)
        }
        DlqCommand::Count { json } => {
            show(admin.ask(&["dlq", "count"], &everything).await?, json, views::counts)
        }
        DlqCommand::Groups(GroupOptions { status, place, limit, json }) => {
            let asked = place.asked(status.asked()).with("limit", limit);
            show(admin.ask(&["dlq", "groups"], &asked).await?, json, views::groups)
        }
        DlqCommand::Show { id, json } => {
            show(admin.ask(&["dlq", &id.to_string()], &everything).await?, json, views::detail)
        }
        DlqCommand::Replay(ReplayOptions { id, fingerprint: None, force, reason }) => {
            change::replay(admin, id, force, reason).await
        }
        DlqCommand::Replay(ReplayOptions { fingerprint: Some(fingerprint), force, reason, .. }) => {
            change::replay_group(admin, &fingerprint, force, reason).await
        }
        DlqCommand::Edit(options) => edit::run(admin, options).await,
        DlqCommand::Discard { id, reason } => change::discard(admin, id, reason).await,
        DlqCommand::Restore { id, reason } => change::restore(admin, id, reason).await,
        DlqCommand::Note { id, text } => change::note(admin, id, &text).await,
        DlqCommand::Redrive(options) => redrive::start(admin, *options).await,
    }
}

/// The body of a request that may give a reason.
pub fn because(reason: Option<String>) -> Value {
    reason.map_or_else(|| json!({}), |reason| json!({ "reason": reason }))
}
