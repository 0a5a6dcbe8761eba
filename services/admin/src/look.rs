//! Shell: how everything is, in one look. It is taken soon, whatever is down: what cannot be asked in time is named.

use std::time::Duration;

use contract::overview::{
    BreakerLook, CallsLook, CheckLook, Complaint, FaultLook, NotAsked, OutboxLook, Overview, ServiceLook,
    StepLook,
};
use jiff::Timestamp;
use saga_core::breaker;
use saga_engine::host::health_report::HealthReport;
use saga_engine::host::http::{Check, CheckState, Problem};
use saga_engine::runtime::admission::BreakerView;
use saga_engine::runtime::clock::Clock as _;
use saga_engine::store::StoreFault;
use tokio::time::timeout;

use crate::AdminApp;
use crate::books::{Books, THE_BOOKS};
use crate::glance::{self, OpenAmounts};
use crate::other_services::{OtherServices, all, each};
use crate::rows;

/// Everything is asked at once, and for no longer than this: `sagactl status` answers within two seconds.
const WITHIN: Duration = Duration::from_millis(1_500);

/// Groups of dead letters that people are shown, the largest.
pub(crate) const MOST_GROUPS_SHOWN: usize = 20;

/// How everything is, with so many groups of dead letters.
pub(crate) async fn at_everything(app: &AdminApp, services: &OtherServices, groups: usize) -> Overview {
    let (store, now) = (app.store.as_ref(), app.clock.now());
    let own = timeout(WITHIN, HealthReport::of(app));
    let others = each(all(), |service| timeout(WITHIN, services.health_report(service)));
    let sagas = timeout(WITHIN, glance::sagas(store, now));
    let dead_letters = timeout(WITHIN, glance::dead_letters(store, groups, now));
    let books = timeout(WITHIN, rows::row::<Books>(store, THE_BOOKS));
    let (own, others, sagas, dead_letters, books) = tokio::join!(own, others, sagas, dead_letters, books);
    let own = own.map_err(|_| too_long(crate::NAME));
    let behind = own.as_ref().ok().and_then(|own| own.steps.iter().map(|step| step.waiting).sum());
    let mut services = vec![service_look(crate::NAME, own)];
    services.extend(others.into_iter().map(|(service, answer)| {
        let answer = answer.unwrap_or_else(|_| Err(Problem::unavailable(too_long(service), 1)));
        service_look(service, answer.map_err(|problem| problem.detail))
    }));
    let mut not_asked = Vec::new();
    let sagas = known("sagas", sagas, &mut not_asked);
    let dead_letters = known("dead letters", dead_letters, &mut not_asked);
    let books = known("books", books, &mut not_asked).flatten().and_then(|books| books.look);
    let (needs_human, reasons) = (false, Vec::new());
    let seen =
        Overview { at: now, needs_human, reasons, services, sagas, dead_letters, books, behind, not_asked };
    seen.judged()
}

/// What the sagas that have not ended are worth; `None` when that cannot be told soon. It reads many rows: only for
/// callers that can wait.
pub(crate) async fn at_open_amounts(app: &AdminApp) -> Option<OpenAmounts> {
    timeout(WITHIN, glance::open_amounts(app.store.as_ref())).await.ok()?.ok()
}

fn too_long(who: &str) -> String {
    format!("{who} does not answer within {} s", WITHIN.as_secs_f64())
}

/// What was asked of admin's own database, or else a note of what could not be.
fn known<T, Elapsed>(
    what: &str,
    asked: Result<Result<T, StoreFault>, Elapsed>,
    not_asked: &mut Vec<NotAsked>,
) -> Option<T> {
    let problem = match asked {
        Ok(Ok(known)) => return Some(known),
        Ok(Err(fault)) => saga_core::retry::error_chain(&fault),
        Err(_) => too_long("admin's database"),
    };
    not_asked.push(NotAsked { what: what.to_owned(), problem });
    None
}

fn service_look(service: &str, answer: Result<HealthReport, String>) -> ServiceLook {
    let service = service.to_owned();
    let health_report = match answer {
        Ok(health_report) => health_report,
        Err(problem) => return ServiceLook { service, problem: Some(problem), ..ServiceLook::default() },
    };
    let HealthReport { version, readiness, stats, breakers, steps, faults } = health_report;
    let checks = readiness.checks.iter().map(|(name, found)| (name.clone(), check_look(found))).collect();
    let complaint = |(check, found): (String, Check)| {
        let failed = match found.state {
            CheckState::Ok => return None,
            CheckState::Degraded => false,
            CheckState::Failed => true,
        };
        Some(Complaint { check, failed, text: found.text, since: found.since })
    };
    ServiceLook {
        service,
        ready: readiness.ready,
        degraded: readiness.degraded,
        problem: None,
        version,
        checks,
        complaints: readiness.checks.into_iter().filter_map(complaint).collect(),
        remarks: readiness.remarks,
        outbox: stats.as_ref().map(|stats| OutboxLook {
            pending: stats.outbox_pending,
            oldest: stats.outbox_oldest,
            failed: stats.outbox_failed,
        }),
        calls: stats.as_ref().map(|stats| CallsLook { open: stats.tasks, oldest: stats.task_oldest }),
        retries: stats.as_ref().map(|stats| stats.retries),
        steps: steps
            .into_iter()
            .map(|step| StepLook {
                step: step.step,
                waiting: step.waiting,
                stalled_since: step.stalled_since,
                paused: step.paused,
            })
            .collect(),
        breakers: breakers.iter().filter_map(breaker_look).collect(),
        faults: faults.into_iter().map(|fault| FaultLook { kind: fault.kind, step: fault.step }).collect(),
    }
}

fn check_look(found: &Check) -> CheckLook {
    let state = match found.state {
        CheckState::Ok => "ok",
        CheckState::Degraded => "degraded",
        CheckState::Failed => "failed",
    };
    CheckLook { state: state.to_owned(), text: found.text.clone(), since: found.since }
}

/// A breaker that is not closed by itself.
fn breaker_look(view: &BreakerView) -> Option<BreakerLook> {
    let (state, forced) = match view.state {
        breaker::State::Closed => return None,
        breaker::State::Open => ("OPEN", false),
        breaker::State::HalfOpen => ("HALF_OPEN", false),
        breaker::State::ForcedOpen => ("FORCED_OPEN", true),
        breaker::State::ForcedClosed => ("FORCED_CLOSED", true),
    };
    let why = view.transitions.last().map(|last| last.why.clone());
    let since = if forced { view.transitions.last().map(|last| last.at) } else { not_closed_since(view) };
    Some(BreakerLook { name: view.name.clone(), state: state.to_owned(), forced, since, why })
}

/// When it was closed last: it may have opened again and again since, as probes failed. Earlier builds tell no more than
/// the changes that they remember.
fn not_closed_since(view: &BreakerView) -> Option<Timestamp> {
    view.not_closed_since.or_else(|| remembered_since(view))
}

fn remembered_since(view: &BreakerView) -> Option<Timestamp> {
    let lately = view.transitions.iter().rev();
    let since_closed = lately.take_while(|transition| match transition.to {
        breaker::State::Open | breaker::State::HalfOpen => true,
        breaker::State::Closed | breaker::State::ForcedOpen | breaker::State::ForcedClosed => false,
    });
    since_closed.last().map(|transition| transition.at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(not_closed_since: Option<&str>) -> Option<Timestamp> {
        let probe = |from: &str, to: &str, second: u32| serde_json::json!({ "at": format!("2027-01-15T08:00:{second:02}Z"), "from": from, "to": to, "why": "" });
        let transitions = (0..10)
            .flat_map(|probes| [probe("OPEN", "HALF_OPEN", probes), probe("HALF_OPEN", "OPEN", probes)]);
        let view = serde_json::json!({
            "name": "bank", "state": "OPEN", "calls": 0, "failures": 0, "slow": 0, "failure_rate": null,
            "slow_rate": null, "refused": 0, "policy": saga_core::breaker::BreakerPolicy::default(),
            "open_until": null, "not_closed_since": not_closed_since,
            "transitions": transitions.collect::<Vec<_>>(),
        });
        breaker_look(&serde_json::from_value(view).expect("a breaker")).expect("it is open").since
    }

    #[test]
    fn a_breaker_is_open_for_as_long_as_it_says_whatever_it_remembers_of_that() {
        let time = |text: &str| Some(text.parse::<Timestamp>().expect("a time"));
        assert_eq!(since(Some("2027-01-15T07:00:00Z")), time("2027-01-15T07:00:00Z"));
        assert_eq!(since(None), time("2027-01-15T08:00:00Z"), "an earlier build does not say");
    }
}
