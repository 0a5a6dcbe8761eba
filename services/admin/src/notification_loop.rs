//! Shell: the loop that checks for findings and notifies people. Its state is in a row that all instances of admin share; a
//! notification is a task in the same commit.

use admin_api::notifications::NotificationKind;
use contract::metrics as names;
use saga_core::retry::error_chain;
use saga_engine::runtime::clock::Clock as _;
use tokio::time::sleep;
use tracing::{error, info, warn};

use crate::app::{AdminApp, execute_as_system};
use crate::commands::{CommandKind, Reply};
use crate::notifications::content::Notification;
use crate::notifications::state::{NOTIFICATION_STATE, NotificationCommand, NotificationState, Observation};
use crate::notifications::storeless::Storeless;
use crate::notifications::webhook;
use crate::overview::metrics::OverviewMetrics;
use crate::overview::notifiable::{notifiable, unknown_keys};
use crate::overview::snapshot::{self, Limits};
use crate::rows;
use crate::service_client::ServiceClient;

/// At most so many groups of dead letters are reported one by one.
const LIMITS: Limits = Limits { groups: 200, cancelled: 0, sagas: 0 };

/// Checks until the service stops.
pub(crate) async fn run(app: AdminApp) {
    let services = ServiceClient::of(&app.settings.service, app.http_client.clone());
    let mut problem = String::new();
    let mut metrics = OverviewMetrics::new(&app.metrics);
    let links = &app.settings.service.links;
    app.metrics.set(&names::LINKS, &[&links.admin, &links.runbooks], 1.0);
    let handler = webhook::handler(&app.settings.service.notifications, &app.settings.http);
    let mut storeless = handler.map(Storeless::new).ok();
    loop {
        // Sleeps first: right after a start the other services may be starting too.
        sleep(app.settings.service.notifications.check_every).await;
        match check(&app, &services, &mut metrics, storeless.as_mut()).await {
            Ok(sent) => {
                problem.clear();
                sent.iter().for_each(log);
            }
            // Logs each cause once.
            Err(why) if why != problem => {
                error!("findings cannot be checked, nobody is notified: {why}");
                problem = why;
            }
            Err(_) => {}
        }
    }
}

/// Checks once, and returns the notification that follows.
async fn check(
    app: &AdminApp,
    services: &ServiceClient,
    metrics: &mut OverviewMetrics,
    storeless: Option<&mut Storeless>,
) -> Result<Option<Notification>, String> {
    let settings = &app.settings.service.notifications;
    let (overview, open) = tokio::join!(snapshot::read(app, services, LIMITS), snapshot::open_sagas(app));
    metrics.export(&overview, open.as_ref(), &app.metrics);
    let (findings, unknown) = (notifiable(&overview), unknown_keys(&overview));
    let seen = Observation {
        findings,
        unknown,
        receiver: settings.webhook.digest(),
        system: settings.system.clone(),
    };
    let stored = match app.store.write_problem() {
        Some(problem) => Err(problem),
        None => observe(app, seen.clone()).await,
    };
    match (stored, storeless) {
        (Ok((state, sent)), storeless) => {
            // Only now: what was reported without the database is not reported again while writes fail.
            if let Some(storeless) = storeless {
                storeless.follow(state);
            }
            Ok(sent)
        }
        (Err(_), Some(storeless)) => Ok(storeless.observe(seen, settings.intervals(), app.clock.now()).await),
        (Err(problem), None) => Err(problem),
    }
}

/// Stores what changed, with the notification that follows. Returns the state from before, too.
async fn observe(
    app: &AdminApp,
    seen: Observation,
) -> Result<(NotificationState, Option<Notification>), String> {
    let intervals = app.settings.service.notifications.intervals();
    let state = rows::row::<NotificationState>(app.store.as_ref(), NOTIFICATION_STATE).await;
    let state = state.map_err(|fault| error_chain(&fault))?.unwrap_or_default();
    let is_changed = state.is_changed_by(&seen, &intervals, app.clock.now());
    if !is_changed {
        return Ok((state, None));
    }
    let command = CommandKind::Notify(NotificationCommand::Observe(seen, intervals));
    match execute_as_system(app, command).await? {
        Reply::Notification(sent) => Ok((state, sent.map(|sent| *sent))),
        Reply::Changed(_) | Reply::Done | Reply::Many(_) => {
            Err("the command had an unexpected reply".to_owned())
        }
    }
}

/// Logs a notification, whoever else receives it.
fn log(sent: &Notification) {
    let (notification_id, text) = (sent.id, sent.text());
    match sent.kind {
        NotificationKind::NeedsHuman | NotificationKind::Reminder => warn!(%notification_id, "{text}"),
        NotificationKind::Recovered | NotificationKind::Test => info!(%notification_id, "{text}"),
    }
}
