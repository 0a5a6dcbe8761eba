//! SQLite: short reads do not wait for long ones, and abandoned reads end.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use saga_core::decider::Decider as _;
use saga_core::query::Query;
use saga_core::row::{Folding, RowKind};
use saga_engine::store::StoreFault;
use saga_engine::store::roles::{Monitoring as _, Outbox as _, Queries as _, Verification as _};
use saga_engine::store::sqlite::SqliteStore;
use tempfile::TempDir;

use crate::support::{Shelf, commit, in_time, outbox_writes, put, recorded, shelf, wait_until};

type Outcome = Result<(), StoreFault>;

/// Relay, health and lookups continue beside as many verifications and lists as clients may start.
#[tokio::test]
async fn relay_health_and_lookups_do_not_wait_for_verification() -> Outcome {
    let gate = Gate::of("audits");
    let (_folder, store) = filled("audits", 3).await?;
    let shut = gate.shut();
    let audits: Vec<_> = (0..9).map(|_| spawned(&store)).collect();
    wait_until("an audit is under way", async || gate.entered() > 0).await;

    let pending = in_time("the relay's look", store.pending_entries(9)).await?;
    assert_eq!(pending.len(), 1);
    assert_eq!(in_time("health", store.stats()).await?.outbox_pending, 1);
    assert!(in_time("a row", store.row(shelf("shelf-1"))).await?.is_some());
    assert_eq!(in_time("its history", store.events(shelf("shelf-1"), 0, 9)).await?.len(), 1);
    let found = in_time("a list", store.find(Shelf::KIND, Query { limit: 9, ..Query::default() })).await?;
    assert_eq!(found.len(), 3);
    assert_eq!(gate.entered(), 1, "one audit at a time");

    drop(shut);
    for audit in audits {
        assert_eq!(in_time("the audit", audit).await.expect("no panic")?.rows, 3);
    }
    Ok(())
}

/// An abandoned verification ends, whether it runs or waits for its turn.
#[tokio::test]
async fn abandoned_verification_is_interrupted() -> Outcome {
    let gate = Gate::of("nobody");
    let (_folder, store) = filled("nobody", 1_000).await?;
    let shut = gate.shut();
    let audits: Vec<_> = (0..9).map(|_| spawned(&store)).collect();
    wait_until("an audit is under way", async || gate.entered() > 0).await;
    for audit in audits {
        audit.abort();
        let aborted = in_time("its end", audit).await.err();
        assert!(aborted.is_some_and(|error| error.is_cancelled()));
    }
    drop(shut);
    assert_eq!(in_time("the next audit", store.verify()).await?.rows, 1_000);
    let in_vain = gate.entered() - 1_000;
    assert!(in_vain < 500, "{in_vain} of 1000 rows were folded for nobody");
    Ok(())
}

fn spawned(
    store: &Arc<SqliteStore>,
) -> tokio::task::JoinHandle<Result<saga_engine::store::VerificationReport, StoreFault>> {
    let store = store.clone();
    tokio::spawn(async move { store.verify().await })
}

/// Database of so many shelves, whose folds wait at the gate of this name.
async fn filled(gate: &'static str, shelves: u32) -> Result<(TempDir, Arc<SqliteStore>), StoreFault> {
    let folder = tempfile::tempdir().expect("a folder");
    let begin: fn(Option<&str>) -> serde_json::Result<Box<dyn Folding>> = match gate {
        "audits" => |snapshot| gated("audits", snapshot),
        _ => |snapshot| gated("nobody", snapshot),
    };
    let kind = RowKind { begin, ..RowKind::of::<Shelf>() };
    let store = SqliteStore::open(&folder.path().join("depot.db"), vec![kind])?;
    commit(&store, outbox_writes([1])).await?;
    for number in 1..=shelves {
        commit(&store, recorded(&format!("shelf-{number}"), &[], &[put(1)])).await?;
    }
    Ok((folder, Arc::new(store)))
}

fn gated(gate: &'static str, snapshot: Option<&str>) -> serde_json::Result<Box<dyn Folding>> {
    Gate::of(gate).pass();
    (RowKind::of::<Shelf>().begin)(snapshot)
}

/// Gate that blocks folds and counts them. A fold is a function, which finds its gate by name.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_shut: bool,
    entered: usize,
}

impl Gate {
    fn of(name: &'static str) -> Arc<Self> {
        static GATES: Mutex<BTreeMap<&str, Arc<Gate>>> = Mutex::new(BTreeMap::new());
        GATES.lock().entry(name).or_default().clone()
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        state.entered += 1;
        while state.is_shut {
            self.changed.wait(&mut state);
        }
    }

    /// Closes the gate until the guard is dropped, so that a failing test leaves no blocked folds.
    fn shut(self: &Arc<Self>) -> Shut {
        *self.state.lock() = State { is_shut: true, ..State::default() };
        Shut(self.clone())
    }

    fn entered(&self) -> usize {
        self.state.lock().entered
    }
}

struct Shut(Arc<Gate>);

impl Drop for Shut {
    fn drop(&mut self) {
        self.0.state.lock().is_shut = false;
        self.0.changed.notify_all();
    }
}
