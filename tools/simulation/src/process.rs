//! Shell: a process of one service: it may die at any moment, and may stand still while its leases lapse.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::sim::Sim;

/// A process. Clones are the same one, through all its lives.
#[derive(Clone)]
pub struct Process(Arc<Inner>);

struct Inner {
    sim: Sim,
    name: String,
    is_alive: AtomicBool,
    dies: Notify,
    is_paused: AtomicBool,
    goes_on: Notify,
}

impl Process {
    /// A process of this name, among its replicas.
    #[must_use]
    pub fn new(sim: Sim, name: String) -> Self {
        Self(Arc::new(Inner {
            sim,
            name,
            is_alive: AtomicBool::new(false),
            dies: Notify::new(),
            is_paused: AtomicBool::new(false),
            goes_on: Notify::new(),
        }))
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What it shares with everybody.
    #[must_use]
    pub fn sim(&self) -> &Sim {
        &self.0.sim
    }

    /// A moment at which it touches the outside: it goes on unless it stands still, or dies here.
    pub async fn moment(&self, what: &str) {
        while self.0.is_paused.load(Ordering::Acquire) {
            self.0.goes_on.notified().await;
        }
        if self.0.sim.chance_of(self.0.sim.weather().dies) {
            self.0.sim.note(|| format!("{} dies {what}", self.0.name));
            self.kill();
            std::future::pending::<()>().await;
        }
    }

    /// A life of it begins.
    pub fn begin(&self) {
        self.resume();
        self.0.is_alive.store(true, Ordering::Release);
    }

    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.0.is_alive.load(Ordering::Acquire)
    }

    /// Kills it, if it lives.
    pub fn kill(&self) {
        if self.0.is_alive.swap(false, Ordering::AcqRel) {
            self.0.dies.notify_one();
        }
    }

    /// Resolves when it is killed.
    pub async fn killed(&self) {
        self.0.dies.notified().await;
    }

    /// It stands still, as a stopped process does.
    pub fn pause(&self) {
        self.0.is_paused.store(true, Ordering::Release);
    }

    /// It goes on where it stood.
    pub fn resume(&self) {
        self.0.is_paused.store(false, Ordering::Release);
        self.0.goes_on.notify_waiters();
    }
}
