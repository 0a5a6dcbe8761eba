//! What asking a breaker costs. `cargo bench -p shared --bench breaker`.
//!
//! A check is an `acquire` and its verdict; it may cost 200 ns when nobody else asks.

use std::time::Duration;

use divan::Bencher;
use shared::resilience::{BreakerPolicy, Guard, Pass, Window};

fn main() {
    divan::main();
}

/// The window is full: every call also takes the oldest out.
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
    let guard = Guard::new("bench", BreakerPolicy::default());
    guard.force_open();
    bencher.bench(|| guard.acquire().is_none());
}

#[divan::bench]
fn is_open(bencher: Bencher) {
    let guard = Guard::new("bench", BreakerPolicy::default());
    bencher.bench(|| guard.is_open());
}

fn check(bencher: Bencher, window: Window) {
    let guard = Guard::new("bench", BreakerPolicy { window, ..BreakerPolicy::default() });
    let check = || guard.acquire().map(Pass::succeed).is_some();
    assert!((0..20_000).all(|_| check()));
    bencher.bench(check);
}
