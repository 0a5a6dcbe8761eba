//! Cost of a breaker. `cargo bench -p saga-core --bench breaker`.
//!
//! One check is a permit and its verdict, with one clock reading each. Budget: 200 ns without contention.

use std::time::{Duration, Instant};

use divan::Bencher;
use saga_core::admission::{Admission, TaskBounds};
use saga_core::breaker::{BreakerPolicy, Verdict, Window};
use saga_core::service::Step;

const STEP: &Step = &Step::new("bench", &[]);

fn main() {
    divan::main();
}

/// The window is full: each call removes the oldest.
#[divan::bench(args = [10, 10_000])]
fn closed_count_window(bencher: Bencher, calls: u32) {
    check(bencher, Window::Calls(calls));
}

#[divan::bench]
fn closed_time_window(bencher: Bencher) {
    check(bencher, Window::Time(Duration::from_secs(30)));
}

#[divan::bench]
fn refused_when_open(bencher: Bencher) {
    let (mut admission, origin) = (admission(BreakerPolicy::default()), Instant::now());
    admission.on_breaker(STEP.name, |breaker| breaker.force_open(origin.elapsed()));
    bencher.bench_local(|| admission.acquire_step(STEP, origin.elapsed()).is_none());
}

#[divan::bench]
fn is_open(bencher: Bencher) {
    let (admission, origin) = (admission(BreakerPolicy::default()), Instant::now());
    bencher.bench_local(|| admission.is_blocked(STEP, origin.elapsed()));
}

fn check(bencher: Bencher, window: Window) {
    let mut admission = admission(BreakerPolicy { window, ..BreakerPolicy::default() });
    let origin = Instant::now();
    let mut check = || {
        let began = origin.elapsed();
        let permit = admission.acquire_step(STEP, began).flatten()?;
        let now = origin.elapsed();
        admission.end_step(STEP, permit, Verdict::Success, now - began, now);
        Some(())
    };
    assert!((0..20_000).all(|_| check().is_some()));
    bencher.bench_local(check);
}

fn admission(policy: BreakerPolicy) -> Admission {
    Admission::new("nobody", TaskBounds { backlog: 1, concurrency: 1 }).with_breaker(STEP.name, policy)
}
