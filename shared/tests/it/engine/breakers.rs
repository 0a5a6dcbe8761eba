//! Breakers inside a service: calls, retries and steps while what they need is away, and when it comes back.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use shared::engine::{Input, Outcome};
use shared::faults::{FaultKind, NewFault};
use shared::resilience::{BreakerPolicy, Guard, State};
use shared::store::{Reads, Retry, StoreFault, Writes};

use super::done;
use crate::support::rig::{Deed, Pace, Rig, Supplier, in_memory};
use crate::support::shelf::{Shelf, ShelfEvent};
use crate::support::shop::{FILLING, LISTENING, Reply, SUPPLIER, Shop, ShopCommand, replenished};
use crate::support::wait_until;
use crate::support::writes::{at, commit, id, load, recorded, retry, state};

/// Law 7: an outage of a hundred tries consumes no attempts, makes no dead letter and gives nothing up; after it
/// every call is answered.
#[tokio::test]
async fn an_outage_of_what_is_called_costs_nothing_and_afterwards_every_call_is_answered()
-> Result<(), StoreFault> {
    const CALLS: i64 = 30;
    let rig = Rig::guarded(in_memory(), quick(), Supplier::closed(), flapping()).await;
    for _ in 0..CALLS {
        done(rig.ask(ShopCommand::Supply("tea")).await);
        done(rig.ask(ShopCommand::Insist("tea")).await);
    }
    wait_until("a hundred tries have failed", async || rig.supplier.called().len() > 100).await;
    let stats = rig.store.stats().await?;
    assert_eq!((stats.tasks, stats.dead_letters), (2 * CALLS.unsigned_abs(), 0));
    assert_eq!(state(rig.store.as_ref(), "tea").await?, None, "nothing was given up");
    assert!(rig.guard(SUPPLIER).view().transitions.len() > 5, "it opened again and again");

    rig.supplier.opens();
    wait_until("every call is answered", async || {
        rig.store.stats().await.is_ok_and(|stats| stats.tasks == 0)
    })
    .await;
    assert_eq!(state(rig.store.as_ref(), "tea").await?, Some(shelf_of(2 * CALLS)));
    assert_eq!((rig.store.stats().await?.dead_letters, rig.supplier.overlaps()), (0, 0));
    wait_until("it is closed again", async || rig.guard(SUPPLIER).state() == State::Closed).await;
    Ok(())
}

/// Law 6: who answers "never" is there. The call is given up at once, and the breaker learns nothing.
#[tokio::test]
async fn a_final_refusal_gives_up_at_once_and_counts_for_nothing() -> Result<(), StoreFault> {
    let refusals = (0..20).map(|_| Deed::Refuse);
    let rig = Rig::with_supplier(in_memory(), Pace::default(), Supplier::will(refusals)).await;
    for _ in 0..19 {
        done(rig.ask(ShopCommand::Supply("tea")).await);
    }
    done(rig.ask(ShopCommand::Insist("milk")).await);
    no_call_is_open(&rig).await;
    assert_eq!(rig.supplier.called().len(), 20, "nobody was asked twice");
    assert_eq!(state(rig.store.as_ref(), "tea").await?.map(|shelf| shelf.given_up), Some(19));
    let seen = rig.guard(SUPPLIER).view();
    assert_eq!((seen.state, seen.calls, seen.failures), (State::Closed, 0, 0));
    let letters = rig.store.dead_letters(9).await?;
    let [stored] = &letters[..] else { panic!("one dead letter: {letters:?}") };
    assert_eq!(
        (stored.letter.attempts, stored.letter.reason.as_str()),
        (1, "no supply: the supplier says no")
    );
    Ok(())
}

/// A refusal of a probe neither closes the breaker nor keeps its place.
#[tokio::test]
async fn final_refusals_do_not_keep_a_half_open_breaker_from_closing() -> Result<(), StoreFault> {
    let refusals = (0..10).map(|_| Deed::Refuse);
    let rig = Rig::guarded(in_memory(), quick(), Supplier::will(refusals), flapping()).await;
    opened(rig.guard(SUPPLIER));
    for _ in 0..20 {
        done(rig.ask(ShopCommand::Supply("tea")).await);
    }
    no_call_is_open(&rig).await;
    assert_eq!(state(rig.store.as_ref(), "tea").await?, Some(Shelf { given_up: 10, ..shelf_of(10) }));
    assert_eq!(rig.guard(SUPPLIER).state(), State::Closed);
    Ok(())
}

#[tokio::test]
async fn no_call_is_made_while_the_breaker_is_open_and_all_are_when_it_closes() -> Result<(), StoreFault> {
    type Close = fn(&Guard);
    let closings: [Close; 2] = [Guard::reset, Guard::force_closed];
    for close in closings {
        let rig = Rig::guarded(in_memory(), quick(), Arc::default(), BreakerPolicy::default()).await;
        rig.guard(SUPPLIER).force_open();
        for _ in 0..5 {
            done(rig.ask(ShopCommand::Supply("tea")).await);
        }
        the_timers_have_looked(&rig).await;
        assert!(rig.supplier.called().is_empty(), "{:?}", rig.supplier.called());
        close(rig.guard(SUPPLIER));
        no_call_is_open(&rig).await;
        assert_eq!(rig.supplier.called().len(), 5);
        assert_eq!(state(rig.store.as_ref(), "tea").await?, Some(shelf_of(5)));
    }
    Ok(())
}

/// What comes back after an outage gets a few calls first, and with each answer more.
#[tokio::test]
async fn a_dependency_that_comes_back_gets_a_few_calls_at_once() -> Result<(), StoreFault> {
    let hanging = (0..20).map(|_| Deed::Hang);
    let pace = Pace { concurrency: 20, ..quick() };
    let rig = Rig::guarded(in_memory(), pace, Supplier::will(hanging), flapping()).await;
    opened(rig.guard(SUPPLIER));
    for _ in 0..20 {
        done(rig.ask(ShopCommand::Supply("tea")).await);
    }
    wait_until("the probes are under way", async || rig.supplier.called().len() == 3).await;
    the_timers_have_looked(&rig).await;
    assert_eq!(rig.supplier.called().len(), 3, "as many as there are probes");
    assert_eq!(rig.guard(SUPPLIER).state(), State::HalfOpen);
    Ok(())
}

/// Law 4: the lease of a call that waits for its turn lapses and is renewed; it is one call all the same.
#[tokio::test]
async fn a_call_whose_lease_lapsed_while_it_waited_is_not_made_twice_at_once() -> Result<(), StoreFault> {
    let pace = Pace { concurrency: 1, task_lease: SignedDuration::from_millis(30), ..quick() };
    let rig = Rig::guarded(in_memory(), pace, Supplier::will([Deed::Hang]), flapping()).await;
    done(rig.ask(ShopCommand::Supply("tea")).await);
    wait_until("the first call is under way", async || rig.supplier.called().len() == 1).await;
    let second = Input::command(id(8), id(8), ShopCommand::Supply("tea"), None);
    done(rig.settle_together(vec![second]).await.remove(0));
    let waiting = shared::ids::task_id("order:command", id(8), 0);
    let is_claimed_anew = async || {
        let reads = Reads { tasks: [waiting].into(), ..Reads::default() };
        load(rig.store.as_ref(), reads).await.is_ok_and(|loaded| loaded.tasks[&waiting] >= 4)
    };
    wait_until("its lease has lapsed again and again", is_claimed_anew).await;
    assert_eq!(rig.supplier.called().len(), 1, "it still waits");
    rig.supplier.release();
    no_call_is_open(&rig).await;
    assert_eq!(rig.supplier.called().iter().filter(|id| **id == waiting).count(), 1);
    assert_eq!(rig.supplier.overlaps(), 0);
    assert_eq!(state(rig.store.as_ref(), "tea").await?, Some(shelf_of(2)));
    Ok(())
}

/// A bug: the retry was due before the failed call had left the list of those held, and nobody made it.
#[tokio::test]
async fn a_failed_call_that_is_due_again_at_once_is_made_again() -> Result<(), StoreFault> {
    let pace = Pace { first_delay: Duration::ZERO, ..Pace::default() };
    let supplier = Supplier::will([Deed::Fail, Deed::Fail, Deed::Answer(5)]);
    let rig = Rig::with_supplier(in_memory(), pace, supplier).await;
    done(rig.ask(ShopCommand::Supply("tea")).await);
    no_call_is_open(&rig).await;
    assert_eq!(state(rig.store.as_ref(), "tea").await?, Some(shelf_of(5)));
    Ok(())
}

/// Law 2 and 7: what waits for an open breaker waits with its attempts, and in nobody's way.
#[tokio::test]
async fn retries_of_a_shut_step_wait_and_hold_up_no_other_step() -> Result<(), StoreFault> {
    for shut in [FILLING.name, SUPPLIER] {
        let store = in_memory();
        // More of them than one look takes up, and all due before the other.
        let shut_out = (1..=5).map(|number| Retry {
            payload: replenished(id(number), "tea", 1),
            ..retry(FILLING.name, number, at(0))
        });
        let other = Retry { payload: replenished(id(9), "tea", 1), ..retry(LISTENING.name, 9, at(1)) };
        let retries = shut_out.chain([other]).collect();
        commit(store.as_ref(), Writes { retries, ..recorded("tea", &[], &[ShelfEvent::Listed]) }).await?;
        let pace = Pace { due_limit: 2, ..quick() };
        let rig = Rig::just_started(store, pace, Arc::default(), BreakerPolicy::default());
        rig.guard(shut).force_open();
        let handled = async |step: &str, count: u64| {
            let tallies = rig.store.tallies().await.expect("the store works");
            tallies.handled.get(step).copied().unwrap_or(0) == count
        };
        wait_until("the other step's retry", async || handled(LISTENING.name, 1).await).await;
        the_timers_have_looked(&rig).await;
        assert!(handled(FILLING.name, 0).await);
        let due = rig.store.due(crate::support::writes::look(at(9), 9, "nobody", at(9))).await?;
        assert_eq!(due.retries.iter().map(|retry| retry.attempts).collect::<Vec<_>>(), [1; 5]);
        rig.guard(shut).reset();
        wait_until("the retries of the step", async || handled(FILLING.name, 5).await).await;
        assert_eq!(rig.store.stats().await?.dead_letters, 0);
    }
    Ok(())
}

#[tokio::test]
async fn a_step_is_shut_by_its_own_breaker_by_what_it_needs_and_by_a_pause() {
    let rig = Rig::new().await;
    let shut = || [FILLING, LISTENING].map(|step| rig.gate(step).is_shut());
    assert_eq!(shut(), [false, false]);
    rig.guard(SUPPLIER).force_open();
    assert_eq!(shut(), [true, false], "only one of them needs the supplier");
    assert!(rig.gate(FILLING).leave().is_none());
    rig.guard(SUPPLIER).reset();
    rig.guard(LISTENING.name).force_open();
    assert_eq!(shut(), [false, true]);
    rig.guard(LISTENING.name).force_closed();
    assert_eq!(shut(), [false, false]);
    let pause = NewFault { step: Some(FILLING.name.to_owned()), ..fault(FaultKind::Pause) };
    rig.faults.inject(pause).expect("faults are on");
    assert_eq!(shut(), [true, false]);
    rig.faults.inject(fault(FaultKind::Pause)).expect("faults are on");
    assert_eq!(shut(), [true, true]);
    assert_eq!(rig.faults.clear(), 2);
    assert_eq!(shut(), [false, false]);
}

/// Waiting for the gate costs nothing and is over as soon as the last of what shuts it is gone.
#[tokio::test]
async fn a_gate_opens_when_all_that_shut_it_is_gone() {
    let rig = Rig::new().await;
    let gate = rig.gate(FILLING);
    rig.guard(SUPPLIER).force_open();
    rig.guard(FILLING.name).force_open();
    rig.faults.inject(fault(FaultKind::Pause)).expect("faults are on");
    let mut opens = std::pin::pin!(gate.opens());
    assert!(futures::poll!(&mut opens).is_pending());
    rig.guard(FILLING.name).reset();
    assert!(futures::poll!(&mut opens).is_pending());
    rig.faults.clear();
    assert!(futures::poll!(&mut opens).is_pending());
    rig.guard(SUPPLIER).force_closed();
    crate::support::in_time("the gate opens", opens).await;
}

/// Half-open lets a few through, and each that ends well lets one more be under way.
#[tokio::test]
async fn a_half_open_step_lets_its_probes_through_and_ramps_with_each_success() {
    let rig = Rig::guarded(in_memory(), Pace::default(), Arc::default(), flapping()).await;
    let gate = rig.gate(FILLING);
    assert_eq!(gate.ramp(), None);
    opened(rig.guard(FILLING.name));
    assert!(gate.is_shut() && gate.leave().is_none());
    wait_until("its time has passed", async || !gate.is_shut()).await;
    let probes: Vec<_> = std::iter::from_fn(|| gate.leave()).collect();
    assert_eq!((probes.len(), gate.ramp()), (3, Some(3)));
    assert!(!gate.is_shut(), "it is not open");
    for probe in probes {
        probe.ended::<Shop>(&Outcome::Done(Reply::default()));
    }
    assert_eq!(rig.guard(FILLING.name).state(), State::Closed);
    for more in 1..=10 {
        gate.leave().expect("it is closed").ended::<Shop>(&Outcome::Done(Reply::default()));
        assert_eq!(gate.ramp(), Some(3 + more));
    }
    // What one message is guilty of says nothing of the step.
    for outcome in [Outcome::Dead("x".to_owned()), Outcome::Retried("x".to_owned()), Outcome::Duplicate] {
        gate.leave().expect("it is closed").ended::<Shop>(&outcome);
    }
    assert_eq!((gate.ramp(), rig.guard(FILLING.name).view().failures), (Some(13), 0));
}

/// Law 7: a step that fails for reasons outside of its messages opens its breaker, and from then on costs none of
/// them an attempt.
#[tokio::test]
async fn a_failing_step_opens_its_breaker_and_then_consumes_no_attempts() {
    let rig = Rig::guarded(in_memory(), Pace::default(), Arc::default(), flapping()).await;
    rig.faults.inject(fault(FaultKind::FailTransiently)).expect("faults are on");
    let gate = rig.gate(FILLING);
    let mut severities = Vec::new();
    while let Some(mut leave) = gate.leave() {
        let trouble = leave.begin().trouble.expect("it always strikes");
        severities.push(trouble.severity);
        leave.ended::<Shop>(&Outcome::Retried(trouble.reason()));
    }
    use shared::retry::Severity::{Outage, Transient};
    assert_eq!(severities, [Transient, Transient, Transient, Transient, Outage], "the fifth opens it");
    wait_until("its time has passed", async || !gate.is_shut()).await;
    let mut probe = gate.leave().expect("a probe");
    assert_eq!(probe.begin().trouble.map(|trouble| trouble.severity), Some(Outage));
}

/// Opens after five failures, for a moment; three probes.
fn flapping() -> BreakerPolicy {
    BreakerPolicy { open_for: Duration::from_millis(20), ..BreakerPolicy::default() }
}

/// Timers that look all the time; attempts enough that an outage is noticed before they are used up.
fn quick() -> Pace {
    Pace {
        attempts: 6,
        poll: Duration::from_millis(5),
        first_delay: Duration::from_millis(2),
        ..Pace::default()
    }
}

fn opened(guard: &Guard) {
    while let Some(pass) = guard.acquire() {
        pass.fail();
    }
    assert!(guard.is_open());
}

fn fault(kind: FaultKind) -> NewFault {
    NewFault { kind, step: None, probability: None, next: None, delay_ms: None, seed: None }
}

fn shelf_of(pieces: i64) -> Shelf {
    Shelf { pieces, ..Shelf::default() }
}

async fn no_call_is_open(rig: &Rig) {
    wait_until("no task is open", async || rig.store.stats().await.is_ok_and(|stats| stats.tasks == 0)).await;
}

/// Something that is due is settled: whatever else was due had its chance too.
async fn the_timers_have_looked(rig: &Rig) {
    for _ in 0..3 {
        done(rig.ask(ShopCommand::CheckAt("clock", jiff::Timestamp::UNIX_EPOCH)).await);
        let is_checked = async || {
            let clock = state(rig.store.as_ref(), "clock").await.expect("the store works");
            clock.is_some_and(|clock| clock.check_at.is_none())
        };
        wait_until("the timers have looked", is_checked).await;
    }
}
