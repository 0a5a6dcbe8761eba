//! Shell: the simulation as a test: the laws hold for thousands of seeds, and planted faults are found.

mod books;
mod planted;
mod topology;

use simulation::weather::{Outage, Weather};
use simulation::{Ending, Endings, Sabotage, Trace, run};

/// All laws, under crashes, losses, repetitions, delays, faults, poison and outages, with and without inboxes.
#[track_caller]
fn the_laws_hold_for(seeds: impl IntoIterator<Item = u64>) -> Endings {
    let mut endings = Endings::default();
    for seed in seeds {
        let result = run(seed, Sabotage::None, Trace::Off);
        let broken = &result.broken;
        assert!(broken.is_empty(), "seed {seed}: {broken:#?}\ncargo run -p simulation -- --trace {seed}");
        endings.add(&result.endings);
    }
    endings
}

/// The first so many worlds, from a seed on, with such a weather.
fn worlds(first: u64, count: usize, is_wanted: fn(&Weather) -> bool) -> impl Iterator<Item = u64> {
    (first..).filter(move |seed| is_wanted(&Weather::of(*seed))).take(count)
}

// Four tests of one kind, so that a test runner spreads them over the cores.

#[test]
fn every_law_holds_and_every_ending_is_reached() {
    let missing = the_laws_hold_for(700..1100).missing();
    assert!(missing.is_empty(), "never reached: {missing:?}");
}

#[test]
fn every_law_holds_for_a_second_stretch_of_seeds() {
    the_laws_hold_for(400..500);
}

#[test]
fn every_law_holds_for_a_third_stretch_of_seeds() {
    the_laws_hold_for(500..600);
}

#[test]
fn every_law_holds_for_a_fourth_stretch_of_seeds() {
    the_laws_hold_for(600..700);
}

// The laws that each need a weather of their own, by name.

#[test]
fn law_2_poison_and_what_the_broker_gives_up_are_parked_and_nothing_is_dropped() {
    let endings = the_laws_hold_for(worlds(10_000, 20, |weather| weather.poison > 2 && weather.gives_up > 0));
    assert!(endings.of(Ending::PoisonParked) > 0 && endings.of(Ending::GivenUpByBroker) > 0);
}

#[test]
fn law_6_a_business_no_opens_no_breaker_and_parks_nothing() {
    let no_fault_strikes =
        |weather: &Weather| weather.is_outage_alone() && weather.bank_away == Outage::Never;
    let endings = the_laws_hold_for(worlds(10_000, 60, no_fault_strikes));
    assert!(endings.of(Ending::OutOfStock) > 0 && endings.of(Ending::PaymentFailed) > 0);
    assert_eq!(endings.of(Ending::Parked), 0);
}

#[test]
fn law_7_an_outage_consumes_no_attempts_and_makes_no_dead_letters() {
    let endings = the_laws_hold_for(worlds(10_000, 40, Weather::is_outage_alone));
    assert!(endings.of(Ending::BankOutageSurvived) > 0 && endings.of(Ending::BrokerOutageSurvived) > 0);
    assert!(endings.of(Ending::BreakerOpened) > 0, "the bank was away and no breaker opened");
    assert_eq!(endings.of(Ending::Parked) + endings.of(Ending::Reversed), 0);
}

#[test]
fn law_8_a_replay_reaches_only_the_step_that_failed_and_is_never_swallowed() {
    let endings = the_laws_hold_for(worlds(10_000, 20, |weather| weather.step_breaks > 0));
    assert!(endings.of(Ending::ReplayResolved) > 0 && endings.of(Ending::SecondOperatorRefused) > 0);
}

#[test]
fn once_everything_is_replayed_the_books_balance_and_no_saga_is_failed() {
    let is_all_mended = |weather: &Weather| weather.refund_refused > 0 && !weather.discards_some;
    let endings = the_laws_hold_for(worlds(10_000, 20, is_all_mended));
    assert!(endings.of(Ending::RefundParked) > 0 && endings.of(Ending::SagaMended) > 0);
}

#[test]
fn a_seed_is_the_whole_input() {
    for seed in [20, 43, 46] {
        let (one, other) = (run(seed, Sabotage::None, Trace::Keep), run(seed, Sabotage::None, Trace::Keep));
        let differing = one.notes.iter().zip(&other.notes).find(|(one, other)| one != other);
        assert_eq!(differing, None, "seed {seed}");
        assert_eq!(one.endings, other.endings, "seed {seed}");
    }
}

#[test]
fn every_planted_fault_of_the_saga_is_found() {
    are_found(&Sabotage::OF_THE_SAGA);
}

#[test]
fn every_planted_fault_of_dead_letters_and_breakers_is_found() {
    are_found(&Sabotage::OF_DEAD_LETTERS);
}

fn are_found(planted: &[Sabotage]) {
    /// Most are found with the first seed; some need luck.
    const SEEDS: usize = 600;
    for sabotage in planted {
        // What takes an order that was parked, edited and undone, or a death between two lines, is rare: the search
        // begins where there is one.
        let first = match sabotage.to_string().as_str() {
            "rows-by-the-fact-alone" => 700,
            "advisory-acknowledged-first" => 500,
            // With the first seed everybody answers everybody's replays, which takes minutes.
            "replay-to-everybody" => 2,
            _ => 0,
        };
        let mut seeds = worlds(first, SEEDS, |_| true);
        let found = seeds.any(|seed| !run(seed, *sabotage, Trace::Off).broken.is_empty());
        assert!(found, "{sabotage} was not found in {SEEDS} seeds");
    }
}
