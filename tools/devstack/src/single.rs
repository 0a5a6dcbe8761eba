//! Shell: stopping, starting and killing one process, while the others go on.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use nix::sys::signal::Signal;

use super::member::Member;
use super::system::System;
use super::{broker, folder, postgres, process, readiness, stop};
use cli::args::duration;
use cli::{exit, note};
use client::http::Http;

/// `sagactl stop NAME`. Nothing to do is success.
pub async fn stop(system: &System, member: Member) -> anyhow::Result<ExitCode> {
    let members = system.named(member)?;
    let _lock = folder::lock(system.folder()).await?;
    for member in members {
        if process::find(system, member).is_none() {
            note(&format!("{member} is not running"));
        }
        stop::one(system, member).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What to start, and how.
#[derive(Debug, Args)]
pub struct StartOptions {
    /// The process that is meant.
    name: Member,
    /// How long it may take until it is ready.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    within: Duration,
    /// Accept this loss of its data, by the name that its refused start gave it; for this start only.
    #[arg(long, value_name = "LOSS")]
    accept_loss: Option<String>,
}

/// `sagactl start NAME`. Nothing to do is success.
pub async fn start(system: System, options: StartOptions) -> anyhow::Result<ExitCode> {
    let StartOptions { name, within, accept_loss } = options;
    let members = system.named(name)?;
    let system = &match accept_loss {
        Some(_) if name.participant().is_none() => {
            return Err(exit::refuse(format!(
                "{name} keeps no database of its own: --accept-loss is for services"
            )));
        }
        Some(loss) => system.with(name, format!("store.accept_loss={loss}")),
        None => system,
    };
    let _lock = folder::lock(system.folder()).await?;
    for member in members {
        start_one(system, member, within).await?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn start_one(system: &System, member: Member, within: Duration) -> anyhow::Result<()> {
    if let Some(running) = process::find(system, member) {
        note(&format!("{member} runs already (pid {})", running.pid));
        return Ok(());
    }
    process::wait_for_port(system, member).await?;
    // Somebody may have deleted it, to begin anew.
    std::fs::create_dir_all(system.data_of(member)).with_context(|| folder::unwritable(system.folder()))?;
    match member.kind() {
        Member::NATS => broker::configure(system, member)?,
        Member::POSTGRES => postgres::prepare(system)?,
        _ => let_in(system, member)?,
    }
    let mut started = [(member, process::spawn(system, member)?)];
    if let Err(error) = readiness::wait(&Http::new()?, system, &mut started, within).await {
        stop::one(system, member).await?;
        return Err(error);
    }
    Ok(())
}

/// Sees to it that the broker lets a service in: a key that was lost is made anew, and a broker that does not know it is
/// told. Whoever has kept its key notices nothing.
fn let_in(system: &System, member: Member) -> anyhow::Result<()> {
    // The system of an earlier build may have no keys, and a broker that lets in anyone.
    if !member.takes_part() || !system.credentials_dir().exists() {
        return Ok(());
    }
    let keys = Member::services().map(|service| (service, system.credentials_of(&service.to_string())));
    let lost: Vec<_> = keys.filter(|(_, key)| !key.exists()).collect();
    let text_of = |broker| std::fs::read(system.broker_config(broker)).ok();
    let brokers: Vec<_> = system.layout().brokers().map(|broker| (broker, text_of(broker))).collect();
    brokers.iter().try_for_each(|(broker, _)| broker::configure(system, *broker))?;
    for (service, key) in lost.into_iter().filter(|(_, key)| key.exists()) {
        let of_it = |member: &Member| member.kind() == service && process::find(system, *member).is_some();
        let runs = system.members().any(|member| of_it(&member));
        let again = if runs { ", and it has to be stopped and started to have it" } else { "" };
        note(&format!(
            "  {service:<11} had lost its key for the broker: {} is a new one{again}",
            key.display()
        ));
    }
    for (broker, known) in brokers {
        let Some(running) = process::find(system, broker) else { continue };
        if text_of(broker) != known {
            note(&format!("  {broker:<11} reads its configuration again, to know it"));
        }
        // Also of what was written before: an earlier start may have ended between the two. What is as it was changes nothing.
        process::send(running, Signal::SIGHUP)?;
    }
    Ok(())
}

/// `sagactl kill NAME`.
pub async fn kill(system: &System, member: Member) -> anyhow::Result<ExitCode> {
    let member = system.checked(member)?;
    let _lock = folder::lock(system.folder()).await?;
    let Some(running) = process::find(system, member) else {
        return Err(exit::refuse(format!("{member} is not running")));
    };
    stop::kill(system, member).await?;
    note(&format!("  {member:<11} killed (pid {})", running.pid));
    Ok(ExitCode::SUCCESS)
}
