//! Shell: starting single processes while the others run.

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use cli::args::duration;
use cli::{exit, note};
use client::http::Http;

use super::component::Component;
use super::stop::stop_one;
use super::system::System;
use super::{broker, command_line, data_dir, postgres, process, readiness};

#[derive(Debug, Args)]
pub struct StartOptions {
    /// Process to start: a service, one of its replicas, nats, postgres.
    name: Component,
    /// Time limit for it to become ready.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    within: Duration,
    /// Accept a loss of data, by the name that the rejected start printed. Holds for this start only.
    #[arg(long, value_name = "LOSS")]
    accept_loss: Option<String>,
}

/// `sagactl start NAME`. Succeeds if it runs already.
pub async fn start(system: System, options: StartOptions) -> anyhow::Result<()> {
    let StartOptions { name, within, accept_loss } = options;
    let components = system.named(name)?;
    let system = &match accept_loss {
        Some(_) if name.participant().is_none() => {
            return Err(exit::rejected(format!("{name} has no database: --accept-loss is for services")));
        }
        Some(loss) => system.with(name, format!("store.accept_loss={loss}")),
        None => system,
    };
    let _lock = data_dir::lock(system.folder()).await?;
    for component in components {
        start_one(system, component, within).await?;
    }
    Ok(())
}

async fn start_one(system: &System, component: Component, within: Duration) -> anyhow::Result<()> {
    if let Some(running) = process::find(system, component) {
        note(&format!("{component} already runs (pid {})", running.pid));
        return Ok(());
    }
    process::wait_for_ports(system, component).await?;
    // The user may have deleted it, for an empty database.
    std::fs::create_dir_all(system.data_of(component))
        .with_context(|| data_dir::unwritable(system.folder()))?;
    match component.kind() {
        Component::NATS => broker::configure(system, component)?,
        Component::POSTGRES => postgres::prepare(system)?,
        _ => check_broker_key(system, component)?,
    }
    let mut started = [(component, process::spawn(system, component)?)];
    if let Err(error) = readiness::wait(&Http::new()?, system, &mut started, within).await {
        stop_one(system, component).await?;
        return Err(error);
    }
    Ok(())
}

fn check_broker_key(system: &System, component: Component) -> anyhow::Result<()> {
    let key = system.broker_key_of(&component.kind().to_string());
    if component.has_stream() && !key.exists() {
        bail!(
            "{component} has no key for the broker: {} does not exist; {} and then {} creates a new one",
            key.display(),
            command_line::for_system(system.folder(), "down"),
            command_line::for_system(system.folder(), "up --detach")
        );
    }
    Ok(())
}
