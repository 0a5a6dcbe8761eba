//! Shell: checks of settings across their sections.

use std::time::Duration;

use super::{BadSettings, Settings};
use crate::nats::pack::MAX_FACTS;

/// Minimum of `bus.retention`. A service that is down for longer misses messages.
const SHORTEST_RETENTION: Duration = Duration::from_secs(1);

/// Callers give up on a service that answers later.
const MAX_BATCH_DELAY: Duration = Duration::from_secs(1);

impl<X> Settings<X> {
    pub(super) fn check(&self) -> Result<(), BadSettings> {
        self.http.check().map_err(|why| BadSettings(format!("http.{why}")))?;
        self.trace.check().map_err(BadSettings)?;
        let rules = [
            (self.engine.max_batch >= 1, "engine.max_batch must be at least 1"),
            (self.engine.queue >= 1, "engine.queue must be at least 1"),
            (self.engine.max_batch_delay <= MAX_BATCH_DELAY, "engine.max_batch_delay must be at most 1s"),
            (!self.instance.is_empty(), "instance must not be empty"),
            (!self.engine.timer_poll.is_zero(), "engine.timer_poll must be longer than 0s"),
            (!self.relay.poll.is_zero(), "relay.poll must be longer than 0s"),
            (self.relay.max_batch >= 1, "relay.max_batch must be at least 1"),
            (!self.clock.every.is_zero(), "clock.every must be longer than 0s"),
            // One listens, one is for short work, one for long.
            (self.store.max_connections >= 3, "store.max_connections must be at least 3"),
            (self.retry.max_attempts >= 1, "retry.max_attempts must be at least 1"),
            (self.task.retry.max_attempts >= 1, "task.retry.max_attempts must be at least 1"),
            (self.task.concurrency >= 1, "task.concurrency must be at least 1"),
            (self.task.backlog >= 1, "task.backlog must be at least 1"),
            (self.bus.retention >= SHORTEST_RETENTION, "bus.retention must be at least 1s"),
            (self.bus.pull_batch >= 1, "bus.pull_batch must be at least 1"),
            (self.bus.max_ack_pending >= 1, "bus.max_ack_pending must be at least 1"),
            ((1..=MAX_FACTS).contains(&self.bus.max_pack), "bus.max_pack must be from 1 to 1000"),
            (self.bus.max_deliveries >= 2, "bus.max_deliveries must be at least 2"),
            (!self.bus.publish_timeout.is_zero(), "bus.publish_timeout must be longer than 0s"),
            (!self.bus.ack_wait.is_zero(), "bus.ack_wait must be longer than 0s"),
            (self.bus.replicas >= 1, "bus.replicas must be at least 1"),
            (!self.task.timeout.is_zero(), "task.timeout must be longer than 0s"),
            (self.relay.lease >= Duration::from_secs(1), "relay.lease must be at least 1s"),
            (self.log.max_bytes >= 4096, "log.max_bytes must be at least 4096"),
            (self.task.lease > self.task.timeout, "task.lease must be longer than task.timeout"),
        ];
        self.retention.check(self.bus.retention).map_err(|why| BadSettings(format!("retention.{why}")))?;
        if let Some(problem) = self.bus.tls.problem() {
            return Err(BadSettings(problem.to_owned()));
        }
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, sentence)) => Err(BadSettings((*sentence).to_owned())),
            None => Ok(()),
        }
    }

    /// Rejects impossible overrides, and overrides of unknown names. `steps` have a breaker and retries, `dependency`
    /// has all overrides.
    ///
    /// # Errors
    /// When an override is unknown or impossible; the message names the key.
    pub fn check_resilience(&self, steps: &[&str], dependency: &str) -> Result<(), BadSettings> {
        self.breaker.check().map_err(|why| BadSettings(format!("breaker.{why}")))?;
        for (name, own) in &self.resilience {
            let is_step = steps.contains(&name.as_str());
            if !is_step && name != dependency {
                let names = steps.iter().copied().chain([dependency]).collect::<Vec<_>>().join(", ");
                return Err(BadSettings(format!("resilience.{name} is of nothing here; there are {names}")));
            }
            own.check(is_step, &self.breaker, self.task.lease)
                .map_err(|why| BadSettings(format!("resilience.{name}{why}")))?;
        }
        Ok(())
    }
}
