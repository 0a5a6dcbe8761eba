//! Shell: redrives: replays of many dead letters, which admin drives and stops.

mod view;

mod follow;

use std::process::ExitCode;

use admin_api::actor::Reason;
use admin_api::redrives::{Preview, RedrivePage, RedriveParams, RedriveView, StartRedrive};
use clap::{ArgAction, Args, Subcommand};
use cli::exit::{self, rejected};
use cli::print;
use uuid::Uuid;

use super::dead_letter::selection::FilterOptions;
use crate::admin::{Admin, Form, Page, PageOptions, show};
use crate::args;

#[derive(Debug, Subcommand)]
pub enum RedriveCommand {
    /// List redrives, newest first
    List(PageOptions),
    /// Show a redrive with its filter and progress
    Show {
        /// Id of the redrive.
        #[arg(value_parser = args::id)]
        id: Uuid,
        #[command(flatten)]
        form: Form,
    },
    /// Pause a redrive
    Pause(ChangeOptions),
    /// Resume a redrive that is paused or stopped. A stopped one starts another round with what matches now, which includes
    /// dead letters that are newer than the redrive
    Resume(ChangeOptions),
    /// Cancel a redrive for good
    Cancel {
        /// Id of the redrive.
        #[arg(value_parser = args::id)]
        id: Uuid,
        /// Reason, for the audit log.
        #[arg(long, value_parser = args::reason)]
        reason: String,
        #[command(flatten)]
        form: Form,
    },
    /// Follow a redrive until it ends. Exit code 0 if it is done, 2 if it stopped or was cancelled
    Follow {
        /// Id of the redrive.
        #[arg(value_parser = args::id)]
        id: Uuid,
        /// Print only its end, as one JSON object.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub struct ChangeOptions {
    /// Id of the redrive.
    #[arg(value_parser = args::id)]
    id: Uuid,
    /// Reason, for the audit log.
    #[arg(long, value_parser = args::reason)]
    reason: Option<String>,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
pub struct RedriveOptions {
    #[command(flatten)]
    filter: FilterOptions,
    /// Size of the canary, whose replays must succeed before the rest follows; 0 for none.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(0..=100))]
    canary: u32,
    /// Maximum number of replays per second [default: unlimited].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: Option<u32>,
    /// Reason, for the audit log.
    #[arg(long, required_unless_present = "preview", value_parser = args::reason)]
    reason: Option<String>,
    /// Replay even dead letters of which three replays have failed.
    #[arg(long, requires = "reason")]
    force: bool,
    /// Show what would be replayed, and replay nothing.
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "detach")]
    preview: bool,
    /// Start the redrive without following it.
    #[arg(long)]
    detach: bool,
    /// Print one JSON object: the preview, with --detach the started redrive, else the ended one.
    #[arg(long)]
    json: bool,
}

impl RedriveOptions {
    /// Creates the request for a preview. Rejects an empty filter.
    fn preview(self) -> anyhow::Result<StartRedrive> {
        let Self { filter, canary, rate, reason, force, .. } = self;
        let filter = filter.filter();
        if filter.is_empty() {
            return Err(rejected(
                "a redrive needs a filter, e.g. --fingerprint: all dead letters cannot be replayed at once",
            ));
        }
        Ok(StartRedrive { filter, canary, rate, reason, force, preview: true })
    }
}

/// `sagactl dlq redrive`: shows a preview, starts the redrive, and follows it.
pub async fn start(admin: &Admin, options: RedriveOptions) -> anyhow::Result<ExitCode> {
    let (form, is_preview, is_detached) = (Form { json: options.json }, options.preview, options.detach);
    let request = options.preview()?;
    let preview: Preview = admin.post(&["dlq", "redrive"], &request).await?;
    if is_preview || preview.matching == 0 {
        let code = show(&preview, form, view::preview)?;
        return Ok(if preview.matching == 0 { ExitCode::from(exit::NOT_FOUND) } else { code });
    }
    if preview.replayable == 0 {
        return Err(rejected(format!(
            "none of the {} that match can be replayed, as three replays of each have failed: --force replays them anyway",
            preview.matching
        )));
    }
    if !form.json {
        print(&view::preview(&preview, &cli::view()));
    }
    let started: RedriveView =
        admin.post(&["dlq", "redrive"], &StartRedrive { preview: false, ..request }).await?;
    let id = started.id;
    if is_detached {
        return show(&started, form, |_, _| {
            format!("redrive {id} has started; follow it with: sagactl redrive follow {id}")
        });
    }
    if !form.json {
        print(&format!("redrive {id} has started"));
    }
    follow::run(admin, id, form).await
}

pub async fn run(admin: &Admin, command: RedriveCommand) -> anyhow::Result<ExitCode> {
    match command {
        RedriveCommand::List(page) => {
            let params = RedriveParams { limit: page.limit, cursor: page.cursor_id()? };
            let RedrivePage { redrives, unreadable, next } = admin.get(&["dlq", "redrive"], &params).await?;
            show(&Page { unreadable, next, ..Page::from_iter(redrives) }, page.form, view::list)
        }
        RedriveCommand::Show { id, form } => {
            let redrive: RedriveView = admin.get(&["dlq", "redrive", &id.to_string()], &()).await?;
            show(&redrive, form, view::detail)
        }
        RedriveCommand::Pause(options) => change(admin, "pause", options).await,
        RedriveCommand::Resume(options) => change(admin, "resume", options).await,
        RedriveCommand::Cancel { id, reason, form } => {
            change(admin, "cancel", ChangeOptions { id, reason: Some(reason), form }).await
        }
        RedriveCommand::Follow { id, json } => follow::run(admin, id, Form { json }).await,
    }
}

async fn change(
    admin: &Admin,
    action: &str,
    ChangeOptions { id, reason, form }: ChangeOptions,
) -> anyhow::Result<ExitCode> {
    let redrive: RedriveView =
        admin.post(&["dlq", "redrive", &id.to_string(), action], &Reason { reason }).await?;
    show(&redrive, form, |redrive, _| {
        let round = if action == "resume" { view::round(redrive) } else { String::new() };
        format!("redrive {} is {}{round}", redrive.id, view::progress(redrive))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: RedriveOptions,
    }

    fn parse(line: &str) -> Option<RedriveOptions> {
        Line::try_parse_from(std::iter::once("x").chain(line.split(' '))).ok().map(|line| line.options)
    }

    #[test]
    fn redrive_request_has_the_given_options() {
        let options = parse("--step payment-processing --canary 0 --rate 50 --reason mended --force");
        let wanted = json!({
            "filter": {"step": "payment-processing"}, "canary": 0, "rate": 50, "reason": "mended", "force": true,
            "preview": true,
        });
        assert_eq!(json!(options.expect("options").preview().expect("a request")), wanted);
        assert!(parse("--step payment-processing --preview").is_some());
        for bad in ["--step x", "--step x --reason y --canary 101", "--step x --reason y --rate 0"] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn redrive_without_filter_is_rejected() {
        let error = parse("--reason all").expect("options").preview().expect_err("rejected");
        assert_eq!(exit::code_of(&error), exit::REJECTED);
    }
}
