//! Scripted supplier, the dependency of the depot.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use saga_core::waiting::Task;
use saga_engine::runtime::task_runner::{CallFailed, TaskHandler};
use serde_json::Value;
use tokio::sync::Notify;
use uuid::Uuid;

use super::depot::SUPPLIER;

/// Behaviour at one call.
pub enum Deed {
    Answer(u64),
    Fail,
    /// Fails, and asks for no call in this time.
    AskForPause(Duration),
    /// Fails finally.
    Refuse,
    Hang,
    Panic,
}

/// Follows its script, then returns one piece at each call.
#[derive(Default)]
pub struct Supplier {
    script: Mutex<VecDeque<Deed>>,
    called: Mutex<Vec<Uuid>>,
    released: Notify,
    is_closed: AtomicBool,
    never_has: Option<&'static str>,
    in_flight: Mutex<BTreeSet<Uuid>>,
    /// Calls made while another with the same key was in flight.
    overlaps: AtomicUsize,
}

impl Supplier {
    pub fn will(deeds: impl IntoIterator<Item = Deed>) -> Arc<Self> {
        Arc::new(Self { script: Mutex::new(deeds.into_iter().collect()), ..Self::default() })
    }

    /// Supplier that answers nothing until it opens.
    pub fn closed() -> Arc<Self> {
        let supplier = Self::default();
        supplier.is_closed.store(true, Ordering::Release);
        Arc::new(supplier)
    }

    /// Supplier that fails every call for this label.
    pub fn without(label: &'static str) -> Arc<Self> {
        Arc::new(Self { never_has: Some(label), ..Self::default() })
    }

    pub fn opens(&self) {
        self.is_closed.store(false, Ordering::Release);
    }

    pub fn overlaps(&self) -> usize {
        self.overlaps.load(Ordering::Acquire)
    }

    /// Ids of the called tasks in order.
    pub fn called(&self) -> Vec<Uuid> {
        self.called.lock().clone()
    }

    /// Ends hanging calls with a failure.
    pub fn release(&self) {
        self.released.notify_waiters();
    }
}

/// Call in flight.
struct InFlightCall<'a> {
    supplier: &'a Supplier,
    id: Uuid,
}

impl<'a> InFlightCall<'a> {
    fn of(supplier: &'a Supplier, id: Uuid) -> Self {
        if !supplier.in_flight.lock().insert(id) {
            supplier.overlaps.fetch_add(1, Ordering::AcqRel);
        }
        Self { supplier, id }
    }
}

impl Drop for InFlightCall<'_> {
    fn drop(&mut self) {
        self.supplier.in_flight.lock().remove(&self.id);
    }
}

impl TaskHandler for Supplier {
    fn dependency(&self) -> &'static str {
        SUPPLIER
    }

    fn call<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<Value, CallFailed>> {
        self.called.lock().push(task.id);
        let deed = self.script.lock().pop_front();
        let fails = self.is_closed.load(Ordering::Acquire)
            || self.never_has.is_some_and(|label| task.payload.contains(label));
        let deed = deed.unwrap_or(if fails { Deed::Fail } else { Deed::Answer(1) });
        let call = InFlightCall::of(self, task.id);
        let failed = |is_final, retry_after| {
            let context = if is_final { "the supplier says no" } else { "the supplier is closed" };
            Err(CallFailed { context: context.to_owned(), is_final, retry_after, source: None })
        };
        Box::pin(async move {
            let _call = call;
            match deed {
                Deed::Answer(pieces) => Ok(Value::from(pieces)),
                Deed::Fail => failed(false, None),
                Deed::Refuse => failed(true, None),
                Deed::AskForPause(time) => failed(false, Some(time)),
                Deed::Hang => {
                    self.released.notified().await;
                    failed(false, None)
                }
                Deed::Panic => panic!("the supplier's client has a bug"),
            }
        })
    }
}
