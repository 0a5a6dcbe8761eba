//! Shell: looks at the books: when somebody asks, and by itself, as nobody asks at three in the morning. What a look came
//! to is kept for all to see.

use std::future::pending;
use std::time::Duration;

use contract::overview::BooksLook;
use humantime_serde::re::humantime;
use jiff::Timestamp;
use saga_core::retry::error_chain;
use saga_core::row::RowKey;
use saga_engine::host::http::Problem;
use saga_engine::runtime::clock::Clock as _;
use saga_engine::store::{Lease, StoreFault};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout_at};
use tracing::warn;

use crate::AdminApp;
use crate::books::{Books, THE_BOOKS};
use crate::by_itself;
use crate::commands::CommandKind;
use crate::other_services::OtherServices;
use crate::reconciliation::closing::{Closing, THE_CLOSING};
use crate::reconciliation::report::{Looked, Report, Wanted, reconcile};
use crate::rows;

/// How often the books are looked at by themselves: a length of time, or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AuditEvery(pub Option<Duration>);

const OFF: &str = "off";

impl Default for AuditEvery {
    fn default() -> Self {
        Self(Some(Duration::from_mins(15)))
    }
}

impl TryFrom<String> for AuditEvery {
    type Error = String;

    fn try_from(given: String) -> Result<Self, String> {
        if given == OFF {
            return Ok(Self(None));
        }
        match humantime::parse_duration(&given) {
            Ok(every) if every >= SHORTEST => Ok(Self(Some(every))),
            Ok(_) => Err(format!("service.audit_every is {given:?}, and must be at least 100ms")),
            Err(_) => {
                Err(format!("service.audit_every is {given:?}, which is neither a length of time nor off"))
            }
        }
    }
}

impl From<AuditEvery> for String {
    fn from(AuditEvery(every): AuditEvery) -> Self {
        every.map_or_else(|| OFF.to_owned(), |every| humantime::format_duration(every).to_string())
    }
}

/// What was known is forgotten with each settlement, and others may still be to come: it is looked again after so long.
const SETTLED_WITHIN: Duration = Duration::from_secs(5);

/// How long a look may take for which nobody waits: millions of orders are read in minutes.
const BY_ITSELF: Duration = Duration::from_mins(30);

/// Everybody has had the time to start.
const AFTER_A_START: Duration = Duration::from_mins(1);

/// More often nothing else would be done.
const SHORTEST: Duration = Duration::from_millis(100);

/// More rarely than once a year is as good as never, and no clock goes beyond its end.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// The lease of the instance that looks by itself: whoever has it looks for all.
const LEASE: &str = "audit";

/// The lease is renewed, and asked for, so often while it lasts.
const LOOKS: u32 = 3;

/// So long nobody looks for an instance that has died while it did.
const LEASED_FOR: Duration = Duration::from_mins(1);

/// Looks until the service stops, one look after the other, each within the time of one for which nobody waits. A look
/// that somebody else took, at another instance too, is as good, and while another one looks this one waits. Once something
/// was settled nobody knows any more whether the rest adds up, and it is looked soon.
pub(crate) async fn run(app: AdminApp) {
    let AuditEvery(Some(every)) = app.settings.service.audit_every else { return pending().await };
    let every = every.min(LONGEST);
    let services = OtherServices::of(&app.settings.service, app.http_client.clone());
    let changed = || app.engine.changed(RowKey::of::<Books>(THE_BOOKS));
    // Right after a start nobody is there yet; and who is started again and again looks all the same.
    let first = rest_of(every, &app).await.unwrap_or(every.min(AFTER_A_START));
    let (mut due, mut is_changed) = (Instant::now() + first, changed());
    loop {
        let is_due = timeout_at(due, is_changed).await.is_err();
        // Armed before looking: what is settled meanwhile is not missed.
        is_changed = changed();
        due = match rest_of(every, &app).await {
            Some(rest) => Instant::now() + rest,
            // However much is settled, one thing after the other.
            None if !is_due => due.min(Instant::now() + SETTLED_WITHIN),
            None => Instant::now() + look(&app, &services, every).await,
        };
    }
}

/// Looks at the books, unless another instance does. Answers after what time the next look is due.
async fn look(app: &AdminApp, services: &OtherServices, every: Duration) -> Duration {
    let held = match lease(app, None).await {
        Ok(Some(held)) => held,
        // It keeps soon what its look comes to, or its lease lapses.
        Ok(None) => return every.min(LEASED_FOR / LOOKS),
        Err(fault) => {
            warn!("it is not known whether another instance looks at the books: {}", error_chain(&fault));
            return every.min(LEASED_FOR / LOOKS);
        }
    };
    // Another one may have looked just before.
    let rest = rest_of(every, app).await;
    if rest.is_none() {
        tokio::select! {
            () = audit_by_itself(app, services) => {}
            () = is_taken_over(app, held) => {
                warn!("another instance looks at the books: this one took too long to say that it still does");
            }
        }
    }
    if let Err(fault) = app.store.release_lease(LEASE, &app.settings.instance).await {
        warn!("the lease of the books was not given back, it lapses: {}", error_chain(&fault));
    }
    rest.unwrap_or(every)
}

async fn audit_by_itself(app: &AdminApp, services: &OtherServices) {
    let wanted = Wanted { within: Some(BY_ITSELF), whole: is_whole_due(app).await, patience: None };
    if let Err(problem) = audit(app, services, wanted).await {
        warn!("the books cannot be looked at: {}", problem.detail);
    }
}

/// Renews the lease for as long as it is this instance's.
async fn is_taken_over(app: &AdminApp, mut held: Lease) {
    loop {
        sleep(LEASED_FOR / LOOKS).await;
        match lease(app, Some(&held)).await {
            Ok(Some(renewed)) => held = renewed,
            Ok(None) => return,
            // Nobody gets it either.
            Err(_) => {}
        }
    }
}

/// Takes the lease, or renews it. `None` while another instance has it.
async fn lease(app: &AdminApp, held: Option<&Lease>) -> Result<Option<Lease>, StoreFault> {
    let now = app.clock.now();
    let until = now.saturating_add(LEASED_FOR).unwrap_or(now);
    app.store.acquire_lease(LEASE, held, &app.settings.instance, now, until).await
}

/// How long the last look is good yet; `None` when another is due.
async fn rest_of(every: Duration, app: &AdminApp) -> Option<Duration> {
    let Books { look: last, .. } = rows::row(app.store.as_ref(), THE_BOOKS).await.ok()??;
    // One from a time that has not come yet is good for nothing.
    let since = Timestamp::now().duration_since(last?.at).try_into().ok()?;
    every.checked_sub(since).filter(|rest| !rest.is_zero())
}

/// Whether everything is to be read once more: what has changed without an event is found by that alone.
async fn is_whole_due(app: &AdminApp) -> bool {
    let closing = rows::row::<Closing>(app.store.as_ref(), THE_CLOSING).await;
    let Ok(Some(Closing { whole_at, .. })) = closing else { return true };
    match Duration::try_from(Timestamp::now().duration_since(whole_at)) {
        Ok(since) => since >= app.settings.service.audit_whole_every,
        // One from a time that has not come yet is good for nothing.
        Err(_) => true,
    }
}

/// Looks at the books, and keeps what that came to.
///
/// # Errors
/// When admin's own database fails.
pub(crate) async fn audit(
    app: &AdminApp,
    services: &OtherServices,
    wanted: Wanted,
) -> Result<Report, Problem> {
    let books: Option<Books> = rows::row(app.store.as_ref(), THE_BOOKS).await?;
    let forgotten = books.unwrap_or_default().forgotten;
    let Looked { report, closing } = reconcile(app, services, wanted).await?;
    // The answer is one, whether or not it can be kept; it is not when something was forgotten since the look began.
    let closing = closing.map(Box::new);
    let audited = CommandKind::Audited { look: books_look(&report), forgotten, closing };
    if let Err(why) = by_itself::ask(app, audited).await {
        warn!("what the books came to is not kept: {why}");
    }
    Ok(report)
}

/// What is remembered of a look at the books.
fn books_look(report: &Report) -> BooksLook {
    BooksLook { verdict: report.verdict, at: report.checked_at, discrepancies: report.discrepancy_count }
}
