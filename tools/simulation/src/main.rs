//! Shell: the command line of the simulation, which runs seeds on all cores.

use std::num::NonZero;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use simulation::{Coverage, PlantedFault, Trace, run};

/// Simulate the whole system under seeded crashes, losses, repetitions and delays, and check its laws.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Number of seeds.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// First seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Seeds in parallel; by default one per core.
    #[arg(long)]
    jobs: Option<NonZero<usize>>,
    /// Run this seed only and print its trace.
    #[arg(long)]
    trace: Option<u64>,
    /// Continue after a seed that breaks a law.
    #[arg(long)]
    keep_going: bool,
    /// Fault to plant, to see that it is found; "list" prints the names.
    #[arg(long, default_value = "none", value_name = "NAME")]
    planted_fault: String,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Some(planted_fault) = PlantedFault::named(&arguments.planted_fault) else {
        let names: Vec<_> = PlantedFault::all().map(|fault| fault.to_string()).collect();
        eprintln!("faults that can be planted: none, {}", names.join(", "));
        return ExitCode::from(2);
    };
    let broken = match arguments.trace {
        Some(seed) => {
            let result = run(seed, planted_fault, Trace::Print);
            println!("{}", result.coverage);
            result.broken.iter().for_each(|broken| eprintln!("broken: {broken}"));
            result.broken.len() as u64
        }
        None => Runner::new(&arguments).run(&arguments, planted_fault),
    };
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// State shared by the threads.
struct Runner {
    next: AtomicU64,
    is_over: AtomicBool,
    broken: AtomicU64,
    coverage: Mutex<Coverage>,
    progress: ProgressBar,
}

impl Runner {
    fn new(arguments: &Arguments) -> Self {
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {per_sec}, {eta} to go")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        Self {
            next: AtomicU64::new(arguments.first),
            is_over: AtomicBool::new(false),
            broken: AtomicU64::new(0),
            coverage: Mutex::default(),
            progress: ProgressBar::new(arguments.seeds).with_style(style),
        }
    }

    /// Runs all seeds and returns how many broke a law.
    fn run(&self, arguments: &Arguments, planted_fault: PlantedFault) -> u64 {
        let jobs = arguments.jobs.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZero::get);
        thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| self.work(arguments, planted_fault));
            }
        });
        self.progress.abandon();
        let elapsed = self.progress.elapsed().as_millis().max(1);
        let (seeds, broken) = (self.progress.position(), self.broken.load(Ordering::Relaxed));
        let coverage = self.coverage.lock();
        println!("{coverage}");
        let rate = u128::from(seeds) * 1000 / elapsed;
        println!("{seeds} seeds in {elapsed} ms, {rate} a second, {broken} broke a law");
        broken
    }

    fn work(&self, arguments: &Arguments, planted_fault: PlantedFault) {
        let end = arguments.first.saturating_add(arguments.seeds);
        while !self.is_over.load(Ordering::Relaxed) {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return;
            }
            let result = run(seed, planted_fault, Trace::Off);
            if !result.broken.is_empty() {
                self.broken.fetch_add(1, Ordering::Relaxed);
                let broken = result.broken.join("\n  ");
                self.progress.suspend(|| eprintln!("seed {seed}:\n  {broken}\nsee it with --trace {seed}"));
                if !arguments.keep_going {
                    self.is_over.store(true, Ordering::Relaxed);
                }
            }
            self.coverage.lock().add(&result.coverage);
            self.progress.inc(1);
        }
    }
}
