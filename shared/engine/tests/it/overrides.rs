//! Operators' overrides of breakers and faults: shared by replicas, kept across restarts.

use std::sync::Arc;

use jiff::Timestamp;
use saga_core::breaker::State;
use saga_core::fault::FaultKind;
use saga_core::service::Service as _;
use saga_engine::runtime::admission::BreakerAction;
use saga_engine::runtime::injected_faults::{FaultRejection, NewFault};
use saga_engine::runtime::overrides::record_start;
use saga_engine::store::Store;

use crate::support::{
    Depot, EngineHarness, FILLING, PostgresServer, SUPPLIER, fault, fault_of, in_memory, open_postgres,
    wait_until,
};

/// Store of one process.
const WORKS: &str = "the store works";

/// Overrides as of a newer build.
const UNREADABLE: &str = r#"{"breakers": []}"#;

async fn inject(at: &EngineHarness, new: NewFault) -> u64 {
    at.overrides.inject(new).await.expect(WORKS).expect("faults are on").id
}

async fn change_breaker(at: &EngineHarness, name: &str, action: BreakerAction) -> State {
    at.overrides.set_breaker(name, action).await.expect(WORKS).expect("it has this breaker").state
}

/// Ids of the active faults.
fn active(at: &EngineHarness) -> Vec<u64> {
    at.faults.view().faults.iter().map(|fault| fault.id).collect()
}

#[tokio::test]
async fn forced_breaker_stays_forced_across_restart_until_reset() {
    let store = in_memory();
    let depot = EngineHarness::overridden(store.clone()).await;
    assert_eq!(change_breaker(&depot, SUPPLIER, BreakerAction::Open).await, State::ForcedOpen);
    assert_eq!(change_breaker(&depot, FILLING.name, BreakerAction::Closed).await, State::ForcedClosed);
    assert!(depot.overrides.set_breaker("nobody", BreakerAction::Open).await.expect(WORKS).is_none());
    drop(depot);
    let depot = EngineHarness::overridden(store.clone()).await;
    assert_eq!(depot.breaker(SUPPLIER).state, State::ForcedOpen);
    assert_eq!(depot.breaker(FILLING.name).state, State::ForcedClosed);
    assert_eq!(change_breaker(&depot, SUPPLIER, BreakerAction::Reset).await, State::Closed);
    drop(depot);
    let depot = EngineHarness::overridden(store).await;
    assert_eq!(depot.breaker(SUPPLIER).state, State::Closed);
    assert_eq!(depot.breaker(FILLING.name).state, State::ForcedClosed);
}

/// A limited or killing fault ends with its process, which could otherwise never be told to stop it.
#[tokio::test]
async fn fault_survives_restart_unless_limited_or_killing() {
    let store = in_memory();
    let depot = EngineHarness::overridden(store.clone()).await;
    let lasting = inject(&depot, fault_of(FILLING, FaultKind::FAIL_TRANSIENTLY)).await;
    let counted = NewFault { next: Some(3), ..fault_of(FILLING, FaultKind::FAIL_PERMANENTLY) };
    let counted = inject(&depot, counted).await;
    let deadly = inject(&depot, fault(FaultKind::CRASH_BEFORE_ACK)).await;
    let crash = inject(&depot, NewFault { next: Some(3), ..fault_of(FILLING, FaultKind::CRASH) }).await;
    assert_eq!(active(&depot), [lasting, counted, deadly, crash]);
    drop(depot);
    let depot = EngineHarness::overridden(store.clone()).await;
    assert_eq!(active(&depot), [lasting, crash], "a crash counts its strikes in the database");
    assert!(depot.overrides.remove(crash).await.expect(WORKS));
    let next = inject(&depot, fault_of(FILLING, FaultKind::PAUSE)).await;
    assert!(next > deadly, "no number is given twice");
    assert!(depot.overrides.remove(lasting).await.expect(WORKS));
    assert!(!depot.overrides.remove(lasting).await.expect(WORKS), "it is gone");
    drop(depot);
    let depot = EngineHarness::overridden(store.clone()).await;
    assert_eq!(active(&depot), [next]);
    assert_eq!(depot.overrides.clear().await.expect(WORKS), 1);
    drop(depot);
    assert_eq!(active(&EngineHarness::overridden(store).await), [0; 0]);
}

#[tokio::test]
async fn fault_ends_by_time_also_while_its_process_is_down() {
    let store = in_memory();
    let depot = EngineHarness::overridden(store.clone()).await;
    let of = |seconds| NewFault { for_seconds: Some(seconds), ..fault_of(FILLING, FaultKind::PAUSE) };
    let (short, long) = (inject(&depot, of(1)).await, inject(&depot, of(3_600)).await);
    assert_eq!(active(&depot), [short, long]);
    wait_until("the short one has ended", async || active(&depot) == [long]).await;
    drop(depot);
    let depot = EngineHarness::overridden(store.clone()).await;
    assert_eq!(active(&depot), [long]);
    let until = depot.faults.view().faults[0].until.expect("an end");
    drop(depot);
    let stored = store.overrides().await.expect(WORKS);
    let text = stored.text.replace(&until.to_string(), "2026-01-01T00:00:00Z");
    assert!(store.replace_overrides(stored.revision, text).await.expect(WORKS));
    let depot = EngineHarness::overridden(store).await;
    assert_eq!(active(&depot), [0; 0]);
}

#[tokio::test]
async fn invalid_override_is_rejected_and_not_stored() {
    let store = in_memory();
    let depot = EngineHarness::overridden(store.clone()).await;
    let rejected = depot.overrides.inject(NewFault { delay_ms: Some(1), ..fault(FaultKind::PAUSE) }).await;
    let rejected = rejected.expect(WORKS).expect_err("a pause takes no delay");
    assert!(matches!(rejected, FaultRejection::Invalid("delay_ms", _)), "{rejected:?}");
    assert_eq!(depot.overrides.clear().await.expect(WORKS), 0);
    assert_eq!(store.overrides().await.expect(WORKS).revision, 0);
}

/// Unreadable overrides, as of a newer build, stop no process, and are replaced by the next ones.
#[tokio::test]
async fn unreadable_overrides_have_no_effect() {
    let store = in_memory();
    assert!(store.replace_overrides(0, UNREADABLE.to_owned()).await.expect(WORKS));
    let depot = EngineHarness::overridden(store.clone()).await;
    assert_eq!(depot.breaker(SUPPLIER).state, State::Closed);
    assert_eq!(change_breaker(&depot, SUPPLIER, BreakerAction::Open).await, State::ForcedOpen);
    drop(depot);
    assert_eq!(EngineHarness::overridden(store).await.breaker(SUPPLIER).state, State::ForcedOpen);
}

/// Regression: the next change wrote a document without the breakers that were forced.
#[tokio::test]
async fn unreadable_overrides_leave_the_last_good_ones_in_force() {
    let store = in_memory();
    let depot = EngineHarness::overridden(store.clone()).await;
    change_breaker(&depot, SUPPLIER, BreakerAction::Open).await;
    assert!(store.replace_overrides(1, UNREADABLE.to_owned()).await.expect(WORKS));
    let late = EngineHarness::overridden(store.clone()).await;
    assert!(late.overrides.unreadable().is_some(), "it is reported");
    assert_eq!(late.breaker(SUPPLIER).state, State::Closed, "a new process cannot know");

    change_breaker(&depot, FILLING.name, BreakerAction::Closed).await;
    assert_eq!(depot.overrides.unreadable(), None);
    assert_eq!(change_breaker(&late, FILLING.name, BreakerAction::Reset).await, State::Closed);
    assert_eq!((late.breaker(SUPPLIER).state, late.overrides.unreadable()), (State::ForcedOpen, None));
    drop((depot, late));
    assert_eq!(EngineHarness::overridden(store).await.breaker(SUPPLIER).state, State::ForcedOpen);
}

#[tokio::test]
async fn unreadable_overrides_are_replaced_by_operators_only() {
    let store = in_memory();
    assert!(store.replace_overrides(0, UNREADABLE.to_owned()).await.expect(WORKS));
    let started = record_start(store.as_ref(), "depot", Timestamp::now()).await.expect(WORKS);
    assert_eq!(started, store.overrides().await.expect(WORKS));
    assert_eq!(started.text, UNREADABLE, "a start would lose what an operator can still read there");
    let depot = EngineHarness::overridden(store.clone()).await;
    assert_eq!(depot.overrides.clear().await.expect(WORKS), 0);
    assert_eq!(depot.overrides.unreadable(), None, "even a change of nothing writes them anew");
    assert_eq!(EngineHarness::overridden(store).await.overrides.unreadable(), None);
}

/// Two processes share one database.
#[tokio::test(flavor = "multi_thread")]
async fn override_at_one_replica_applies_to_all() {
    let server = PostgresServer::any();
    let url = server.database().await;
    let open = async || {
        let store = open_postgres(&url, Depot::rows()).await;
        Arc::new(store.expect("a database of this build")) as Arc<dyn Store>
    };
    let (one, other) =
        (EngineHarness::overridden(open().await).await, EngineHarness::overridden(open().await).await);
    let state_at_other = async |expected| other.breaker(SUPPLIER).state == expected;
    change_breaker(&one, SUPPLIER, BreakerAction::Open).await;
    wait_until("it is open at the other", async || state_at_other(State::ForcedOpen).await).await;
    // One that is counted too: it is for those who are there.
    let counted = NewFault { next: Some(3), ..fault_of(FILLING, FaultKind::FAIL_PERMANENTLY) };
    let (counted, lasting) =
        (inject(&one, counted).await, inject(&one, fault_of(FILLING, FaultKind::PAUSE)).await);
    wait_until("both are at the other", async || active(&other) == [counted, lasting]).await;
    assert_eq!(active(&one), [counted, lasting]);
    assert!(other.overrides.remove(counted).await.expect(WORKS));
    wait_until("it is over at the first", async || active(&one) == [lasting]).await;
    // What the second is told counts on what the first was told.
    assert_eq!(change_breaker(&other, SUPPLIER, BreakerAction::Reset).await, State::Closed);
    wait_until("it is closed at the first", async || one.breaker(SUPPLIER).state == State::Closed).await;
    drop(one);
    let third = EngineHarness::overridden(open().await).await;
    assert_eq!((active(&third), third.breaker(SUPPLIER).state), (vec![lasting], State::Closed));
}
