//! Shell: the log of a connection: each event once, and each reason for a failed connection once.

use std::sync::Arc;
use std::time::Instant;

use async_nats::Event;
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::{info, warn};

use super::settings::BusSettings;

pub(super) struct ConnectionLog {
    settings: BusSettings,
    /// Last problem, until there is a connection.
    problem: Mutex<Option<Problem>>,
    /// Last error that the broker reported, such as a missing permission, which it does not answer to the request.
    reported: Mutex<Option<(Instant, String)>>,
    /// Number of connections so far.
    pub(super) connections: watch::Sender<u64>,
}

/// Reason for a failed connection.
struct Problem {
    text: String,
    /// Advice for the operator, if the cause is known.
    advice: Option<String>,
}

impl ConnectionLog {
    pub(super) fn new(settings: BusSettings) -> Arc<Self> {
        let connections = watch::Sender::new(0);
        Arc::new(Self { settings, problem: Mutex::default(), reported: Mutex::default(), connections })
    }

    pub(super) fn log(&self, event: &Event) {
        match event {
            Event::Connected => {
                *self.problem.lock() = None;
                self.connections.send_modify(|count| *count += 1);
                info!("broker connected");
            }
            Event::Disconnected => warn!("broker disconnected, reconnecting"),
            Event::ServerError(error) => {
                warn!("broker reports: {error}");
                *self.reported.lock() = Some((Instant::now(), error.to_string()));
            }
            Event::ClientError(error) => self.log_problem(error.to_string()),
            Event::LameDuckMode | Event::Draining | Event::Closed | Event::SlowConsumer(_) => {
                warn!("broker: {event}");
            }
        }
    }

    /// Logs a failed attempt, unless the one before failed for the same reason.
    fn log_problem(&self, problem: String) {
        let mut last = self.problem.lock();
        if last.as_ref().is_some_and(|last| last.text == problem) {
            return;
        }
        let advice = self.settings.advice(&problem);
        let what_to_do = advice.as_ref().map_or_else(String::new, |advice| format!(": {advice}"));
        warn!("broker connection failed: {}: {problem}{what_to_do}", self.settings.shown_url());
        *last = Some(Problem { text: problem, advice });
    }

    /// Last error that the broker reported since a time.
    pub(super) fn reported_since(&self, since: Instant) -> Option<String> {
        let reported = self.reported.lock();
        reported.as_ref().filter(|(at, _)| *at >= since).map(|(_, error)| error.clone())
    }

    /// Reason why the broker rejects this client, with advice. `None` if the broker is just down.
    pub(super) fn rejection(&self) -> Option<String> {
        let problem = self.problem.lock();
        let Problem { text, advice } = problem.as_ref()?;
        Some(format!("{text}: {}", advice.as_ref()?))
    }
}
