//! Shell: whether a service can do what it promises: what is checked, what each check decides, and since when it stands
//! as it does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use saga_core::breaker::State;
use saga_core::machinery::Stats;
use saga_core::retry::error_chain;
use saga_core::service::Service;
use tracing::{error, info, warn};

use super::app::App;
use super::http::{Check, CheckState, Health, Readiness};
use super::timekeeping::complaint;
use crate::runtime::admission::BreakerView;
use crate::runtime::clock::Clock as _;
use crate::runtime::signed;
use crate::store::StoreFault;

/// How often a service looks at itself, asked or not: that often metrics are new, and so exact is *since when*.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Every check, and what it means when it finds something wrong. A service is not ready when it does not take what it
/// promises to take, be it requests or messages. Whatever else is wrong makes it degraded: what it takes is stored, and
/// what comes of it is late.
const CHECKS: [(&str, CheckState); 9] = [
    // Nothing can be answered.
    ("store", CheckState::Failed),
    // Nothing may be begun.
    ("database", CheckState::Failed),
    // The service itself says that it refuses what it is there for.
    ("requests", CheckState::Failed),
    // What was told to it lies there, whoever tells it.
    ("steps", CheckState::Failed),
    // What is promised waits in the outbox, as it should when the broker is away or has no room.
    ("broker", CheckState::Degraded),
    ("publishing", CheckState::Degraded),
    ("outbox", CheckState::Degraded),
    // What needs what is behind an open one waits for it, and nothing else does.
    ("breakers", CheckState::Degraded),
    // Deadlines go by the broker's; but somebody should put it right.
    ("clock", CheckState::Degraded),
];

/// How each check of this process stands, and since when. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Standing(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    checks: BTreeMap<String, Check>,
    was_ready: bool,
}

impl Standing {
    /// Takes over what was found wrong, by the names of checks, of those that were made.
    fn take(&self, found: &[(&str, Option<String>)], now: Timestamp) -> Readiness {
        let mut known = self.0.lock();
        let made = found.iter().filter_map(|(name, wrong)| {
            let (name, means) = CHECKS.iter().find(|(check, _)| check == name)?;
            let state = if wrong.is_some() { *means } else { CheckState::Ok };
            let before = known.checks.get(*name).filter(|before| before.state == state);
            let since = before.map_or(now, |before| before.since);
            let text = wrong.clone().unwrap_or_else(|| "ok".to_owned());
            Some(((*name).to_owned(), Check { state, text, since }))
        });
        let readiness = Readiness::of(made.collect());
        match (known.was_ready, readiness.ready) {
            (false, true) => info!("ready"),
            (true, false) => warn!("not ready any more: {}", readiness.complaints()),
            (false, false) | (true, true) => {}
        }
        *known = Known { checks: readiness.checks.clone(), was_ready: readiness.ready };
        readiness
    }
}

/// Looks until dropped, for the metrics and for who asks later since when.
pub(super) async fn watch<S: Service, X: Send + Sync + 'static>(app: App<S, X>, standing: Standing) {
    loop {
        let stats = app.store.stats().await;
        standing.take(&look(&app, &stats), app.clock.now());
        match stats {
            Ok(stats) => app.metrics.take_stats(stats, app.clock.now()),
            Err(fault) => error!("the store cannot be asked: {}", error_chain(&fault)),
        }
        app.admission.breakers().iter().for_each(|view| app.metrics.take_breaker(view));
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Answers whoever asks, with what is so now.
pub(super) fn health<S: Service, X: Send + Sync + 'static>(app: App<S, X>, standing: Standing) -> Health {
    Arc::new(move || {
        let (app, standing) = (app.clone(), standing.clone());
        Box::pin(async move {
            let stats = app.store.stats().await;
            standing.take(&look(&app, &stats), app.clock.now())
        })
    })
}

fn look<S: Service, X>(
    app: &App<S, X>,
    stats: &Result<Stats, StoreFault>,
) -> Vec<(&'static str, Option<String>)> {
    let (now, settings) = (app.clock.now(), &app.settings);
    let mut found =
        vec![("requests", (app.refuses)(app)), ("breakers", open_breakers(&app.admission.breakers()))];
    match stats {
        Ok(stats) => {
            let age = stats.outbox_oldest.map_or(SignedDuration::ZERO, |oldest| now.duration_since(oldest));
            let is_late = age > signed(settings.engine.ready_lag);
            let late = is_late.then(|| format!("oldest entry has waited {}s", age.as_secs()));
            found.extend([("store", None), ("outbox", late)]);
        }
        Err(fault) => found.push(("store", Some(error_chain(fault)))),
    }
    if let Some(bus) = &app.bus {
        let held_up = app.publishing.in_words(settings.engine.ready_held_up, Timestamp::now());
        found.extend([
            ("broker", (!bus.is_connected()).then(|| "not connected".to_owned())),
            ("publishing", held_up),
            ("steps", app.standstills.in_words(settings.engine.ready_standstill, now)),
            ("database", app.not_met().map(str::to_owned)),
            ("clock", complaint(app.clock.offset(), &settings.clock)),
        ]);
    }
    found
}

fn open_breakers(breakers: &[BreakerView]) -> Option<String> {
    let is_open = |breaker: &&BreakerView| match breaker.state {
        State::Open | State::ForcedOpen => true,
        State::HalfOpen | State::Closed | State::ForcedClosed => false,
    };
    let open: Vec<_> = breakers.iter().filter(is_open).map(|breaker| breaker.name.as_str()).collect();
    (!open.is_empty()).then(|| format!("open: {}", open.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn only_what_breaks_a_promise_ends_readiness_and_the_rest_degrades() {
        for (name, means) in CHECKS {
            let readiness = Standing::default().take(&[(name, Some("is odd".to_owned()))], after(0));
            let expected = (means != CheckState::Failed, means == CheckState::Degraded);
            assert_eq!((readiness.ready, readiness.degraded), expected, "{name}");
            assert_eq!(readiness.complaints(), format!("{name}: is odd"));
        }
    }

    #[test]
    fn a_check_stands_as_it_does_since_its_state_changed_whatever_it_says_meanwhile() {
        let standing = Standing::default();
        let looks = [
            (0, None, CheckState::Ok, 0),
            (1, None, CheckState::Ok, 0),
            (2, Some("waits 5s"), CheckState::Degraded, 2),
            (3, Some("waits 6s"), CheckState::Degraded, 2),
            (4, None, CheckState::Ok, 4),
        ];
        for (second, wrong, state, since) in looks {
            let readiness = standing.take(&[("outbox", wrong.map(str::to_owned))], after(second));
            let text = wrong.unwrap_or("ok").to_owned();
            let check = Check { state, text, since: after(since) };
            assert_eq!(readiness.checks.get("outbox"), Some(&check), "after {second} s");
        }
    }
}
