//! Shell: redrives: bulk replays that admin drives and watches.

mod view;

mod events;
mod follow;

use std::process::ExitCode;

use clap::{ArgAction, Args, Subcommand};
use serde_json::{Value, json};
use uuid::Uuid;

use self::view::{Preview, Redrive};
use super::dead_letter::filter::Filter;
use crate::admin::{Admin, Form, Items, PageOptions, read, said, show};
use crate::args;
use cli::exit::rejected;
use cli::{View, print, view as looks};

/// What to do with redrives.
#[derive(Debug, Subcommand)]
pub enum RedriveCommand {
    /// List redrives, newest first
    List(PageOptions),
    /// Show how far one has come, what it is to hand back, and who started it
    Show {
        /// The one to show.
        #[arg(value_parser = args::id)]
        id: Uuid,
        #[command(flatten)]
        form: Form,
    },
    /// Send nothing more for now
    Pause(ChangeOptions),
    /// Go on with one that is paused or stopped. One that had stopped begins another round, with what matches now:
    /// also what was parked since it began
    Resume(ChangeOptions),
    /// Send nothing more ever
    Cancel(CancelOptions),
    /// Watch one until it ends. Exit code 0 when it is done, 2 when it stopped or was cancelled
    Follow {
        /// The one to watch.
        #[arg(value_parser = args::id)]
        id: Uuid,
        /// Only its end, as one JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// Which redrive to change.
#[derive(Debug, Args)]
pub struct ChangeOptions {
    /// The redrive that is meant.
    #[arg(value_parser = args::id)]
    id: Uuid,
    /// Why, for the audit log.
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    form: Form,
}

/// Which redrive to give up.
#[derive(Debug, Args)]
pub struct CancelOptions {
    /// The redrive that is meant.
    #[arg(value_parser = args::id)]
    id: Uuid,
    /// Why, for the audit log.
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    form: Form,
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
    /// Why, for the audit log.
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
    /// One JSON object: of the preview, of the start with --detach, else of the end.
    #[arg(long)]
    json: bool,
}

impl RedriveOptions {
    /// The request, unless it would be for all dead letters.
    fn body(&self) -> anyhow::Result<Value> {
        let filter = said(&self.filter)?;
        if filter == json!({}) {
            return Err(rejected(
                "say which dead letters, e.g. with --fingerprint: a redrive of all of them is never meant",
            ));
        }
        let Self { canary, rate, reason, force, .. } = self;
        let force = force.then_some(true);
        said(&json!({ "filter": filter, "canary": canary, "rate": rate, "reason": reason, "force": force }))
    }
}

/// `sagactl dlq redrive`: shows what it would do, starts it, and watches it to its end.
pub async fn start(admin: &Admin, options: RedriveOptions) -> anyhow::Result<ExitCode> {
    let mut body = options.body()?;
    let form = Form { json: options.json };
    body["preview"] = true.into();
    let answer = admin.post(&["dlq", "redrive"], &body).await?;
    let preview: Preview = read(answer.clone())?;
    if options.preview || preview.matching == 0 {
        return show(answer, form, view::preview);
    }
    if preview.replayable == 0 {
        return Err(rejected(format!(
            "none of the {} that match can be replayed, for they were replayed too often: --force takes them all the same",
            preview.matching
        )));
    }
    if !form.json {
        print(&view::preview(&preview, &looks()));
    }
    body["preview"] = Value::Null;
    let answer = admin.post(&["dlq", "redrive"], &body).await?;
    let started: Redrive = read(answer.clone())?;
    let id = &started.id;
    if options.detach {
        return show(answer, form, |_: &Redrive, _: &View| {
            format!("redrive {id} is under way; watch it with: sagactl redrive follow {id}")
        });
    }
    if !form.json {
        print(&format!("redrive {id} is under way"));
    }
    follow::run(admin, id, form).await
}

pub async fn run(admin: &Admin, command: RedriveCommand) -> anyhow::Result<ExitCode> {
    match command {
        RedriveCommand::List(page) => {
            admin.list(&["dlq", "redrive"], &page, Items::In("redrives"), page.form, view::list).await
        }
        RedriveCommand::Show { id, form } => {
            admin.show(&["dlq", "redrive", &id.to_string()], &(), form, view::detail).await
        }
        RedriveCommand::Pause(change) => tell(admin, "pause", change).await,
        RedriveCommand::Resume(change) => tell(admin, "resume", change).await,
        RedriveCommand::Cancel(CancelOptions { id, reason, form }) => {
            tell(admin, "cancel", ChangeOptions { id, reason: Some(reason), form }).await
        }
        RedriveCommand::Follow { id, json } => follow::run(admin, &id.to_string(), Form { json }).await,
    }
}

async fn tell(
    admin: &Admin,
    what: &str,
    ChangeOptions { id, reason, form }: ChangeOptions,
) -> anyhow::Result<ExitCode> {
    let answer = admin.post(&["dlq", "redrive", &id.to_string(), what], &json!({ "reason": reason })).await?;
    show(answer, form, |redrive: &Redrive, _| {
        let again = if what == "resume" { redrive.told_of_round() } else { String::new() };
        format!("redrive {} is {}{again}", redrive.id, redrive.progress())
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use cli::exit;

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
        assert!(parse("--step payment-processing --preview").is_some());
        for bad in ["--step x", "--step x --reason y --canary 101", "--step x --reason y --rate 0"] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_redrive_of_everything_is_refused() {
        let refused = parse("--reason all").expect("options").body().expect_err("refused");
        assert_eq!(exit::code_of(&refused), exit::REJECTED);
    }
}
