//! Shell: `sagactl top`: how everything is, on a screen that is new every second, or once for scripts.

// One look: who is asked what.
mod eyes;

// What admin measures, how long most take, how fast it goes.
mod metrics;
mod pace;
mod quantile;

// What is known by now, and what of it is shown.
mod layout;
mod screen;
mod state;
mod told;

// The terminal.
mod canvas;
mod live;

#[cfg(test)]
mod played;

use std::process::ExitCode;

use clap::Args;

use self::eyes::Eyes;
use self::state::State;
use crate::overview::{self, Asked};
use cli::{exit, is_terminal, print, print_json, view};

/// How it is shown.
#[derive(Debug, Clone, Copy, Args)]
pub struct TopOptions {
    /// Look for a second, print what is seen, and end: exit code 0 when nobody is needed, 5 when somebody is.
    #[arg(long)]
    once: bool,
    /// One JSON object: that of `status`, with cpu_percent of each process, and pace: how many sagas began and ended in a
    /// second, and how long they took (p50_ms, p99_ms; what took longer than is measured: the longest that is).
    #[arg(long, requires = "once")]
    json: bool,
}

/// Shows how everything is.
pub async fn run(asked: Asked, options: TopOptions) -> anyhow::Result<ExitCode> {
    if options.once {
        return once(asked, options.json).await;
    }
    if !is_terminal() {
        return Err(exit::rejected(
            "the screen of top needs a terminal, and the output is none: sagactl top --once prints what there is to see, \
             with --json for programs",
        ));
    }
    live::run(asked).await
}

/// Two looks, since rates are the difference of two.
async fn once(asked: Asked, is_json: bool) -> anyhow::Result<ExitCode> {
    let mut state = State::default();
    let eyes = Eyes::open(asked);
    state.take(eyes.look().await?);
    eyes.wait().await;
    let mut last = eyes.look().await?;
    if last.processes.is_none() {
        // There is nothing else to see.
        last.overview = Ok(last.overview?);
    }
    if last.overview.is_err() {
        // What was so a second ago is not what is asked for.
        state.seen = None;
    }
    state.take(last);
    let Some(seen) = &state.seen else { return Ok(ExitCode::from(exit::FAILED)) };
    if is_json {
        let mut told = told::with_cpu(overview::told(seen, state.processes.as_ref())?, &state);
        told["pace"] = told::pace(state.pace.told().as_ref());
        print_json(&told);
    } else {
        let lines = layout::whole(&screen::parts(&state, &eyes.asked.call, &view()));
        let text: Vec<_> = lines.into_iter().map(|line| line.text).collect();
        print(&text.join("\n"));
    }
    Ok(overview::code(seen))
}
