//! Service statistics, fault kinds, and error texts.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use saga_core::dead_letter::{DeadLetterOrigin, DeadLetterStatus};
use saga_core::fault::FaultKind;
use saga_core::retry::{error_chain, error_links, panic_text};
use saga_core::service_stats::{ServiceStats, StepStats, StoreStats};

/// Dead letters and rejected outbox entries wait for an operator and are not in flight.
#[test]
fn service_is_quiet_without_work_in_flight() {
    let stats = StoreStats { outbox_failed: 1, dead_letters: 1, ..StoreStats::default() };
    assert!(service_stats(stats.clone(), [Some(0), Some(0)]).is_quiet());
    for busy in [
        service_stats(StoreStats { outbox_pending: 1, ..stats.clone() }, [Some(0); 2]),
        service_stats(StoreStats { outbox_republishing: 1, ..stats.clone() }, [Some(0); 2]),
        service_stats(StoreStats { retries: 2, ..stats.clone() }, [Some(0); 2]),
        service_stats(StoreStats { tasks: 3, ..stats.clone() }, [Some(0); 2]),
        service_stats(stats.clone(), [Some(0), Some(4)]),
        service_stats(stats.clone(), [None, Some(0)]),
    ] {
        assert!(!busy.is_quiet(), "{busy:?}");
    }
}

#[test]
fn fault_kind_declares_its_parameters() {
    let kinds = FaultKind::OF_A_SERVICE;
    let with_delay: Vec<_> = kinds.iter().filter(|kind| kind.needs_delay).map(|kind| kind.name).collect();
    assert_eq!(with_delay, ["delay"]);
    let of_a_step: Vec<_> = kinds.iter().filter(|kind| kind.takes_step).map(|kind| kind.name).collect();
    assert_eq!(of_a_step, ["fail_transiently", "fail_permanently", "delay", "crash", "pause"]);
    let plain = FaultKind::new("hang", "it hangs");
    assert_eq!((plain.needs_delay, plain.takes_step), (false, false));
    assert!(plain.with_delay().needs_delay);
}

/// Names are stored in tables and used in commands.
#[test]
fn dead_letter_status_and_origin_names_round_trip() {
    let names = ["PENDING", "REPLAYING", "RESOLVED", "DISCARDED", "RESOLVED_MANUALLY"];
    let named = names.map(DeadLetterStatus::named);
    assert_eq!(named.map(|status| status.map(DeadLetterStatus::as_str)), names.map(Some));
    assert_eq!(DeadLetterStatus::ALL.len(), names.len());
    assert_eq!(DeadLetterStatus::named("pending"), None);
    let origins = [DeadLetterOrigin::Message, DeadLetterOrigin::Foreign, DeadLetterOrigin::Task];
    assert_eq!(origins.map(DeadLetterOrigin::as_str), ["message", "foreign", "task"]);
}

#[test]
fn error_chain_lists_sources_and_panic_text_is_found() {
    let error = Nested("cannot count", Some(Box::new(Nested("the lid is shut", None))));
    assert_eq!(error_chain(&error), "cannot count: the lid is shut");
    assert_eq!(error_links(&error), ["cannot count", "the lid is shut"]);
    assert_eq!(panic_text(&"in the dark"), "in the dark");
    assert_eq!(panic_text(&"in the dark".to_owned()), "in the dark");
    assert_eq!(panic_text(&7), "without a message");
}

#[derive(Debug)]
struct Nested(&'static str, Option<Box<Self>>);

impl fmt::Display for Nested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Nested {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.1.as_ref().map(|source| source.as_ref() as _)
    }
}

fn service_stats(stats: StoreStats, waiting: [Option<u64>; 2]) -> ServiceStats {
    let step = |(step, waiting): (&str, Option<u64>)| StepStats {
        step: step.to_owned(),
        subjects: vec![],
        handled: 5,
        retrying: 0,
        dead: 1,
        waiting,
        acknowledged: BTreeMap::new(),
    };
    ServiceStats {
        service: "till".to_owned(),
        instance: "till-1".to_owned(),
        at: Timestamp::UNIX_EPOCH,
        stats,
        calls_open: 0,
        published: BTreeMap::new(),
        newest: None,
        lost_before: None,
        steps: ["first", "second"].into_iter().zip(waiting).map(step).collect(),
    }
}
