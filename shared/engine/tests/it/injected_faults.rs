//! Injected faults: off by default, checked, and repeatable from their seed.

use std::time::Duration;

use saga_core::fault::FaultKind;
use saga_engine::runtime::injected_faults::{
    ActiveFault, FaultRejection, FaultSettings, InjectedFaults, NewFault,
};

use crate::support::{fault, faults};

/// What a service on the broker cannot be told.
const EXPLODE: FaultKind = FaultKind::new("explode", "it explodes");
const STEPS: [&str; 2] = ["cooking", "washing-up"];

#[test]
fn injection_is_rejected_unless_enabled() {
    assert!(!FaultSettings::default().enabled, "off by default");
    let faults = faults(false, STEPS.into());
    for kind in FaultKind::OF_A_SERVICE {
        assert_eq!(faults.inject(fault(kind)), Err(FaultRejection::Disabled));
    }
    assert_eq!((faults.view().enabled, faults.view().faults), (false, vec![]));
    assert_eq!(faults.trigger(FaultKind::FAIL_PERMANENTLY, "cooking"), None);
}

#[test]
fn probability_repeats_with_its_seed() {
    let struck = |seed: Option<u64>, percent| {
        let faults = faults(true, STEPS.into());
        let half = NewFault { probability: Some(percent), seed, ..fault(FaultKind::FAIL_TRANSIENTLY) };
        faults.inject(half).expect("faults are on");
        (0..1000)
            .map(|_| faults.trigger(FaultKind::FAIL_TRANSIENTLY, "cooking").is_some())
            .collect::<Vec<_>>()
    };
    assert_eq!(struck(Some(1), 50), struck(Some(1), 50));
    assert_ne!(struck(Some(1), 50), struck(Some(2), 50));
    assert_eq!(struck(None, 50), struck(Some(7), 50), "without one, the seed of the settings");
    for percent in [1, 50, 99, 100] {
        let hits = struck(Some(3), percent).into_iter().filter(|struck| *struck).count();
        let expected = usize::from(percent) * 10;
        assert!(hits.abs_diff(expected) < 60, "{hits} of 1000 at {percent} %");
        assert!((percent == 100) == (hits == 1000), "{hits} of 1000 at {percent} %");
    }
}

#[test]
fn new_seed_restarts_the_random_numbers_of_all_faults() {
    let faults = faults(true, STEPS.into());
    let half = |seed| NewFault { probability: Some(50), seed, ..fault(FaultKind::FAIL_TRANSIENTLY) };
    faults.inject(half(Some(9))).expect("faults are on");
    let run = || (0..50).map(|_| faults.trigger(FaultKind::FAIL_TRANSIENTLY, "cooking")).collect::<Vec<_>>();
    let first = run();
    // One of another kind, only to bring the seed.
    faults.inject(NewFault { seed: Some(9), ..fault(FaultKind::PAUSE) }).expect("faults are on");
    assert_eq!(run(), first);
    assert_eq!(faults.view().seed, 9);
}

#[test]
fn fault_with_a_count_ends_by_itself() {
    let faults = faults(true, STEPS.into());
    let three = NewFault { next: Some(3), ..fault(FaultKind::FAIL_PERMANENTLY) };
    faults.inject(three).expect("faults are on");
    let struck: Vec<_> =
        (0..5).map(|_| faults.trigger(FaultKind::FAIL_PERMANENTLY, "cooking").is_some()).collect();
    assert_eq!(struck, [true, true, true, false, false]);
    assert_eq!(faults.view().faults, []);
}

#[test]
fn fault_of_one_step_does_not_affect_others() {
    let faults = faults(true, STEPS.into());
    let of_cooking =
        NewFault { step: Some("cooking".to_owned()), next: Some(1), ..fault(FaultKind::FAIL_TRANSIENTLY) };
    faults.inject(of_cooking).expect("faults are on");
    assert_eq!(faults.trigger(FaultKind::FAIL_TRANSIENTLY, "washing-up"), None);
    assert_eq!(faults.trigger(FaultKind::FAIL_PERMANENTLY, "cooking"), None, "another kind");
    assert!(faults.trigger(FaultKind::FAIL_TRANSIENTLY, "cooking").is_some());
}

#[test]
fn active_faults_are_listed_with_hits_and_can_be_ended() {
    let faults = faults(true, STEPS.into());
    let slow = NewFault { delay_ms: Some(250), ..fault(FaultKind::DELAY) };
    let first = faults.inject(slow).expect("faults are on");
    let second = faults.inject(fault(FaultKind::PUBLISH_TWICE)).expect("faults are on");
    assert_eq!(faults.trigger(FaultKind::DELAY, "cooking"), Some(Duration::from_millis(250)));
    assert_eq!(faults.trigger(FaultKind::DELAY, "washing-up"), Some(Duration::from_millis(250)));
    let shown = ActiveFault { hits: 2, ..first.clone() };
    assert_eq!(faults.view().faults, [shown, second.clone()]);
    assert_eq!((first.probability, first.delay_ms, first.next), (100, Some(250), None));
    assert!(first.id != second.id);
    assert!(faults.remove(first.id) && !faults.remove(first.id));
    assert_eq!(faults.trigger(FaultKind::DELAY, "cooking"), None);
    assert_eq!((faults.clear(), faults.clear()), (1, 0));
    assert_eq!(faults.trigger(FaultKind::PUBLISH_TWICE, ""), None);
}

#[test]
fn invalid_fault_is_rejected_with_the_name_of_its_member() {
    let step = |name: &str| Some(name.to_owned());
    for (new, member) in [
        (fault(EXPLODE), "kind"),
        (NewFault { step: step("flying"), ..fault(FaultKind::FAIL_TRANSIENTLY) }, "step"),
        (NewFault { step: step("cooking"), ..fault(FaultKind::PUBLISH_TWICE) }, "step"),
        (NewFault { probability: Some(0), ..fault(FaultKind::FAIL_TRANSIENTLY) }, "probability"),
        (NewFault { probability: Some(101), ..fault(FaultKind::FAIL_TRANSIENTLY) }, "probability"),
        (NewFault { next: Some(0), ..fault(FaultKind::FAIL_TRANSIENTLY) }, "next"),
        (NewFault { next: Some(1_000_001), ..fault(FaultKind::FAIL_TRANSIENTLY) }, "next"),
        (NewFault { for_seconds: Some(0), ..fault(FaultKind::PAUSE) }, "for_seconds"),
        (NewFault { for_seconds: Some(86_401), ..fault(FaultKind::PAUSE) }, "for_seconds"),
        (fault(FaultKind::DELAY), "delay_ms"),
        (NewFault { delay_ms: Some(0), ..fault(FaultKind::DELAY) }, "delay_ms"),
        (NewFault { delay_ms: Some(600_001), ..fault(FaultKind::DELAY) }, "delay_ms"),
        (NewFault { delay_ms: Some(1), ..fault(FaultKind::PAUSE) }, "delay_ms"),
    ] {
        let faults = faults(true, STEPS.into());
        match faults.inject(new.clone()) {
            Err(FaultRejection::Invalid(named, why)) => {
                assert_eq!(named, member, "{new:?}");
                assert!(!why.is_empty());
            }
            other => panic!("{new:?} came out as {other:?}"),
        }
        assert_eq!(faults.view().faults, [], "nothing changed");
    }
    // What stands outside has kinds of its own, and no others.
    let settings = FaultSettings { enabled: true, seed: 1 };
    let outside = InjectedFaults::new(settings, &[EXPLODE], vec![]);
    assert!(outside.inject(fault(EXPLODE)).is_ok());
    for kind in FaultKind::OF_A_SERVICE {
        assert!(outside.inject(fault(kind)).is_err(), "{kind:?}");
    }
}

#[test]
fn limits_of_all_members_are_accepted() {
    let faults = faults(true, STEPS.into());
    for new in [
        NewFault { probability: Some(1), next: Some(1_000_000), ..fault(FaultKind::FAIL_TRANSIENTLY) },
        NewFault { probability: Some(100), next: Some(1), ..fault(FaultKind::FAIL_PERMANENTLY) },
        NewFault { delay_ms: Some(1), ..fault(FaultKind::DELAY) },
        NewFault { delay_ms: Some(600_000), step: Some("cooking".to_owned()), ..fault(FaultKind::DELAY) },
        NewFault { step: Some("washing-up".to_owned()), ..fault(FaultKind::PAUSE) },
    ] {
        faults.inject(new.clone()).unwrap_or_else(|why| panic!("{new:?}: {why:?}"));
    }
}

#[test]
fn number_of_active_faults_is_bounded() {
    let faults = faults(true, STEPS.into());
    let injected = (0..1000).map_while(|_| faults.inject(fault(FaultKind::PUBLISH_TWICE)).ok()).count();
    assert_eq!(injected, 100);
    faults.clear();
    assert!(faults.inject(fault(FaultKind::PUBLISH_TWICE)).is_ok());
}

#[test]
fn unknown_members_of_a_fault_are_rejected() {
    let read = |json: &str| serde_json::from_str::<NewFault>(json);
    let full = read(r#"{"kind":"fail_transiently","step":"cooking","probability":30,"next":5,"seed":42}"#);
    let full = full.expect("a fault");
    assert_eq!((&*full.kind, full.step.as_deref()), (FaultKind::FAIL_TRANSIENTLY.name, Some("cooking")));
    assert_eq!((full.probability, full.next, full.seed), (Some(30), Some(5), Some(42)));
    for wrong in [r#"{"kind":7}"#, r#"{"kind":"pause","propability":3}"#, r"{}"] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}
