//! Shell: the simulation as a test: the laws hold for thousands of seeds, and planted faults are found.

use simulation::{Endings, Sabotage, run};

/// Laws 1 to 5, under crashes, losses, repetitions and delays, with and without inboxes.
fn the_laws_hold_for(seeds: std::ops::Range<u64>) -> Endings {
    let mut endings = Endings::default();
    for seed in seeds {
        let result = run(seed, Sabotage::None, false);
        let broken = &result.broken;
        assert!(broken.is_empty(), "seed {seed}: {broken:#?}\ncargo run -p simulation -- --trace {seed}");
        endings.add(&result.endings);
    }
    endings
}

// Four tests of one kind, so that a test runner spreads them over the cores.

#[test]
fn every_law_holds_and_every_ending_is_reached() {
    let mut endings = the_laws_hold_for(0..500);
    let missing = endings.missing();
    assert!(missing.is_empty(), "never reached: {missing:?} in {endings:#?}");
}

#[test]
fn every_law_holds_for_a_second_stretch_of_seeds() {
    the_laws_hold_for(500..1000);
}

#[test]
fn every_law_holds_for_a_third_stretch_of_seeds() {
    the_laws_hold_for(1000..1500);
}

#[test]
fn every_law_holds_for_a_fourth_stretch_of_seeds() {
    the_laws_hold_for(1500..2000);
}

#[test]
fn a_seed_is_the_whole_input() {
    let (once, again) = (run(42, Sabotage::None, false), run(42, Sabotage::None, false));
    assert_eq!(once.endings, again.endings);
}

#[test]
fn every_planted_fault_is_found() {
    /// Each is found within a dozen seeds; some need luck.
    const SEEDS: u64 = 120;
    for sabotage in Sabotage::ALL {
        let found = (0..SEEDS).any(|seed| !run(seed, sabotage, false).broken.is_empty());
        assert!(found, "{} was not found in {SEEDS} seeds", sabotage.name());
    }
}
