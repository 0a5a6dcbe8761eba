//! Shell: watching a redrive until it ends. The redrive is admin's: it goes on whether or not anybody watches.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::events::Events;
use super::view::{Ending, Redrive};
use crate::admin::{Admin, Form, read, show};
use cli::exit::{self, ExitError, rejected};
use cli::note;

/// Admin says something at least every 5 seconds.
const SILENCE: Duration = Duration::from_secs(15);
/// Admin may be restarted meanwhile; after this long without a word it is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// How soon to listen again after a stream ended.
const AGAIN: Duration = Duration::from_millis(500);
/// Where no bar can be drawn, a line is printed this often.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// Watches until it ends; Ctrl-C ends only the watching.
pub async fn run(admin: &Admin, id: &str, form: Form) -> anyhow::Result<ExitCode> {
    let mut watch = Watch { admin, id, progress: Progress::new(form.json), heard: None };
    let outcome = tokio::select! {
        outcome = watch.until_it_ends() => Some(outcome),
        _ = tokio::signal::ctrl_c() => None,
    };
    watch.progress.bar.finish_and_clear();
    let Some(outcome) = outcome else {
        let text = format!(
            "redrive {id} is no longer watched, and goes on: sagactl redrive follow {id}, or pause, or cancel"
        );
        return Err(ExitError::new(exit::INTERRUPTED, text).into());
    };
    let end = outcome.with_context(|| format!("redrive {id}"))?;
    let redrive: Redrive = read(end.clone())?;
    show(end, form, |redrive: &Redrive, _| format!("redrive {id} is {}", redrive.progress()))?;
    verdict(&redrive)
}

fn verdict(redrive: &Redrive) -> anyhow::Result<ExitCode> {
    let id = &redrive.id;
    match redrive.ending() {
        Some(Ending::Done) => Ok(ExitCode::SUCCESS),
        Some(Ending::Stopped) => {
            let why = redrive.stopped_because.as_deref().unwrap_or("it does not say why");
            Err(rejected(format!(
                "redrive {id} stopped: {why}; when that is mended: sagactl redrive resume {id}"
            )))
        }
        Some(Ending::Cancelled) => Err(rejected(format!("redrive {id} was cancelled"))),
        None => bail!("redrive {id} is {}", redrive.status),
    }
}

struct Watch<'a> {
    admin: &'a Admin,
    id: &'a str,
    progress: Progress,
    /// When admin last said how it stands.
    heard: Option<Instant>,
}

impl Watch<'_> {
    /// A stream that breaks is opened again, for admin may be restarted. One that never answered is not waited for.
    async fn until_it_ends(&mut self) -> anyhow::Result<Value> {
        loop {
            match self.listen().await {
                Ok(Some(end)) => return Ok(end),
                Err(error) if exit::code_of(&error) != exit::FAILED || !self.is_patient() => {
                    return Err(error);
                }
                Ok(None) | Err(_) => sleep(AGAIN).await,
            }
        }
    }

    fn is_patient(&self) -> bool {
        self.heard.is_some_and(|heard| heard.elapsed() <= PATIENCE)
    }

    /// Its end, or nothing when the stream ends first.
    async fn listen(&mut self) -> anyhow::Result<Option<Value>> {
        // One that has ended may have no events any more.
        if let Some(end) = self.note(self.admin.ask(&["dlq", "redrive", self.id], &()).await?)? {
            return Ok(Some(end));
        }
        let mut stream = self.admin.listen(&["dlq", "redrive", self.id, "events"]).await?;
        let mut events = Events::default();
        loop {
            let bytes = timeout(SILENCE, stream.chunk()).await.context("admin has become silent")?;
            let Some(bytes) = bytes.map_err(reqwest::Error::without_url)? else { return Ok(None) };
            for data in events.push(&bytes)? {
                let Ok(state @ Value::Object(_)) = serde_json::from_str(&data) else { continue };
                if let Some(end) = self.note(state)? {
                    return Ok(Some(end));
                }
            }
        }
    }

    /// Shows how it stands; answers the same when that is its end.
    fn note(&mut self, state: Value) -> anyhow::Result<Option<Value>> {
        self.heard = Some(Instant::now());
        let redrive: Redrive = read(state.clone())?;
        self.progress.show(&redrive);
        Ok(redrive.ending().map(|_| state))
    }
}

/// A bar on a terminal, lines in a log, nothing when only JSON is wanted.
struct Progress {
    bar: ProgressBar,
    lines: bool,
    printed: String,
    printed_at: Option<Instant>,
}

impl Progress {
    fn new(json: bool) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let bar = if is_terminal && !json { ProgressBar::new(0) } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}") {
            bar.set_style(style);
        }
        Self { bar, lines: !is_terminal && !json, printed: String::new(), printed_at: None }
    }

    fn show(&mut self, redrive: &Redrive) {
        self.bar.set_length(redrive.matching.max(redrive.settled()));
        self.bar.set_position(redrive.settled());
        self.bar.set_message(redrive.progress());
        let is_due = self.printed_at.is_none_or(|at| at.elapsed() >= LINE_EVERY);
        if self.lines && redrive.ending().is_none() && (is_due || self.printed != redrive.status) {
            self.printed_at = Some(Instant::now());
            self.printed.clone_from(&redrive.status);
            note(&format!("  {}", redrive.progress()));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;
    use crate::operator::redrive::view::tests::redrive;

    #[test]
    fn only_a_redrive_that_is_done_succeeds() {
        let end = |status| verdict(&from_value(redrive(status)).expect("a redrive"));
        assert!(end("DONE").is_ok());
        let stopped = end("STOPPED").expect_err("refused");
        assert_eq!(exit::code_of(&stopped), exit::REJECTED);
        assert!(stopped.to_string().contains("a canary failed again"), "{stopped}");
        assert_eq!(exit::code_of(&end("CANCELLED").expect_err("refused")), exit::REJECTED);
    }
}
