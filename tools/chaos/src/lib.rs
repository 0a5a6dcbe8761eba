//! Shell: chaos: random disruption of a temporary system while customers order, with a verdict. Nothing may be lost,
//! duplicated or left unfinished.
//!
//! `plan` derives all disruptions from a seed, and `disrupt` carries them out. It kills processes, cuts `network` links, fills
//! a `disk`, and puts clocks and databases ahead or back. `customers` order meanwhile and retry with an
//! idempotency key. `effects` measures the latency of their orders, `publishing` watches the outboxes for a `publish_stall`, and `verdict`
//! judges the run.

mod customers;
mod disk;
mod disrupt;
mod effects;
mod network;
mod plan;
mod publish_stall;
mod publishing;
mod verdict;

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use cli::args::duration;
use cli::{exit, note, print, print_json};
use client::http::Http;
use client::reconciliation::{Extent, MAX_WAIT, reconcile};
use devstack::{Component, Layout, LayoutOptions, Ports, RunningSystem, Setting, ShutdownSignal, System};
use serde_json::Value;

use self::customers::Customers;
use self::disk::SmallDisk;
use self::disrupt::Disruptor;
use self::network::Links;
use self::plan::{Disruption, PlannedDisruption};
use self::verdict::{Found, Verdict};

#[derive(Debug, Args)]
pub struct ChaosOptions {
    /// Seed of all random choices. Default: a random one.
    #[arg(long)]
    seed: Option<u64>,
    /// Length of the run.
    #[arg(long = "for", value_name = "DURATION", default_value = "1m", value_parser = length)]
    length: Duration,
    /// Orders per second.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rate: u32,
    #[command(flatten)]
    layout: LayoutOptions,
    /// Print the result as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Deadline of an order: after it every order ends without further help.
const DEADLINE: Duration = Duration::from_secs(30);
/// Time limit from the end of the last disruption until every order has ended.
const RECOVERY_LIMIT: Duration = Duration::from_mins(2);
/// Interval between two checks for unfinished orders.
const POLL: Duration = Duration::from_millis(500);

fn length(text: &str) -> Result<Duration, String> {
    let (shortest, longest) = (Duration::from_secs(10), Duration::from_hours(1));
    match duration(text)? {
        length if (shortest..=longest).contains(&length) => Ok(length),
        _ => Err("from 10s to 1h".to_owned()),
    }
}

/// `sagactl chaos`. Fails if something was lost, duplicated or left unfinished.
pub async fn run(options: ChaosOptions) -> anyhow::Result<ExitCode> {
    let layout = options.layout.layout(Layout::default()).map_err(exit::rejected)?;
    let has_disks = disk::enter_namespace();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..=u64::from(u32::MAX)));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut plan = plan::of(layout, options.length, |below| random.u64(..below));
    // Disks do not change what else a seed does.
    plan.retain(|planned| has_disks || !matches!(planned.disruption, Disruption::FillDisk(_)));
    let folder = tempfile::Builder::new().prefix("saga-chaos.").tempdir().context("no temporary folder")?;
    note(&format!(
        "seed {seed}: {} disruptions in {}, in {}",
        plan.len(),
        humantime_serde::re::humantime::format_duration(options.length),
        folder.path().display()
    ));
    if !has_disks {
        note("no disk is filled: that needs root, and the programs unshare and mount");
    }
    allow_traversal(folder.path())?;
    let disks: Vec<_> = plan::disks(layout)
        .filter(|_| has_disks)
        .map(|broker| SmallDisk::mount(&folder.path().join(broker.to_string())))
        .collect::<Result<_, _>>()?;
    let run = disrupted_run(folder.path(), layout, &disks, &plan, &options, seed).await;
    let is_interrupted = run.as_ref().is_err_and(|error| exit::code_of(error) == exit::INTERRUPTED);
    if !is_interrupted && !run.as_ref().is_ok_and(Verdict::is_good) {
        disks.iter().for_each(SmallDisk::keep);
        note(&format!("data and logs are kept in {}", folder.keep().display()));
    }
    let verdict = run?;
    if options.json {
        print_json(&serde_json::to_value(&verdict)?);
    } else {
        print(&verdict.text());
    }
    Ok(if verdict.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Starts a system, disrupts it, judges it and stops it.
async fn disrupted_run(
    folder: &Path,
    layout: Layout,
    disks: &[SmallDisk],
    plan: &[PlannedDisruption],
    options: &ChaosOptions,
    seed: u64,
) -> anyhow::Result<Verdict> {
    let ports = free_ports();
    let links = Links::open(ports, layout).await.context("no free port for a link")?;
    let mut shutdown_signal = ShutdownSignal::listen()?;
    let settings = settings(&links)?;
    let mut running = RunningSystem::start(folder, (ports, layout), settings, &mut shutdown_signal).await?;
    let outcome = tokio::select! {
        outcome = disrupt_and_judge((&mut running, &links, disks), plan, options, seed) => outcome,
        () = shutdown_signal.recv() => Err(exit::ExitError::new(exit::INTERRUPTED, "interrupted").into()),
    };
    let stopped = running.stop().await;
    let verdict = outcome?;
    stopped?;
    Ok(verdict)
}

fn settings(links: &Links) -> anyhow::Result<Vec<Setting>> {
    // A service may start while it is cut off from its database: there is nobody who starts it again.
    let patience = (plan::MAX_LENGTH + RECOVERY_LIMIT).as_secs();
    let patient = Component::services().map(|service| format!("{service}.store.connect_timeout={patience}s"));
    // Messages that a killed process had received are redelivered soon.
    let impatient =
        ["order", "inventory", "payment", "admin"].map(|service| format!("{service}.bus.ack_wait=5s"));
    let deadline = format!("order.service.deadline={}s", DEADLINE.as_secs());
    let settings = links.settings().chain(patient).chain(impatient).chain([deadline]);
    settings.map(|setting| setting.parse().map_err(|why: String| exit::rejected(why))).collect()
}

async fn disrupt_and_judge(
    (running, links, disks): (&mut RunningSystem, &Links, &[SmallDisk]),
    plan: &[PlannedDisruption],
    options: &ChaosOptions,
    seed: u64,
) -> anyhow::Result<Verdict> {
    let customers = Customers::of(&running.system, seed, options.rate, options.length)?;
    let began = Instant::now();
    let http = Http::with_access(&running.system.access()?)?;
    let (system, mut samples) = (running.system.clone(), Vec::new());
    let disruptor = Disruptor::of(running, links, disks)?;
    let disrupting = async { tokio::join!(customers.order(began), disruptor.run(plan, began)) };
    let (orders, disrupted) = tokio::select! {
        done = disrupting => done,
        never = publishing::watch(http.clone(), system, began, &mut samples) => match never {},
    };
    disrupted?;
    let undisrupted_since = Instant::now();
    let pending = wait_for_pending_orders(&http, &running.system, undisrupted_since + RECOVERY_LIMIT).await;
    let recovered_after = undisrupted_since.elapsed();
    let admin = running.system.url_of(Component::ADMIN);
    let reconciled = reconcile(&http, &admin, MAX_WAIT, Extent::Incremental).await?;
    let dead_letters = http.get(&format!("{admin}/api/admin/dlq/count")).await?;
    let found = Found {
        pending,
        balanced: reconciled.balanced,
        report: serde_json::to_value(&reconciled.report)?,
        dead_letters: dead_letters.body.pointer("/by_status/PENDING").and_then(Value::as_u64),
        crashed: running.missing(),
        publish_stall: publish_stall::longest_stall(plan, running.system.layout(), &samples),
        recovered_after,
    };
    Ok(Verdict::of(seed, options.length, plan, orders, found))
}

/// Waits until no order is pending. Returns their number in the end; `None` without an answer.
async fn wait_for_pending_orders(http: &Http, system: &System, until: Instant) -> Option<usize> {
    let url = format!("{}/api/orders?status=PENDING&limit=100", system.url_of(Component::ORDER));
    loop {
        let answer = http.get(&url).await.ok();
        let pending = answer.and_then(|answer| Some(answer.body.get("orders")?.as_array()?.len()));
        if pending == Some(0) || Instant::now() >= until {
            return pending;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Lets the user of the database server pass through the folder.
fn allow_traversal(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o711))
}

/// A row of free ports below the ephemeral range of the kernel.
fn free_ports() -> Ports {
    loop {
        let base = fastrand::u16(2_000..3_200) * 10;
        if (base..base + Ports::SPAN).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return Ports::from_base(base);
        }
    }
}
