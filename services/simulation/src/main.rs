//! Shell: the simulation's command line: as many seeds as one likes.

use std::process::ExitCode;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use simulation::{Endings, Sabotage, run};

/// Simulates the whole system under seeded crashes, losses, repetitions and delays, and checks the laws.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// How many seeds.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Run this one seed and print everything that happens.
    #[arg(long)]
    trace: Option<u64>,
    /// Go on after a seed that breaks a law.
    #[arg(long)]
    keep_going: bool,
    /// Plant a fault, to see it found: a name, or "list".
    #[arg(long, default_value = "none")]
    sabotage: String,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Some(sabotage) = Sabotage::named(&arguments.sabotage) else {
        let names: Vec<_> = Sabotage::all().map(Sabotage::name).collect();
        eprintln!("faults that can be planted: none, {}", names.join(", "));
        return ExitCode::from(2);
    };
    if let Some(seed) = arguments.trace {
        let result = run(seed, sabotage, true);
        println!("{result:#?}");
        return if result.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {per_sec}, {eta} to go");
    let progress =
        ProgressBar::new(arguments.seeds).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let (mut endings, mut broken) = (Endings::default(), 0);
    for seed in arguments.first..arguments.first.saturating_add(arguments.seeds) {
        let result = run(seed, sabotage, false);
        if !result.broken.is_empty() {
            broken += 1;
            progress.suspend(|| eprintln!("seed {seed}: {:#?}\nsee it with --trace {seed}", result.broken));
            if !arguments.keep_going {
                break;
            }
        }
        endings.add(&result.endings);
        progress.inc(1);
    }
    progress.abandon();
    let elapsed = progress.elapsed().as_millis().max(1);
    let (seeds, missing) = (progress.position(), endings.missing());
    println!("{endings:#?}\nnever reached: {missing:?}");
    println!(
        "{seeds} seeds in {elapsed} ms, {} a second, {broken} broke a law",
        u128::from(seeds) * 1000 / elapsed
    );
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
