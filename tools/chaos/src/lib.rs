//! Shell: chaos: a system of its own is killed, paused and cut off at random while customers order; in the end
//! everything has to be as if nothing had happened.
//!
//! [`plan`] says what is done when, all of it from one seed; [`disrupt`] does it, [`links`] are what it cuts and [`disk`]
//! what it fills; [`effects`] are what each did to those who ordered; [`customers`] order meanwhile, as patiently as real
//! ones with an idempotency key; [`verdict`] says how it went.

mod customers;
mod disk;
mod disrupt;
mod effects;
mod links;
mod plan;
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
use serde_json::Value;

use self::customers::Customers;
use self::disk::SmallDisk;
use self::disrupt::Disruptor;
use self::links::Links;
use self::plan::{Disruption, Harm};
use self::verdict::{Found, Verdict};
use cli::args::duration;
use cli::{exit, note, say, say_json};
use client::http::Http;
use client::reconciliation::{self, LONGEST_WAIT};
use devstack::{Layout, LayoutOptions, Member, Ports, RunningSystem, Setting, ShutdownSignal, System};

/// How much, and how long.
#[derive(Debug, Args)]
pub struct ChaosOptions {
    /// What everything that happens follows from; another one each time unless told otherwise.
    #[arg(long)]
    seed: Option<u64>,
    /// How long orders are placed and things are broken.
    #[arg(long = "for", value_name = "DURATION", default_value = "1m", value_parser = length)]
    length: Duration,
    /// Orders per second.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rate: u32,
    #[command(flatten)]
    layout: LayoutOptions,
    /// One JSON object at the end.
    #[arg(long)]
    json: bool,
}

/// An order that nobody helps gives up after this, and then everything has to come to rest.
const DEADLINE: Duration = Duration::from_secs(30);
/// Longest that the system may take from the end of the last disruption until every order has ended.
const SETTLES_WITHIN: Duration = Duration::from_mins(2);
/// How often it is asked whether they have.
const ASK_EVERY: Duration = Duration::from_millis(500);

fn length(text: &str) -> Result<Duration, String> {
    let (shortest, longest) = (Duration::from_secs(10), Duration::from_hours(1));
    match duration(text)? {
        length if (shortest..=longest).contains(&length) => Ok(length),
        _ => Err("from 10s to 1h".to_owned()),
    }
}

/// `sagactl chaos`: ends with 1 when something was lost, doubled or left undone.
pub async fn run(options: ChaosOptions) -> anyhow::Result<ExitCode> {
    let layout = options.layout.layout(Layout::default()).map_err(exit::refuse)?;
    let has_disks = disk::is_possible();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..=u64::from(u32::MAX)));
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut plan = plan::of(layout, options.length, |sides| dice.u64(..sides));
    // With or without disks the same seed does the same, but for them.
    plan.retain(|disruption| has_disks || !matches!(disruption.harm, Harm::FillDisk(_)));
    let small = plan::disks(layout).filter(|_| has_disks);
    let folder = tempfile::Builder::new().prefix("saga-chaos.").tempdir().context("no temporary folder")?;
    note(&format!(
        "seed {seed}: {} disruptions in {}, in {}",
        plan.len(),
        humantime_serde::re::humantime::format_duration(options.length),
        folder.path().display()
    ));
    if !has_disks {
        note("no disk is filled: that needs root, and `unshare` and `mount`");
    }
    open_to_others(folder.path())?;
    let disks: Vec<_> = small
        .map(|broker| SmallDisk::below(&folder.path().join(broker.to_string())))
        .collect::<Result<_, _>>()?;
    let ports = free_ports();
    let links = Links::open(&ports, layout).await.context("no port for a link that can be cut")?;
    let mut shutdown_signal = ShutdownSignal::listen()?;
    let settings = links.settings().chain([
        format!("order.service.deadline={}s", DEADLINE.as_secs()),
        // What a killed process had in hand comes again soon.
        "order.bus.ack_wait=5s".to_owned(),
        "inventory.bus.ack_wait=5s".to_owned(),
        "payment.bus.ack_wait=5s".to_owned(),
        "admin.bus.ack_wait=5s".to_owned(),
    ]);
    let settings: Result<Vec<Setting>, _> = settings.map(|setting| setting.parse()).collect();
    let settings = settings.map_err(exit::refuse)?;
    let mut running =
        RunningSystem::start(folder.path(), (ports, layout), settings, &mut shutdown_signal).await?;
    let outcome = tokio::select! {
        outcome = torment((&mut running, &links, &disks), &plan, &options, seed) => outcome,
        () = shutdown_signal.recv() => Err(exit::Refusal::new(exit::INTERRUPTED, "interrupted").into()),
    };
    running.stop().await?;
    let verdict = outcome?;
    if options.json {
        say_json(&serde_json::to_value(&verdict)?);
    } else {
        say(&verdict.text());
    }
    if verdict.is_good() {
        return Ok(ExitCode::SUCCESS);
    }
    disks.iter().for_each(SmallDisk::keep);
    note(&format!("data and logs are kept in {}", folder.keep().display()));
    Ok(ExitCode::FAILURE)
}

async fn torment(
    (running, links, disks): (&mut RunningSystem, &Links, &[SmallDisk]),
    plan: &[Disruption],
    options: &ChaosOptions,
    seed: u64,
) -> anyhow::Result<Verdict> {
    let customers = Customers::of(&running.system, seed, options.rate, options.length)?;
    let began = Instant::now();
    let disruptor = Disruptor::of(running, links, disks)?;
    let (orders, disrupted) = tokio::join!(customers.order(began), disruptor.run(plan, began));
    disrupted?;
    let healed = Instant::now();
    let http = Http::new()?;
    let pending = settle(&http, &running.system, healed + SETTLES_WITHIN).await;
    let settled_after = healed.elapsed();
    let reconciled = reconciliation::ask(&http, &running.system.url_of(Member::ADMIN), LONGEST_WAIT).await?;
    let parked = http.get(&format!("{}/api/admin/dlq/count", running.system.url_of(Member::ADMIN))).await?;
    let found = Found {
        pending,
        balanced: reconciled.is_balanced(),
        report: reconciled.report,
        parked: parked.body.pointer("/by_status/PENDING").and_then(Value::as_u64),
        ended_by_themselves: running.missing(),
        settled_after,
    };
    Ok(Verdict::of(seed, options.length, plan, orders, found))
}

/// Waits until no order is pending; how many are in the end, if order says.
async fn settle(http: &Http, system: &System, until: Instant) -> Option<usize> {
    let url = format!("{}/api/orders?status=PENDING&limit=100", system.url_of(Member::ORDER));
    loop {
        let answer = http.get(&url).await.ok();
        let pending = answer.and_then(|answer| Some(answer.body.get("orders")?.as_array()?.len()));
        if pending == Some(0) || Instant::now() >= until {
            return pending;
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// A database server of root runs as somebody else, who must be able to pass.
fn open_to_others(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o711))
}

/// Ports in a row that nobody has, below those that the kernel gives to connections.
fn free_ports() -> Ports {
    loop {
        let base = fastrand::u16(2_000..3_200) * 10;
        if (base..base + Ports::SPAN).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return Ports::from_base(base);
        }
    }
}
