//! Shell: `sagactl top`: the state of everything on a live screen, or once for scripts.

// Samples, and what follows from several of them.
mod metrics;
mod quantile;
mod saga_rates;
mod sampler;
mod state;

// Output as JSON and as lines.
mod json;
mod layout;
mod screen;

// The terminal.
mod draw;
mod live;

#[cfg(test)]
mod fixtures;

use std::process::ExitCode;

use clap::Args;
use cli::{exit, is_terminal, print, print_json, view};

use self::sampler::Sampler;
use self::state::State;
use crate::overview::{self, Source};

#[derive(Debug, Clone, Copy, Args)]
pub struct TopOptions {
    /// Watch for a second, print the state, and end. Exit codes as those of status.
    #[arg(long)]
    once: bool,
    /// Print one JSON object: that of `status`, with cpu_percent of each process, and saga_rates. These are sagas started and
    /// ended per second, and the quantiles of their durations (p50_ms, p99_ms). They are
    /// absent if admin does not serve its /metrics.
    #[arg(long, requires = "once")]
    json: bool,
}

pub async fn run(source: Source, options: TopOptions) -> anyhow::Result<ExitCode> {
    if options.once {
        return once(source, options.json).await;
    }
    if !is_terminal() {
        return Err(exit::rejected(
            "top needs a terminal: use sagactl top --once to print the state, with --json for programs",
        ));
    }
    live::run(source).await
}

/// Prints the state after two samples: rates are the difference of two.
async fn once(source: Source, is_json: bool) -> anyhow::Result<ExitCode> {
    let mut state = State::default();
    let sampler = Sampler::new(source);
    state.add(sampler.sample().await?);
    sampler.next_tick().await;
    let mut last = sampler.sample().await?;
    if last.processes.is_none() {
        // Nothing else is known of a remote system.
        last.overview = Ok(last.overview?);
    }
    if last.overview.is_err() {
        // The overview of the first sample is outdated.
        state.snapshot = None;
    }
    state.add(last);
    let Some(snapshot) = &state.snapshot else { return Ok(ExitCode::from(exit::FAILED)) };
    if is_json {
        let status = overview::to_json(snapshot, state.processes.as_ref())?;
        print_json(&json::with_rates(status, &state));
    } else {
        let lines = layout::all_lines(&screen::sections(&state, &sampler.source.command, &view()));
        let text: Vec<_> = lines.into_iter().map(|line| line.text).collect();
        print(&text.join("\n"));
    }
    Ok(overview::exit_code(snapshot))
}
