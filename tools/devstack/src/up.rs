//! Shell: starting the whole system, and watching over it.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, bail};
use clap::Args;

use super::member::{Member, Ports};
use super::options::LayoutOptions;
use super::plan::{Layout, Plan, Setting, StoreKind};
use super::process::{self, Started};
use super::supervise::{self, ShutdownSignal};
use super::system::System;
use super::told::told;
use super::{broker, folder, notices, postgres, readiness, seed, stop, tokens};
use cli::{exit, note, say};
use client::http::Http;

/// How to start the system.
#[derive(Debug, Args)]
pub struct UpOptions {
    /// Return when everything is ready; the processes go on.
    #[arg(long)]
    detach: bool,
    /// Delete the data of earlier runs first.
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    layout: LayoutOptions,
    /// Ports from N on: admin N, order, inventory, payment, bank, nats N+5; or "standard": 8080 to 8084 and 4222.
    /// Without it those of the last time in this folder, at first the standard ones. One of several, as order-2, is ten
    /// above the one before it.
    #[arg(long, value_name = "N", value_parser = ports)]
    port_base: Option<Ports>,
    /// A setting of a service, e.g. order.service.deadline=5s (may be repeated).
    #[arg(long, value_name = "SERVICE.KEY=VALUE")]
    set: Vec<Setting>,
    /// Turn tokens on: whoever asks admin for something needs one (see sagactl token). They stay on in this folder.
    #[arg(long)]
    tokens: bool,
    /// Start with an empty catalogue.
    #[arg(long)]
    no_seed: bool,
}

/// Reads where the ports begin.
fn ports(text: &str) -> Result<Ports, String> {
    match text.parse() {
        _ if text == "standard" => Ok(Ports::standard()),
        Ok(base @ 1..=65_475) => Ok(Ports::from_base(base)),
        Ok(_) | Err(_) => Err("from 1 to 65475, or standard".to_owned()),
    }
}

impl UpOptions {
    /// Of what the system is to consist, where it is known of what it did.
    fn layout(&self, before: Option<Layout>) -> anyhow::Result<Layout> {
        let wanted = self.layout.layout(before.unwrap_or_default()).map_err(exit::refuse)?;
        if let Some(before) = before
            && !before.is_kept_by(wanted)
            && !self.fresh
        {
            return Err(exit::refuse(format!(
                "the data in this folder are those of {before}, and stay where they are: --fresh deletes them and begins anew \
                 with {wanted}, --data takes another folder"
            )));
        }
        Ok(wanted)
    }
}

/// `sagactl up`: stays until Ctrl-C, unless it is to detach.
pub async fn run(path: PathBuf, options: UpOptions) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    folder::check_is_ours(&path)?;
    let before = System::find(&path)?;
    let layout = options.layout(before.as_ref().map(System::layout))?;
    let before = before.map(|system| system.ports().clone());
    let is_remembered =
        options.port_base.is_none() && before.as_ref().is_some_and(|ports| *ports != Ports::standard());
    let plan = plan(options.port_base.or(before).unwrap_or_else(Ports::standard), layout)?.with(options.set);
    let lock = folder::lock(&path).await?;
    if System::find(&path)?.as_ref().is_some_and(say_if_running) {
        return Ok(ExitCode::from(exit::RUNS_ALREADY));
    }
    // Looked at before it is deleted: doors that were closed stay closed, though all that opened them is gone.
    let has_tokens = options.tokens || System::planned(&path, plan.clone()).tokens_file().exists();
    let system = prepare(&path, plan, options.fresh)?;
    if has_tokens {
        tokens::make(&system)?;
    }
    let mut shutdown_signal = ShutdownSignal::listen()?;
    let mut started = Vec::new();
    let outcome = tokio::select! {
        outcome = bring_up(&system, &mut started, !options.no_seed) => outcome,
        () = shutdown_signal.recv() => Err(exit::Refusal::new(exit::INTERRUPTED, "interrupted while starting").into()),
    };
    if let Err(error) = outcome {
        stop::all(&system).await?;
        return Err(error);
    }
    drop(lock);
    if is_remembered {
        note(
            "the ports are those of the last time in this folder (--port-base standard for 8080 to 8084 and 4222)",
        );
    }
    print_urls(&system, &format!("ready after {:.1?}", began.elapsed()));
    say(&match has_tokens {
        true => format!("  {:<11} on: {} issues one", "tokens", told(&path, "token create NAME --role ROLE")),
        false => {
            format!(
                "  {:<11} off: whoever is on this machine may ask for anything (up --tokens turns them on)",
                "tokens"
            )
        }
    });
    say(&format!("  {:<11} {}", "notices", notices::told(&system).await));
    if options.detach {
        say(&format!("stop it with: {}", told(&path, "down")));
        return Ok(ExitCode::SUCCESS);
    }
    say("Ctrl-C stops everything");
    let children = started.into_iter().map(|(member, started)| (member, started.child)).collect();
    supervise::run(&system, children, shutdown_signal).await
}

/// Checked before anything is touched: programs, broker, database server.
pub fn plan(ports: Ports, layout: Layout) -> anyhow::Result<Plan> {
    let program = env::current_exe().context("this program's own path is not to be found")?;
    let bin_dir = program.parent().map(Path::to_owned).unwrap_or_default();
    let missing =
        Member::names(Member::services().filter(|member| !bin_dir.join(member.to_string()).is_file()));
    if !missing.is_empty() {
        bail!(
            "not built: {missing} (looked in {}); run scripts/up.sh, which builds everything",
            bin_dir.display()
        );
    }
    let nats_server = broker::find_program(&bin_dir)?;
    let postgres_dir = match layout.store {
        StoreKind::Sqlite => None,
        StoreKind::Postgres => Some(postgres::find_programs()?),
    };
    Ok(Plan { ports, bin_dir, nats_server, postgres_dir, layout, settings: BTreeMap::new() })
}

fn say_if_running(system: &System) -> bool {
    let is_running = |member: &Member| process::find(system, *member).is_some();
    let (running, stopped): (Vec<_>, Vec<_>) = system.members().partition(is_running);
    if running.is_empty() {
        return false;
    }
    print_urls(system, "runs already; nothing was changed");
    for member in stopped {
        let start = told(system.folder(), &format!("start {member}"));
        say(&format!("{member} does not run; start it with: {start}"));
    }
    true
}

/// Makes the folder of a system that does not run, to be called under its lock.
pub fn prepare(path: &Path, plan: Plan, fresh: bool) -> anyhow::Result<System> {
    let system = System::planned(path, plan);
    system.members().try_for_each(|member| process::check_port(&system, member))?;
    if fresh {
        folder::wipe(path)?;
    }
    system.create()?;
    broker::make_users(&system)?;
    system.keep_environment()?;
    system.layout().brokers().try_for_each(|broker| broker::configure(&system, broker))?;
    if system.layout().store == StoreKind::Postgres {
        postgres::prepare(&system)?;
    }
    system.members().for_each(|member| process::forget(&system, member));
    Ok(system)
}

/// Starts all processes, and waits until each is ready and, if so asked, the demo's products can be ordered.
pub async fn bring_up(
    system: &System,
    started: &mut Vec<(Member, Started)>,
    seed: bool,
) -> anyhow::Result<()> {
    let http = Http::new()?;
    note(&format!("starting the system in {}", system.folder().display()));
    let layout = system.layout();
    let services = layout.services().chain(layout.front());
    for members in [layout.ground().collect::<Vec<_>>(), services.collect()] {
        let first = started.len();
        for member in members {
            started.push((member, process::spawn(system, member)?));
        }
        readiness::wait(&http, system, &mut started[first..], readiness::LIMIT).await?;
    }
    if seed {
        seed::fill(&http, &system.reach()?).await?;
    }
    Ok(())
}

fn print_urls(system: &System, headline: &str) {
    say(headline);
    let mut members: Vec<_> = Member::services().collect();
    members.sort_by_key(|member| system.port_of(*member));
    for member in members {
        let url = system.url_of(member);
        say(&format!("  {member:<11} {url}   {url}/docs"));
    }
    let layout = system.layout();
    if layout.replicas > 1 {
        say(&format!(
            "  {:<11} {} of each, each at a port of its own: see status",
            "replicas", layout.replicas
        ));
    }
    layout.ground().for_each(|member| say(&format!("  {member:<11} {}", system.url_of(member))));
    say(&format!("  {:<11} {}", "logs", system.log_dir().display()));
}
