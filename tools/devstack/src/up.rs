//! Shell: `sagactl up`: starting the whole system.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use cli::{exit, note, print};

use super::audit::Audit;
use super::component::{Component, Ports};
use super::options::LayoutOptions;
use super::plan::{Layout, Plan, Setting, StoreKind};
use super::start_all::{StartedSystem, start_all};
use super::supervise::{self, ShutdownSignal};
use super::system::System;
use super::{
    audit, broker, catalogue, command_line, data_dir, notifications, ports, postgres, process, tokens,
};

#[derive(Debug, Args)]
pub struct UpOptions {
    /// Return when everything is ready; the processes keep running.
    #[arg(long)]
    detach: bool,
    /// Delete the data of earlier runs first.
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    layout: LayoutOptions,
    /// First port of a row: admin N, order, inventory, payment, bank, nats N+5; or "standard": 8080 to 8084 and 4222.
    /// Default: the ports of the last start in this folder, at first the standard ones. Ports of replicas (order-2)
    /// are ten apart.
    #[arg(long, value_name = "N", value_parser = parse_ports)]
    port_base: Option<Ports>,
    /// Setting of a service, e.g. order.service.deadline=5s (may be repeated).
    #[arg(long, value_name = "SERVICE.KEY=VALUE")]
    set: Vec<Setting>,
    /// Require a token for all requests but those of customers (see sagactl token). Stays on in this folder.
    #[arg(long)]
    tokens: bool,
    /// Start with an empty catalogue.
    #[arg(long)]
    no_seed: bool,
}

fn parse_ports(text: &str) -> Result<Ports, String> {
    match text.parse() {
        _ if text == "standard" => Ok(Ports::STANDARD),
        Ok(base @ 1..=Ports::MAX_BASE) => Ok(Ports::from_base(base)),
        Ok(_) | Err(_) => Err(format!("from 1 to {}, or standard", Ports::MAX_BASE)),
    }
}

impl UpOptions {
    /// Layout of the system, checked against the data of the last one.
    fn layout(&self, last: Option<Layout>) -> anyhow::Result<Layout> {
        let layout = self.layout.layout(last.unwrap_or_default()).map_err(exit::rejected)?;
        if let Some(last) = last
            && !last.has_same_data_as(layout)
            && !self.fresh
        {
            return Err(exit::rejected(format!(
                "the data in this folder are those of {last}: --fresh deletes them and starts with {layout}, --data names \
                 another folder"
            )));
        }
        Ok(layout)
    }
}

/// `sagactl up`. Stays in the foreground until Ctrl-C, unless it is to detach.
pub async fn run(path: PathBuf, options: UpOptions, audit: &Audit) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    data_dir::check_is_ours(&path)?;
    let Some(up_lock) = data_dir::lock_for_up(&path, || is_any_running(&path)).await? else {
        print(&format!(
            "another sagactl up is starting the system in {}; nothing was changed",
            path.display()
        ));
        return Ok(ExitCode::from(exit::ALREADY_RUNNING));
    };
    let last = System::find(&path)?;
    let layout = options.layout(last.as_ref().map(System::layout))?;
    let last_ports = last.as_ref().map(System::ports);
    let reuses_ports =
        options.port_base.is_none() && last_ports.is_some_and(|ports| ports != Ports::STANDARD);
    let ports = options.port_base.or(last_ports).unwrap_or(Ports::STANDARD);
    let plan = plan(ports, layout)?.with(options.set.clone());
    let planned = System::planned(&path, plan.clone());
    check_settings(&planned, &options.set)?;
    let is_running = |last: &System| report_if_running(last, &planned, &options);
    if last.as_ref().is_some_and(is_running) {
        return Ok(ExitCode::from(exit::ALREADY_RUNNING));
    }
    wait_for_ports(&planned).await?;
    let lock = data_dir::lock(&path).await?;
    // Somebody may have started a single process meanwhile.
    if last.as_ref().is_some_and(is_running) {
        return Ok(ExitCode::from(exit::ALREADY_RUNNING));
    }
    // Checked before --fresh deletes the file: tokens stay on, though all that were issued are gone.
    let has_tokens = options.tokens || planned.tokens_file().exists();
    let system = prepare(&path, plan, options.fresh)?;
    if has_tokens {
        tokens::create_own(&system)?;
    }
    let mut shutdown_signal = ShutdownSignal::listen()?;
    let StartedSystem { processes, ended } =
        start_all(&system, lock, !options.no_seed, &mut shutdown_signal, audit).await?;
    drop(up_lock);
    audit::deliver(&system).await;
    if reuses_ports {
        note(
            "the ports are those of the last start in this folder (--port-base standard for 8080 to 8084 and 4222)",
        );
    }
    let headline = match ended.is_empty() {
        true => format!("ready after {:.1?}", began.elapsed()),
        false => format!(
            "ready after {:.1?}, but for those stopped meanwhile: {}",
            began.elapsed(),
            Component::names(ended.iter().copied())
        ),
    };
    report_ready(&system, &headline, has_tokens).await;
    if !options.no_seed && ended.is_empty() {
        print_first_order(&system);
    }
    if options.detach {
        print(&format!("stop it with: {}", command_line::for_system(&path, "down")));
        return Ok(if ended.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    print("Ctrl-C stops everything");
    let children = processes.into_iter().map(|(component, started)| (component, started.child)).collect();
    supervise::run(&system, audit, children, shutdown_signal).await?;
    Ok(ExitCode::SUCCESS)
}

fn is_any_running(path: &Path) -> bool {
    let system = System::find(path).ok().flatten();
    system.is_some_and(|system| {
        system.components().any(|component| process::find(&system, component).is_some())
    })
}

/// Finds the programs: services, broker, database server. Changes nothing.
pub fn plan(ports: Ports, layout: Layout) -> anyhow::Result<Plan> {
    let program = env::current_exe().context("the path of this program is unknown")?;
    let bin_dir = program.parent().map(Path::to_owned).unwrap_or_default();
    let missing = Component::names(
        Component::services().filter(|service| !bin_dir.join(service.to_string()).is_file()),
    );
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

/// Has each service that `set` names check its settings, as it does at its start.
fn check_settings(planned: &System, set: &[Setting]) -> anyhow::Result<()> {
    let mut named = Vec::new();
    for setting in set {
        named.extend(planned.named(setting.service)?);
    }
    named.sort_unstable();
    named.dedup();
    for component in named {
        let program = planned.program_of(component);
        let check = Command::new(&program).args(planned.arguments_of(component)).arg("settings").output();
        let check = check.with_context(|| process::cannot_start(&program))?;
        if !check.status.success() {
            return Err(exit::rejected(String::from_utf8_lossy(&check.stderr).trim().to_owned()));
        }
    }
    Ok(())
}

/// Reports a system of which anything runs, and what `planned` and `options` would change about it.
fn report_if_running(system: &System, planned: &System, options: &UpOptions) -> bool {
    let is_running = |component: &Component| process::find(system, *component).is_some();
    let (running, stopped): (Vec<_>, Vec<_>) = system.components().partition(is_running);
    if running.is_empty() {
        return false;
    }
    print_urls(system, "already runs; nothing was changed");
    for component in stopped {
        let start = command_line::for_system(system.folder(), &format!("start {component}"));
        print(&format!("{component} does not run; start it with: {start}"));
    }
    let ignored = ignored_options(system, planned, options);
    if !ignored.is_empty() {
        let down = command_line::for_system(system.folder(), "down");
        print(&format!(
            "not in effect: {}; stop the system with {down}, and start it with these options again",
            ignored.join(", ")
        ));
    }
    true
}

/// Options that a running system was not started with.
fn ignored_options(running: &System, planned: &System, options: &UpOptions) -> Vec<String> {
    let (layout, wanted) = (running.layout(), planned.layout());
    let option = |differs: bool, text: String| differs.then_some(text);
    let layout = [
        option(options.fresh, "--fresh".to_owned()),
        option(!layout.has_same_data_as(wanted), wanted.to_string()),
        option(layout.replicas != wanted.replicas, format!("--replicas {}", wanted.replicas)),
        option(running.ports() != planned.ports(), "--port-base".to_owned()),
        option(options.tokens && !running.tokens_file().exists(), "--tokens".to_owned()),
    ];
    let set = options.set.iter().filter(|setting| !running.plan().has(setting));
    let set = set.map(|setting| format!("--set {setting}"));
    layout.into_iter().flatten().chain(set).chain(running.changed_environment()).collect()
}

/// Waits until all ports are free, which may take a minute.
pub async fn wait_for_ports(system: &System) -> anyhow::Result<()> {
    for component in system.components() {
        process::wait_for_ports(system, component, Duration::ZERO).await?;
    }
    Ok(())
}

/// Creates the folder and everything that the processes need in it. Call it with the folder's lock.
pub fn prepare(path: &Path, plan: Plan, fresh: bool) -> anyhow::Result<System> {
    let system = System::planned(path, plan);
    warn_if_ephemeral(&system);
    if fresh {
        data_dir::wipe(path)?;
    }
    system.create()?;
    broker::create_keys(&system)?;
    system.store_environment()?;
    system.layout().brokers().try_for_each(|broker| broker::configure(&system, broker))?;
    if system.layout().store == StoreKind::Postgres {
        postgres::prepare(&system)?;
    }
    system.components().for_each(|component| process::delete_pid_file(&system, component));
    Ok(system)
}

/// Notes ports that an outgoing connection of any program may take while a process is away.
fn warn_if_ephemeral(system: &System) {
    let ports = system.components().flat_map(|component| system.ports_of(component));
    if let Some(range) = ports::ephemeral()
        && let Some(port) = ports.into_iter().find(|port| range.contains(port))
    {
        note(&format!(
            "the kernel gives ports from {} to {} to outgoing connections, which may hold port {port} when its process \
             is started again: choose lower ones with --port-base",
            range.start(),
            range.end()
        ));
    }
}

async fn report_ready(system: &System, headline: &str, has_tokens: bool) {
    print_urls(system, headline);
    let issue = command_line::for_system(system.folder(), "token create NAME --role ROLE");
    print(&match has_tokens {
        true => format!("  {:<11} on: {issue} issues one", "tokens"),
        false => format!(
            "  {:<11} off: any user of this machine may ask for anything (up --tokens turns them on)",
            "tokens"
        ),
    });
    print(&format!("  {:<11} {}", "notifications", notifications::receiver(system).await));
}

/// Prints commands that place an order and show its saga.
fn print_first_order(system: &System) {
    let orders = format!("{}/api/orders", system.url_of(Component::ORDER));
    let order = format!(
        r#"{{"customer":"ada","lines":[{{"sku":"{}","quantity":1}}],"payment":{{"token":"tok_ok"}}}}"#,
        catalogue::FIRST_SKU
    );
    print(&format!(
        "place an order with: curl -sS {orders} -H 'content-type: application/json' -H 'Prefer: wait=10' -d '{order}'"
    ));
    print(&format!("look at it with: {}", command_line::for_system(system.folder(), "saga list --limit 1")));
}

fn print_urls(system: &System, headline: &str) {
    print(headline);
    let mut services: Vec<_> = Component::services().collect();
    services.sort_by_key(|service| system.port_of(*service));
    for service in services {
        let url = system.url_of(service);
        print(&format!("  {service:<11} {url}   {url}/docs"));
        if service == Component::ADMIN {
            print(&format!("  {:<11} {url}/", "console"));
        }
    }
    let layout = system.layout();
    if layout.replicas > 1 {
        print(&format!(
            "  {:<11} {} of each, each at a port of its own: see status",
            "replicas", layout.replicas
        ));
    }
    layout
        .infrastructure()
        .for_each(|component| print(&format!("  {component:<11} {}", system.url_of(component))));
    print(&format!("  {:<11} {}", "logs", system.log_dir().display()));
}
