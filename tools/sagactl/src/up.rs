//! Shell: starting the whole system, and watching over it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::command::UpOptions;
use crate::http::Http;
use crate::member::{Member, Ports};
use crate::process::{self, Started};
use crate::system::{self, Plan, System};
use crate::{catalogue, exit, nats, readiness, single, stop, supervise};

/// `sagactl up`.
pub async fn run(folder: PathBuf, options: UpOptions) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    system::check_is_ours(&folder)?;
    let plan = plan(&options)?;
    let lock = system::lock(&folder).await?;
    if let Some(system) = System::find(&folder)?
        && say_if_running(&system)
    {
        return Ok(ExitCode::from(exit::RUNS_ALREADY));
    }
    let system = prepare(&folder, plan, options.fresh)?;
    let mut told_to_stop = StopSignals::listen()?;
    let mut started = Vec::new();
    let outcome = tokio::select! {
        outcome = bring_up(&system, &mut started, !options.no_seed) => outcome,
        () = told_to_stop.recv() => Err(anyhow::anyhow!("interrupted while starting")),
    };
    if let Err(error) = outcome {
        stop::all(&system).await?;
        return Err(error);
    }
    drop(lock);
    print_urls(&system, &format!("ready after {:.1?}", began.elapsed()));
    if options.detach {
        println!("stop it with scripts/down.sh, or: sagactl --data {} down", folder.display());
        return Ok(ExitCode::SUCCESS);
    }
    println!("Ctrl-C stops everything");
    let children = started.into_iter().map(|(member, started)| (member, started.child)).collect();
    supervise::run(&system, children, told_to_stop).await
}

/// SIGINT, SIGTERM and SIGHUP: from the moment this exists they end nothing by themselves.
pub struct StopSignals([Signal; 3]);

impl StopSignals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    /// Resolves when one of them comes.
    pub async fn recv(&mut self) {
        let Self([interrupt, terminate, hangup]) = self;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// Checked before anything is touched: programs, broker.
fn plan(options: &UpOptions) -> anyhow::Result<Plan> {
    let program = env::current_exe().context("this program's own path is not to be found")?;
    let bin_dir = program.parent().map(Path::to_owned).unwrap_or_default();
    let missing: Vec<_> =
        Member::SERVICES.into_iter().filter(|member| !bin_dir.join(member.name()).is_file()).collect();
    if !missing.is_empty() {
        let names = missing.into_iter().map(Member::name).collect::<Vec<_>>().join(", ");
        bail!(
            "not built: {names} (looked in {}); run scripts/up.sh, which builds everything",
            bin_dir.display()
        );
    }
    let nats_server = nats::find_program(&bin_dir)?;
    let ports = options.port_base.map_or(Ports::STANDARD, Ports::from_base);
    Ok(Plan::new(ports, bin_dir, nats_server, options.set.clone()))
}

fn say_if_running(system: &System) -> bool {
    let is_running = |member: &Member| process::find(system, *member).is_some();
    let (running, stopped): (Vec<_>, Vec<_>) = Member::ALL.into_iter().partition(is_running);
    if running.is_empty() {
        return false;
    }
    print_urls(system, "runs already; nothing was changed");
    for member in stopped {
        println!(
            "{member} does not run; start it with: sagactl --data {} start {member}",
            system.folder().display()
        );
    }
    true
}

fn prepare(folder: &Path, plan: Plan, fresh: bool) -> anyhow::Result<System> {
    let system = System::planned(folder, plan);
    for member in Member::ALL {
        single::check_port(&system, member)?;
    }
    if fresh {
        system::wipe(folder)?;
    }
    system.create()?;
    nats::configure(&system)?;
    Member::ALL.into_iter().for_each(|member| process::forget(&system, member));
    Ok(system)
}

async fn bring_up(system: &System, started: &mut Vec<(Member, Started)>, seed: bool) -> anyhow::Result<()> {
    let http = Http::new()?;
    eprintln!("starting the system in {}", system.folder().display());
    started.push((Member::Nats, process::spawn(system, Member::Nats)?));
    readiness::wait(&http, system, started).await?;
    for member in Member::SERVICES {
        started.push((member, process::spawn(system, member)?));
    }
    readiness::wait(&http, system, &mut started[1..]).await?;
    if seed {
        let shop = catalogue::shop();
        let mut new = 0;
        for product in &shop {
            new += usize::from(catalogue::list(&http, system, product).await?);
        }
        catalogue::wait_until_known(&http, system, &shop).await?;
        eprintln!("  catalogue  {} products, {new} of them new", shop.len());
    }
    Ok(())
}

fn print_urls(system: &System, headline: &str) {
    println!("{headline}");
    for member in [Member::Admin, Member::Order, Member::Inventory, Member::Payment, Member::Bank] {
        let url = system.url_of(member);
        println!("  {:<10} {url}   {url}/docs", member.name());
    }
    println!("  {:<10} {}", Member::Nats.name(), system.url_of(Member::Nats));
    println!("  {:<10} {}", "logs", system.log_dir().display());
}
