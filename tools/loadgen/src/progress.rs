//! Shell: progress of a run.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::ledger::Ledger;
use cli::note;

/// Interval between two lines if standard error is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Progress bar on a terminal, else lines, unless JSON is requested.
pub struct Progress {
    bar: ProgressBar,
    lines: bool,
    last_line: Duration,
    warmup: Duration,
    length: Duration,
    drain: Duration,
}

impl Progress {
    pub fn new(warmup: Duration, length: Duration, drain: Duration, json: bool) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let bar = if is_terminal { ProgressBar::new(length.as_secs()) } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len}s  {msg}") {
            bar.set_style(style);
        }
        Self { bar, lines: !is_terminal && !json, last_line: Duration::ZERO, warmup, length, drain }
    }

    pub fn show(&mut self, now: Duration, ledger: &Ledger) {
        let counts = ledger.counts();
        let ended = counts.completed + counts.compensated;
        let counted = now.saturating_sub(self.warmup);
        let per_second = u128::from(ended) * 1_000 / counted.as_millis().max(1);
        let errors: u64 = counts.errors_by_reason.values().sum();
        let text =
            format!("{ended} ended, {per_second}/s, {} in flight, {errors} errors", ledger.in_flight());
        let is_over = now > self.length;
        let (second, length) = (now.as_secs(), self.length.as_secs());
        let text = if is_over {
            let left = (self.length + self.drain).saturating_sub(now).as_secs();
            format!("{text}, waiting {left}s at most for orders in flight")
        } else {
            text
        };
        if self.lines && now >= self.last_line + LINE_EVERY {
            self.last_line = now;
            note(&if is_over {
                format!("  {second}s, all orders were sent in {length}s: {text}")
            } else {
                format!("  {second}s of {length}s: {text}")
            });
        }
        self.bar.set_position(now.min(self.length).as_secs());
        self.bar.set_message(text);
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
