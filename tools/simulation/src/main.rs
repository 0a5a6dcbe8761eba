//! Shell: the simulation's command line: as many seeds as one likes, on all cores.

use std::num::NonZero;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use simulation::{Endings, Sabotage, Trace, run};

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
    /// Seeds at once; as many as there are cores unless told otherwise.
    #[arg(long)]
    jobs: Option<NonZero<usize>>,
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
        let names: Vec<_> = Sabotage::all().map(|fault| fault.to_string()).collect();
        eprintln!("faults that can be planted: none, {}", names.join(", "));
        return ExitCode::from(2);
    };
    let broken = match arguments.trace {
        Some(seed) => {
            let result = run(seed, sabotage, Trace::Print);
            println!("{}", result.endings);
            result.broken.iter().for_each(|broken| eprintln!("broken: {broken}"));
            result.broken.len() as u64
        }
        None => Runner::new(&arguments).run(&arguments, sabotage),
    };
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What the threads share.
struct Runner {
    next: AtomicU64,
    is_over: AtomicBool,
    broken: AtomicU64,
    endings: Mutex<Endings>,
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
            endings: Mutex::default(),
            progress: ProgressBar::new(arguments.seeds).with_style(style),
        }
    }

    /// Runs all seeds. Answers how many broke a law.
    fn run(&self, arguments: &Arguments, sabotage: Sabotage) -> u64 {
        let jobs = arguments.jobs.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZero::get);
        thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| self.work(arguments, sabotage));
            }
        });
        self.progress.abandon();
        let elapsed = self.progress.elapsed().as_millis().max(1);
        let (seeds, broken) = (self.progress.position(), self.broken.load(Ordering::Relaxed));
        let endings = self.endings.lock();
        println!("{endings}");
        let rate = u128::from(seeds) * 1000 / elapsed;
        println!("{seeds} seeds in {elapsed} ms, {rate} a second, {broken} broke a law");
        broken
    }

    fn work(&self, arguments: &Arguments, sabotage: Sabotage) {
        let end = arguments.first.saturating_add(arguments.seeds);
        while !self.is_over.load(Ordering::Relaxed) {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return;
            }
            let result = run(seed, sabotage, Trace::Off);
            if !result.broken.is_empty() {
                self.broken.fetch_add(1, Ordering::Relaxed);
                let broken = result.broken.join("\n  ");
                self.progress.suspend(|| eprintln!("seed {seed}:\n  {broken}\nsee it with --trace {seed}"));
                if !arguments.keep_going {
                    self.is_over.store(true, Ordering::Relaxed);
                }
            }
            self.endings.lock().add(&result.endings);
            self.progress.inc(1);
        }
    }
}
