//! Shell: the simulation as a test: the laws hold for many seeds, and planted faults are found.

mod corrupted_databases;
mod planted;
mod topology;

use simulation::fault_profile::{FaultProfile, Outage};
use simulation::{Coverage, CoveragePoint, PlantedFault, Trace, run};

/// Runs seeds and fails at the first violation.
#[track_caller]
fn check_laws(seeds: impl IntoIterator<Item = u64>) -> Coverage {
    let mut coverage = Coverage::default();
    for seed in seeds {
        let result = run(seed, PlantedFault::None, Trace::Off);
        let broken = &result.broken;
        assert!(broken.is_empty(), "seed {seed}: {broken:#?}\ncargo run -p simulation -- --trace {seed}");
        coverage.add(&result.coverage);
    }
    coverage
}

/// Seeds from `first` on whose profile matches.
fn worlds(first: u64, count: usize, is_wanted: fn(&FaultProfile) -> bool) -> impl Iterator<Item = u64> {
    (first..).filter(move |seed| is_wanted(&FaultProfile::of(*seed))).take(count)
}

// Four tests of one kind, so that the test runner spreads them over the cores.

#[test]
fn laws_hold_and_every_coverage_point_is_reached() {
    let missing = check_laws(8800..9200).missing();
    assert!(missing.is_empty(), "never reached: {missing:?}");
}

#[test]
fn laws_hold_for_second_range_of_seeds() {
    check_laws(400..500);
}

#[test]
fn laws_hold_for_third_range_of_seeds() {
    check_laws(500..600);
}

#[test]
fn laws_hold_for_fourth_range_of_seeds() {
    check_laws(600..700);
}

// Laws that need a profile of their own.

#[test]
fn poison_and_messages_at_delivery_limit_are_dead_lettered_and_none_is_lost() {
    let coverage =
        check_laws(worlds(10_000, 20, |profile| profile.poison > 2 && profile.max_deliveries_reached > 0));
    assert!(
        coverage.of(CoveragePoint::PoisonDeadLettered) > 0
            && coverage.of(CoveragePoint::MaxDeliveriesReached) > 0
    );
}

#[test]
fn rejections_open_no_breaker_and_make_no_dead_letters() {
    let no_fault_strikes =
        |profile: &FaultProfile| profile.is_outage_only() && profile.bank_away == Outage::Never;
    let coverage = check_laws(worlds(10_000, 60, no_fault_strikes));
    assert!(coverage.of(CoveragePoint::OutOfStock) > 0 && coverage.of(CoveragePoint::PaymentFailed) > 0);
    assert_eq!(coverage.of(CoveragePoint::DeadLettered), 0);
}

#[test]
fn outage_consumes_no_attempts_and_makes_no_dead_letters() {
    let coverage = check_laws(worlds(10_000, 40, FaultProfile::is_outage_only));
    assert!(
        coverage.of(CoveragePoint::BankOutageSurvived) > 0
            && coverage.of(CoveragePoint::BrokerOutageSurvived) > 0
    );
    assert!(coverage.of(CoveragePoint::BreakerOpened) > 0, "the bank was away and no breaker opened");
    assert_eq!(coverage.of(CoveragePoint::DeadLettered) + coverage.of(CoveragePoint::Reversed), 0);
}

#[test]
fn replay_reaches_only_failed_step_and_is_never_swallowed() {
    let coverage = check_laws(worlds(10_000, 20, |profile| profile.step_breaks > 0));
    assert!(
        coverage.of(CoveragePoint::ReplayResolved) > 0
            && coverage.of(CoveragePoint::SecondOperatorRejected) > 0
    );
}

#[test]
fn ledgers_balance_and_no_saga_is_failed_after_replay_of_all_dead_letters() {
    let has_only_refund_faults =
        |profile: &FaultProfile| profile.refund_refused > 0 && !profile.discards_some;
    let coverage = check_laws(worlds(10_000, 20, has_only_refund_faults));
    assert!(
        coverage.of(CoveragePoint::RefundDeadLettered) > 0 && coverage.of(CoveragePoint::SagaRepaired) > 0
    );
}

#[test]
fn same_seed_gives_same_trace() {
    for seed in [20, 43, 46] {
        let (one, other) =
            (run(seed, PlantedFault::None, Trace::Keep), run(seed, PlantedFault::None, Trace::Keep));
        let differing = one.notes.iter().zip(&other.notes).find(|(one, other)| one != other);
        assert_eq!(differing, None, "seed {seed}");
        assert_eq!(one.coverage, other.coverage, "seed {seed}");
    }
}

#[test]
fn first_half_of_planted_faults_is_found() {
    assert_found(PlantedFault::all().take(16));
}

#[test]
fn second_half_of_planted_faults_is_found() {
    assert_found(PlantedFault::all().skip(16));
}

fn assert_found(planted: impl Iterator<Item = PlantedFault>) {
    /// Most faults are found at the first seed; some need luck.
    const SEEDS: usize = 600;
    for planted_fault in planted {
        // Some faults need a rare situation, so their search starts near one.
        let first = match planted_fault.to_string().as_str() {
            "additional-rows-ignored" => 100,
            "no-second-charge" => 300,
            "advisory-acknowledged-first" => 500,
            // At the first seed every consumer answers every replay, which takes minutes.
            "replay-to-all-consumers" => 2,
            _ => 0,
        };
        let mut seeds = worlds(first, SEEDS, |_| true);
        let found = seeds.any(|seed| !run(seed, planted_fault, Trace::Off).broken.is_empty());
        assert!(found, "{planted_fault} was not found in {SEEDS} seeds");
    }
}
