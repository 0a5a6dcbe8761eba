//! Shell: the loop that looks whether somebody must be told something. It keeps nothing that matters: what has been
//! told is in its row, which all instances of admin share, and a notice is a task in the same commit.

use saga_core::retry::error_chain;
use saga_engine::runtime::clock::Clock as _;
use tokio::time::sleep;
use tracing::{error, info, warn};

use crate::AdminApp;
use crate::by_itself;
use crate::commands::{CommandKind, Reply};
use crate::gauges::Gauges;
use crate::look;
use crate::other_services::OtherServices;
use crate::push::alerts::Look;
use crate::push::notice::{Notice, NoticeKind};
use crate::push::told::{THE_TOLD, Told, ToldCommand};
use crate::rows;

/// Groups of dead letters that are told apart: what belongs to none of them is told as one.
const MOST_GROUPS: usize = 200;

/// Looks until the service stops.
pub(crate) async fn run(app: AdminApp) {
    let services = OtherServices::of(&app.settings.service, app.http_client.clone());
    let mut problem = String::new();
    let mut gauges = Gauges::new(&app.metrics);
    loop {
        // First: right after a start nobody is there yet.
        sleep(app.settings.service.push.every).await;
        match look(&app, &services, &mut gauges).await {
            Ok(told) => {
                problem.clear();
                told.iter().for_each(say);
            }
            // Once for each cause, and not every few seconds.
            Err(why) if why != problem => {
                error!("nobody can be told anything: {why}");
                problem = why;
            }
            Err(_) => {}
        }
    }
}

/// One look. Answers the notice that follows from it.
///
/// # Errors
/// Why nobody can be told.
async fn look(
    app: &AdminApp,
    services: &OtherServices,
    gauges: &mut Gauges,
) -> Result<Option<Notice>, String> {
    let settings = &app.settings.service.push;
    let everything = look::at_everything(app, services, MOST_GROUPS);
    let (overview, open_amounts) = tokio::join!(everything, look::at_open_amounts(app));
    gauges.take(&overview, open_amounts.as_ref(), &app.metrics);
    let look = Look { to: settings.webhook.digest(), ..Look::of(&overview, settings.threshold) };
    let pace = settings.pace();
    let told = rows::row::<Told>(app.store.as_ref(), THE_TOLD).await.map_err(|fault| error_chain(&fault))?;
    if !told.unwrap_or_default().is_changed_by(&look, &pace, app.clock.now()) {
        return Ok(None);
    }
    match by_itself::ask(app, CommandKind::Push(ToldCommand::Look(look, pace))).await? {
        Reply::Notice(notice) => Ok(notice.map(|notice| *notice)),
        Reply::Changed(_) | Reply::Done | Reply::Many(_) => {
            Err("it is answered as something else".to_owned())
        }
    }
}

/// In the log it stands in any case, whoever else is told.
fn say(notice: &Notice) {
    let (notice_id, words) = (notice.id, notice.in_words());
    match notice.kind {
        NoticeKind::NeedsHuman | NoticeKind::Reminder => warn!(%notice_id, "{words}"),
        NoticeKind::OverByNow | NoticeKind::WellAgain | NoticeKind::Test => info!(%notice_id, "{words}"),
    }
}
