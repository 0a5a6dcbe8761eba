//! Shell: follows a redrive until it ends. Admin drives it: it continues without anybody following.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use admin_api::redrives::{RedriveStatus, RedriveView};
use anyhow::{Context as _, bail};
use cli::exit::{self, ExitError, rejected};
use cli::note;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::view;
use crate::admin::{Admin, Form, show};

/// Pause between two requests.
const POLL: Duration = Duration::from_millis(500);
/// Maximum time without an answer, as while admin restarts.
const MAX_SILENCE: Duration = Duration::from_secs(30);
/// Time between two lines of progress, where no bar can be drawn.
const LINE_PERIOD: Duration = Duration::from_secs(2);

/// Follows a redrive. Ctrl-C ends the following, not the redrive.
pub async fn run(admin: &Admin, id: Uuid, form: Form) -> anyhow::Result<ExitCode> {
    let mut progress = Progress::new(form.json);
    let ended = tokio::select! {
        ended = follow(admin, id, &mut progress) => Some(ended),
        _ = tokio::signal::ctrl_c() => None,
    };
    progress.bar.finish_and_clear();
    let Some(ended) = ended else {
        let text = format!(
            "redrive {id} continues; follow it with: sagactl redrive follow {id}; or pause or cancel it"
        );
        return Err(ExitError::new(exit::INTERRUPTED, text).into());
    };
    let redrive = ended.with_context(|| format!("redrive {id}"))?;
    show(&redrive, form, |redrive, _| format!("redrive {id} is {}", view::progress(redrive)))?;
    exit_code(&redrive)
}

/// Asks until the redrive has ended. An admin that answered before may be silent for a while.
async fn follow(admin: &Admin, id: Uuid, progress: &mut Progress) -> anyhow::Result<RedriveView> {
    let mut answered: Option<Instant> = None;
    loop {
        match admin.get::<RedriveView>(&["dlq", "redrive", &id.to_string()], &()).await {
            Ok(redrive) if redrive.status.is_over() => return Ok(redrive),
            Ok(redrive) => {
                answered = Some(Instant::now());
                progress.show(&redrive);
            }
            Err(error) => {
                let is_restarting = exit::code_of(&error) == exit::FAILED
                    && answered.is_some_and(|answered| answered.elapsed() <= MAX_SILENCE);
                if !is_restarting {
                    return Err(error);
                }
            }
        }
        sleep(POLL).await;
    }
}

fn exit_code(redrive: &RedriveView) -> anyhow::Result<ExitCode> {
    let id = redrive.id;
    match redrive.status {
        RedriveStatus::Done => Ok(ExitCode::SUCCESS),
        RedriveStatus::Stopped => {
            let cause = redrive.stopped_because.as_deref().unwrap_or("unknown cause");
            Err(rejected(format!(
                "redrive {id} stopped: {cause}; once that is repaired: sagactl redrive resume {id}"
            )))
        }
        RedriveStatus::Cancelled => Err(rejected(format!("redrive {id} was cancelled"))),
        status @ (RedriveStatus::Canary | RedriveStatus::Running | RedriveStatus::Paused) => {
            bail!("redrive {id} is {status}")
        }
    }
}

/// Progress: a bar on a terminal, lines in a log, nothing with `--json`.
struct Progress {
    bar: ProgressBar,
    has_lines: bool,
    last_line: Option<(Instant, RedriveStatus)>,
}

impl Progress {
    fn new(json: bool) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let bar = if is_terminal && !json { ProgressBar::new(0) } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}") {
            bar.set_style(style);
        }
        Self { bar, has_lines: !is_terminal && !json, last_line: None }
    }

    fn show(&mut self, redrive: &RedriveView) {
        let ended = redrive.resolved + redrive.failed;
        self.bar.set_length(redrive.matching.max(ended));
        self.bar.set_position(ended);
        self.bar.set_message(view::progress(redrive));
        let is_due =
            self.last_line.is_none_or(|(at, status)| at.elapsed() >= LINE_PERIOD || status != redrive.status);
        if self.has_lines && is_due {
            self.last_line = Some((Instant::now(), redrive.status));
            note(&format!("  {}", view::progress(redrive)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::redrive::view::tests::redrive;

    #[test]
    fn only_a_done_redrive_succeeds() {
        let code = |status| exit_code(&redrive(status));
        assert!(code(RedriveStatus::Done).is_ok());
        let stopped = code(RedriveStatus::Stopped).expect_err("rejected");
        assert_eq!(exit::code_of(&stopped), exit::REJECTED);
        assert!(stopped.to_string().contains("a canary failed again"), "{stopped}");
        assert_eq!(exit::code_of(&code(RedriveStatus::Cancelled).expect_err("rejected")), exit::REJECTED);
    }
}
