//! Overrides of breakers, retries and calls for single steps and dependencies.

use std::collections::BTreeMap;
use std::time::Duration;

use saga_core::admission::{Admission, TaskBounds};
use saga_core::breaker::{Breaker, BreakerPolicy, State, Verdict, Window};

use super::{FILE, STEPS, read};

/// The override changes that breaker, and no other.
#[test]
fn breaker_override_of_file_applies() {
    let settings = read(FILE, &[]).expect("good settings");
    settings.check_resilience(&STEPS, "supplier").expect("all of them are here");
    let bounds = TaskBounds { backlog: 1, concurrency: 1 };
    let names = STEPS.into_iter().chain(["supplier"]);
    let mut admission = names.fold(Admission::new("supplier", bounds), |admission, name| {
        admission.with_breaker(name, settings.breaker_of(name))
    });
    let mut failures_until_open = |name: &str| {
        let fail = |breaker: &mut Breaker| {
            let permit = breaker.acquire(Duration::ZERO)?;
            breaker.record(permit, Verdict::Failure, Duration::ZERO, Duration::ZERO);
            Some(())
        };
        let failures = std::iter::from_fn(|| admission.on_breaker(name, fail).expect("a breaker")).count();
        assert_eq!(admission.breakers()[name].state(Duration::ZERO), State::Open);
        failures
    };
    assert_eq!(failures_until_open("supplier"), 2);
    assert_eq!(failures_until_open("shelf-filling"), 4);
    assert_eq!(failures_until_open("shelf-listening"), 4);

    let policy = |(name, breaker): (&String, &Breaker)| (name.clone(), breaker.policy().clone());
    let policies: BTreeMap<_, _> = admission.breakers().iter().map(policy).collect();
    let common = BreakerPolicy { minimum_calls: 4, window: Window::Calls(8), ..BreakerPolicy::default() };
    let of_supplier = BreakerPolicy {
        failure_rate: 100,
        minimum_calls: 2,
        open_for: Duration::from_secs(7),
        ..common.clone()
    };
    let of_filling =
        BreakerPolicy { window: Window::Time(Duration::from_secs(30)), half_open_calls: 1, ..common.clone() };
    let expected = [("supplier", of_supplier), ("shelf-filling", of_filling), ("shelf-listening", common)];
    assert_eq!(policies, expected.map(|(name, policy)| (name.to_owned(), policy)).into());
}

#[test]
fn call_and_retry_overrides_of_file_apply() {
    let settings = read(FILE, &[]).expect("good settings");
    let calls = settings.task_settings("supplier");
    assert_eq!((calls.concurrency, calls.timeout), (3, Duration::from_millis(250)));
    assert_eq!((calls.retry.max_attempts, calls.retry.base), (9, settings.task.retry.base));
    let retries = settings.step_retries();
    let own = retries["shelf-filling"];
    assert_eq!((own.base, own.cap), (Duration::from_millis(1), Duration::from_millis(2)));
    assert_eq!(own.max_attempts, settings.retry.max_attempts);
    assert!(!retries.contains_key("shelf-listening"), "it has those of all");
    assert_eq!((settings.faults.enabled, settings.faults.seed), (true, 99));
}

#[test]
fn unknown_resilience_name_is_rejected_with_known_names() {
    let settings = read("[resilience.suplier]\ntimeout = \"1s\"\n", &[]).expect("only the service knows");
    let rejection =
        settings.check_resilience(&STEPS, "supplier").expect_err("there is no such thing").to_string();
    for word in ["resilience.suplier", "supplier", "shelf-filling", "shelf-listening"] {
        assert!(rejection.contains(word), "{rejection:?} does not say {word}");
    }
}

#[test]
fn misspelled_member_of_file_is_rejected_by_name() {
    for (text, named) in [
        ("[resilience.supplier.breaker]\nopen_fro = \"1s\"", "open_fro"),
        ("[resilience.supplier.retry]\nmax_atempts = 1", "max_atempts"),
        ("[resilience.supplier.breaker.window]\nsteps = 1", "steps"),
        ("[resilience.supplier]\ntimout = \"1s\"", "timout"),
        ("[faults]\nenable = true", "enable"),
        ("[breaker]\nfailure_rate = \"half\"", "failure_rate"),
    ] {
        let rejection = read(text, &[]).expect_err(named).to_string();
        assert!(rejection.contains(named), "{rejection:?} does not name {named}");
    }
}

#[test]
fn unknown_or_impossible_override_is_rejected_by_name() {
    for (flag, named) in [
        ("resilience.suplier.timeout=1s", "resilience.suplier"),
        ("resilience.supplier.breaker.failure_rate=0", "resilience.supplier.breaker.failure_rate"),
        ("resilience.supplier.breaker.window.calls=0", "resilience.supplier.breaker.window"),
        ("resilience.supplier.retry.max_attempts=0", "resilience.supplier.retry.max_attempts"),
        ("resilience.supplier.timeout=10m", "resilience.supplier.timeout"),
        ("resilience.shelf-filling.timeout=1s", "resilience.shelf-filling"),
        ("breaker.slow_rate=101", "breaker.slow_rate"),
    ] {
        let settings = read("", &[flag]).expect("only the service knows what it has");
        let rejection = settings.check_resilience(&STEPS, "supplier").expect_err(flag).to_string();
        assert!(rejection.contains(named), "{rejection}");
    }
}

#[test]
fn breaker_policy_is_read_from_human_form() {
    let read = |text: &str| {
        let source = config::File::from_str(text, config::FileFormat::Toml);
        config::Config::builder().add_source(source).build()?.try_deserialize::<BreakerPolicy>()
    };
    assert_eq!(read("").expect("nothing to say"), BreakerPolicy::default());
    let policy = read("failure_rate = 20\nopen_for = \"1m\"\nwindow = { time = \"30s\" }").expect("a policy");
    assert_eq!((policy.failure_rate, policy.open_for), (20, Duration::from_mins(1)));
    assert_eq!(policy.window, Window::Time(Duration::from_secs(30)));
    assert_eq!(read("window.calls = 7").expect("a policy").window, Window::Calls(7));
    assert!(read("faliure_rate = 20").expect_err("a typing error").to_string().contains("faliure_rate"));
}
