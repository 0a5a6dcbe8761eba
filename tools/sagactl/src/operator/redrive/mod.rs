//! Shell: redrives: bulk replays that admin drives and watches.

mod events;
mod follow;
mod view;

use std::process::ExitCode;

use clap::{ArgAction, Args, Subcommand};
use serde_json::Value;
use uuid::Uuid;

use self::view::{Preview, Redrive};
use super::admin::{Admin, Asked};
use super::dlq::{Filter, because};
use super::{PageOptions, read, show};
use crate::output::exit::refuse;
use crate::output::say;

/// What to do with redrives.
#[derive(Debug, Subcommand)]
pub enum RedriveCommand {
    /// List redrives, newest first
    List(PageOptions),
    /// Show one
    Show {
        /// Which.
        id: Uuid,
        /// The API's own JSON.
        #[arg(long)]
        json: bool,
    },
    /// Send nothing more for now
    Pause(Change),
    /// Go on with one that is paused or stopped
    Resume(Change),
    /// Send nothing more ever
    Cancel(Change),
    /// Watch one until it ends. Exit code 0 when it is done, 2 when it stopped or was cancelled
    Follow {
        /// Which.
        id: Uuid,
        /// Only its end, as the API's own JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Which redrive, and why.
#[derive(Debug, Args)]
pub struct Change {
    /// Which.
    id: Uuid,
    /// Why.
    #[arg(long)]
    reason: Option<String>,
}

/// What to hand back, and how.
#[derive(Debug, Args)]
pub struct RedriveOptions {
    #[command(flatten)]
    filter: Filter,
    /// So many first; the rest follows when none of them failed again (1 when not given, 0 for none).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=100))]
    canary: Option<u8>,
    /// At most so many a second; as fast as it goes when not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    rate: Option<u16>,
    /// Why.
    #[arg(long, required_unless_present = "preview")]
    reason: Option<String>,
    /// Even those that were replayed three times.
    #[arg(long, requires = "reason")]
    force: bool,
    /// Only show what would be handed back.
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "detach")]
    preview: bool,
    /// Start it, and do not watch it.
    #[arg(long)]
    detach: bool,
    /// The API's own JSON: of the preview, of the start with --detach, else of the end.
    #[arg(long)]
    json: bool,
}

impl RedriveOptions {
    /// The request.
    fn body(self) -> anyhow::Result<Value> {
        let filter = self.filter.asked(Asked::default()).into_object().ok_or_else(|| {
            refuse("say which dead letters, e.g. with --fingerprint: a redrive of all of them is never meant")
        })?;
        let mut body = because(self.reason);
        body["filter"] = filter;
        for (name, value) in [("canary", self.canary.map(Value::from)), ("rate", self.rate.map(Value::from))]
        {
            if let Some(value) = value {
                body[name] = value;
            }
        }
        if self.force {
            body["force"] = true.into();
        }
        Ok(body)
    }
}

/// `sagactl dlq redrive`: shows what it would do, starts it, and watches it to its end.
pub async fn start(admin: &Admin, options: RedriveOptions) -> anyhow::Result<ExitCode> {
    let (only_preview, detach, json) = (options.preview, options.detach, options.json);
    let body = options.body()?;
    let mut asked = body.clone();
    asked["preview"] = true.into();
    let answer = admin.post(&["dlq", "redrive"], &asked).await?;
    let preview: Preview = read(answer.clone())?;
    if only_preview || preview.matching == 0 {
        return show(answer, json, view::preview);
    }
    if preview.replayable == 0 {
        return Err(refuse(format!(
            "none of the {} that match can be replayed, for they were replayed too often: --force takes them all the same",
            preview.matching
        )));
    }
    if !json {
        say(&view::preview(&preview));
    }
    let started = admin.post(&["dlq", "redrive"], &body).await?;
    let redrive: Redrive = read(started.clone())?;
    if detach {
        return show(started, json, |redrive: &Redrive| {
            let id = &redrive.id;
            format!("redrive {id} is under way; watch it with: sagactl redrive follow {id}")
        });
    }
    if !json {
        say(&format!("redrive {} is under way", redrive.id));
    }
    follow::run(admin, &redrive.id, json).await
}

/// `sagactl redrive`.
pub async fn run(admin: &Admin, command: RedriveCommand) -> anyhow::Result<ExitCode> {
    let path = ["dlq", "redrive"];
    match command {
        RedriveCommand::List(page) => {
            let asked = page.asked(Asked::default());
            show(admin.ask(&path, &asked).await?, page.json, view::list)
        }
        RedriveCommand::Show { id, json } => show(state(admin, &id.to_string()).await?, json, view::detail),
        RedriveCommand::Pause(change) => tell(admin, "pause", change).await,
        RedriveCommand::Resume(change) => tell(admin, "resume", change).await,
        RedriveCommand::Cancel(change) => tell(admin, "cancel", change).await,
        RedriveCommand::Follow { id, json } => follow::run(admin, &id.to_string(), json).await,
    }
}

async fn tell(admin: &Admin, what: &str, Change { id, reason }: Change) -> anyhow::Result<ExitCode> {
    let answer = admin.post(&["dlq", "redrive", &id.to_string(), what], &because(reason)).await?;
    show(answer, false, |redrive: &Redrive| format!("redrive {} is {}", redrive.id, redrive.progress()))
}

async fn state(admin: &Admin, id: &str) -> anyhow::Result<Value> {
    admin.ask(&["dlq", "redrive", id], &Asked::default()).await
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::output::exit;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: RedriveOptions,
    }

    fn parse(line: &str) -> Option<RedriveOptions> {
        Line::try_parse_from(std::iter::once("x").chain(line.split(' '))).ok().map(|line| line.options)
    }

    #[test]
    fn a_redrive_asks_for_what_was_said() {
        let options = parse("--step payment-processing --canary 0 --rate 50 --reason mended --force");
        let wanted = json!({
            "filter": {"step": "payment-processing"}, "canary": 0, "rate": 50, "reason": "mended", "force": true,
        });
        assert_eq!(options.expect("options").body().expect("a body"), wanted);
        assert!(parse("--step x --preview").is_some());
        for bad in ["--step x", "--step x --reason y --canary 101", "--step x --reason y --rate 0"] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_redrive_of_everything_is_refused() {
        let refused = parse("--reason all").expect("options").body().expect_err("refused");
        assert_eq!(exit::code_of(&refused), exit::REFUSED);
    }
}
