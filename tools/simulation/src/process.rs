//! Shell: a process of one service, which may crash at any point, be paused until its leases expire, or lose the broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use jiff::SignedDuration;
use tokio::sync::Notify;

use crate::sim::Sim;

/// A process. Clones are the same one, across restarts.
#[derive(Clone)]
pub struct Process(Arc<Inner>);

struct Inner {
    sim: Sim,
    name: String,
    is_alive: AtomicBool,
    killed: Notify,
    is_paused: AtomicBool,
    resumed: Notify,
    is_cut_off: AtomicBool,
    /// Seconds by which the machine's clock is ahead.
    clock_offset: AtomicI64,
    /// Seconds by which it has jumped. A process restarts on a machine that has not.
    clock_jump: AtomicI64,
    /// True once this life knows the broker's time.
    has_time: AtomicBool,
}

impl Process {
    pub fn new(sim: Sim, name: String) -> Self {
        Self(Arc::new(Inner {
            sim,
            name,
            is_alive: AtomicBool::new(false),
            killed: Notify::new(),
            is_paused: AtomicBool::new(false),
            resumed: Notify::new(),
            is_cut_off: AtomicBool::new(false),
            clock_offset: AtomicI64::new(0),
            clock_jump: AtomicI64::new(0),
            has_time: AtomicBool::new(false),
        }))
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub fn sim(&self) -> &Sim {
        &self.0.sim
    }

    /// A point at which the process touches the outside. It waits here while paused, and may crash here.
    pub async fn crash_point(&self, what: &str) {
        while self.0.is_paused.load(Ordering::Acquire) {
            self.0.resumed.notified().await;
        }
        if self.0.sim.chance_of(self.0.sim.profile().dies) {
            self.0.sim.note(|| format!("{} crashes {what}", self.0.name));
            self.kill();
            std::future::pending::<()>().await;
        }
    }

    /// Marks the process as started.
    pub fn begin(&self) {
        self.resume();
        self.set_clock_jump(SignedDuration::ZERO);
        self.0.has_time.store(false, Ordering::Release);
        self.0.is_alive.store(true, Ordering::Release);
    }

    pub fn is_alive(&self) -> bool {
        self.0.is_alive.load(Ordering::Acquire)
    }

    /// Kills the process if it is running.
    pub fn kill(&self) {
        if self.0.is_alive.swap(false, Ordering::AcqRel) {
            self.0.killed.notify_one();
        }
    }

    /// Waits until the process is killed.
    pub async fn killed(&self) {
        self.0.killed.notified().await;
    }

    /// True while the process does not reach the broker, which others may reach.
    pub fn is_cut_off(&self) -> bool {
        self.0.is_cut_off.load(Ordering::Acquire)
    }

    /// Cuts the process off from the broker, or connects it again. [`crate::bus::SharedBroker::wake_all`] must follow.
    pub fn set_cut_off(&self, is_cut_off: bool) {
        self.0.is_cut_off.store(is_cut_off, Ordering::Release);
    }

    /// Offset by which the machine's clock is ahead.
    pub fn clock_offset(&self) -> SignedDuration {
        let (offset, jump) = (&self.0.clock_offset, &self.0.clock_jump);
        SignedDuration::from_secs(offset.load(Ordering::Acquire) + jump.load(Ordering::Acquire))
    }

    /// Sets the machine's clock, across restarts.
    pub fn set_clock_offset(&self, offset: SignedDuration) {
        self.0.clock_offset.store(offset.as_secs(), Ordering::Release);
    }

    /// Records that this life knows the broker's time.
    pub fn received_time(&self) {
        self.0.has_time.store(true, Ordering::Release);
    }

    /// Lets the machine's clock jump until the next restart. A process that has no time yet could not notice.
    pub fn jump_clock(&self, jump: SignedDuration) {
        if self.0.has_time.load(Ordering::Acquire) {
            self.set_clock_jump(jump);
        }
    }

    /// Sets the machine's clock until the next restart.
    pub fn set_clock_jump(&self, jump: SignedDuration) {
        self.0.clock_jump.store(jump.as_secs(), Ordering::Release);
    }

    /// Pauses the process, like SIGSTOP.
    pub fn pause(&self) {
        self.0.is_paused.store(true, Ordering::Release);
    }

    pub fn resume(&self) {
        self.0.is_paused.store(false, Ordering::Release);
        self.0.resumed.notify_waiters();
    }
}
