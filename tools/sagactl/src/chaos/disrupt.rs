//! Shell: does to a system what the plan says, and undoes it.

use std::time::Instant;

use anyhow::bail;
use nix::sys::signal::Signal;

use super::links::{LinkState, Links};
use super::plan::{Disruption, Harm};
use crate::local::RunningSystem;
use crate::output::note;

/// Does all of it, and returns when the last is undone.
///
/// # Errors
/// When a process that was to be harmed has ended by itself, or cannot be started again.
pub async fn run(
    running: &mut RunningSystem,
    links: &Links,
    plan: &[Disruption],
    began: Instant,
) -> anyhow::Result<()> {
    let begins = plan.iter().map(|disruption| (disruption.at, true, disruption));
    let ends = plan.iter().map(|disruption| (disruption.until, false, disruption));
    let mut moments: Vec<_> = begins.chain(ends).collect();
    moments.sort_by_key(|(at, is_begin, _)| (*at, *is_begin));
    for (at, is_begin, Disruption { harm, until, .. }) in moments {
        tokio::time::sleep_until((began + at).into()).await;
        if is_begin {
            note(&format!("  {:>6.1}s  {harm}, for {:.1}s", at.as_secs_f64(), (*until - at).as_secs_f64()));
            begin(running, links, *harm).await?;
        } else {
            end(running, links, *harm).await?;
        }
    }
    Ok(())
}

async fn begin(running: &RunningSystem, links: &Links, harm: Harm) -> anyhow::Result<()> {
    match harm {
        Harm::Kill(member) | Harm::Pause(member) if !running.runs(member) => {
            bail!("{member} has ended by itself; {}", running.last_words(member))
        }
        Harm::Kill(member) => running.kill(member).await,
        Harm::Pause(member) => running.signal(member, Signal::SIGSTOP),
        Harm::Cut(link) => {
            links.set(link, LinkState::Cut);
            Ok(())
        }
        Harm::Silence(link) => {
            links.set(link, LinkState::Silent);
            Ok(())
        }
    }
}

async fn end(running: &mut RunningSystem, links: &Links, harm: Harm) -> anyhow::Result<()> {
    match harm {
        Harm::Kill(member) => running.start_again(member).await,
        Harm::Pause(member) => running.signal(member, Signal::SIGCONT),
        Harm::Cut(link) | Harm::Silence(link) => {
            links.set(link, LinkState::Whole);
            Ok(())
        }
    }
}
