//! Settings from a file: what is written there is what the machinery does.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use shared::gate::Breakers;
use shared::resilience::{BreakerPolicy, Guard, State, Window};
use shared::settings::{self, BadSettings, Settings, Sources};
use tempfile::TempDir;

#[derive(Debug, Deserialize)]
struct Own {}

const FILE: &str = r#"
[breaker]
minimum_calls = 4
window = { calls = 8 }

[resilience.bank]
concurrency = 3
timeout = "250ms"
[resilience.bank.breaker]
failure_rate = 100
minimum_calls = 2
open_for = "7s"
[resilience.bank.retry]
max_attempts = 9

[resilience.shelf-filling.breaker]
window = { time = "30s" }
half_open_calls = 1
[resilience.shelf-filling.retry]
base = "1ms"
cap = "2ms"

[faults]
enabled = true
seed = 99
"#;

const STEPS: [&str; 2] = ["shelf-filling", "shelf-listening"];

/// What the file says of one breaker is what that running breaker does, and no other.
#[test]
fn what_a_file_says_of_one_breaker_is_what_it_does() {
    let settings = read(FILE, &[]).expect("good settings");
    settings.check_resilience(&STEPS, "bank").expect("all of them are here");
    let bank = Guard::new("bank", settings.breaker_of("bank"));
    let breakers = Breakers::new(&STEPS, |name| settings.breaker_of(name)).with(bank);
    let failures_until_open = |name: &str| {
        let guard = breakers.get(name).expect("a breaker");
        let mut failures = 0;
        while let Some(pass) = guard.acquire() {
            pass.fail();
            failures += 1;
        }
        assert_eq!(guard.state(), State::Open);
        failures
    };
    assert_eq!(failures_until_open("bank"), 2);
    assert_eq!(failures_until_open("shelf-filling"), 4);
    assert_eq!(failures_until_open("shelf-listening"), 4);

    let policies: BTreeMap<_, _> =
        breakers.all().map(|guard| (guard.name().to_owned(), guard.view().policy)).collect();
    let common = BreakerPolicy { minimum_calls: 4, window: Window::Calls(8), ..BreakerPolicy::default() };
    let of_bank = BreakerPolicy {
        failure_rate: 100,
        minimum_calls: 2,
        open_for: Duration::from_secs(7),
        ..common.clone()
    };
    let of_filling =
        BreakerPolicy { window: Window::Time(Duration::from_secs(30)), half_open_calls: 1, ..common.clone() };
    let wanted = [("bank", of_bank), ("shelf-filling", of_filling), ("shelf-listening", common)];
    assert_eq!(policies, wanted.map(|(name, policy)| (name.to_owned(), policy)).into());
}

#[test]
fn what_a_file_says_of_calls_and_retries_is_what_they_get() {
    let settings = read(FILE, &[]).expect("good settings");
    let calls = settings.calls_to("bank");
    assert_eq!((calls.concurrency, calls.timeout), (3, Duration::from_millis(250)));
    assert_eq!((calls.retry.max_attempts, calls.retry.base), (9, settings.task.retry.base));
    let retries = settings.step_retries();
    let own = retries["shelf-filling"];
    assert_eq!((own.base, own.cap), (Duration::from_millis(1), Duration::from_millis(2)));
    assert_eq!(own.max_attempts, settings.retry.max_attempts);
    assert!(!retries.contains_key("shelf-listening"), "it has those of all");
    assert_eq!((settings.faults.enabled, settings.faults.seed), (true, 99));
}

/// Flags win over the file, member by member.
#[test]
fn a_flag_changes_one_member_of_what_the_file_says() {
    let flags = ["resilience.bank.breaker.open_for=1s", "resilience.bank.concurrency=5"];
    let settings = read(FILE, &flags).expect("good settings");
    let policy = settings.breaker_of("bank");
    assert_eq!((policy.open_for, policy.failure_rate), (Duration::from_secs(1), 100));
    assert_eq!(
        (settings.calls_to("bank").concurrency, settings.calls_to("bank").timeout.as_millis()),
        (5, 250)
    );
}

#[test]
fn an_instance_that_is_not_here_is_refused_by_its_name_and_told_what_is() {
    let settings = read("[resilience.bnak]\ntimeout = \"1s\"\n", &[]).expect("only the service knows");
    let refusal = settings.check_resilience(&STEPS, "bank").expect_err("there is no such thing").to_string();
    for word in ["resilience.bnak", "bank", "shelf-filling", "shelf-listening"] {
        assert!(refusal.contains(word), "{refusal:?} does not say {word}");
    }
}

#[test]
fn what_a_file_misspells_is_refused_by_name() {
    for (text, named) in [
        ("[resilience.bank.breaker]\nopen_fro = \"1s\"", "open_fro"),
        ("[resilience.bank.retry]\nmax_atempts = 1", "max_atempts"),
        ("[resilience.bank.breaker.window]\nsteps = 1", "steps"),
        ("[resilience.bank]\ntimout = \"1s\"", "timout"),
        ("[faults]\nenable = true", "enable"),
        ("[breaker]\nfailure_rate = \"half\"", "failure_rate"),
    ] {
        let refusal = read(text, &[]).expect_err(named).to_string();
        assert!(refusal.contains(named), "{refusal:?} does not name {named}");
    }
}

/// What the defaults say is possible: a service that sets nothing starts.
#[test]
fn the_defaults_pass_their_own_checks() {
    let settings = read("", &[]).expect("the defaults");
    settings.check_resilience(&STEPS, "bank").expect("the defaults");
    assert!(!settings.faults.enabled);
    assert_eq!(settings.breaker_of("bank"), BreakerPolicy::default());
}

fn read(text: &str, flags: &[&str]) -> Result<Settings<Own>, BadSettings> {
    let (_folder, file) = file(text);
    let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    settings::load("unnamed", "[service]\n", &Sources { file: Some(file), flags })
}

fn file(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("settings.toml");
    std::fs::write(&path, text).expect("the file");
    (folder, path)
}
