//! Shell: the loop that drives redrives. Its state is in the rows of redrives and dead letters, so that it continues after
//! a crash.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::try_join_all;
use futures::stream::FuturesUnordered;
use saga_core::breaker::State;
use saga_core::dead_letter::DeadLetterStatus;
use saga_core::input::{CommandOutcome, Input, Outcome};
use saga_core::retry::error_chain;
use saga_core::row::RowKey;
use saga_core::service::Service;
use saga_engine::runtime::admission::BreakerView;
use saga_engine::runtime::engine::Engine;
use saga_engine::store::StoreFault;
use saga_engine::store::roles::Queries;
use tokio::time::{Instant, sleep, timeout};
use tracing::{error, info};
use uuid::Uuid;

use admin_api::actor::Actor;
use admin_api::redrives::RedriveStatus;

use crate::app::AdminApp;
use crate::commands::{Command, CommandKind, Reply};
use crate::dead_letters::events::Tag;
use crate::dead_letters::filter::Selection;
use crate::dead_letters::{reading, replay_values};
use crate::redrive::active::{ACTIVE_REDRIVES, ActiveRedrives};
use crate::redrive::decider::{Drive, Redrive};
use crate::redrive::events::RedriveCommand;
use crate::redrive::progress;
use crate::rows;
use crate::service::AdminService;
use crate::service_client::ServiceClient;
use crate::topology::NAME;

/// Pause between two steps of a redrive that cannot replay now.
const TICK: Duration = Duration::from_millis(100);

/// Maximum time between two checks for active redrives, as another instance may start one.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// Dead letters in one command, as many as fit in one transaction.
const CHUNK: u64 = 256;

/// Minimum time between two checks of the breakers.
const BREAKER_CHECK_EVERY: Duration = Duration::from_millis(500);

/// Cause to stop when no dead letter could be a canary.
const NOBODY_WAITS: &str = "no saga waits for these dead letters any more: a replay changes nothing, and a canary proves \
    nothing. Discard them, or start a redrive with --canary 0";

/// What the driver needs from the running service.
pub trait DriverContext: Send + Sync {
    type Service: Service<Command = Command, Reply = Reply>;

    fn rows(&self) -> &dyn Queries;

    fn engine(&self) -> &Engine<Self::Service>;

    fn fresh_id(&self) -> Uuid;

    /// Reads the breakers of a service; `None` when it does not answer.
    fn breakers_of(&self, service: &str) -> impl Future<Output = Option<Vec<BreakerView>>> + Send;
}

struct RunningService {
    app: AdminApp,
    services: ServiceClient,
}

struct Driver<W> {
    context: W,
}

/// Result of one step of a redrive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It replays nothing any more.
    Over,
    /// There was nothing to replay yet.
    Waiting,
    /// A whole chunk was replayed, and there may be more.
    Sent,
}

/// Drives redrives until the service stops.
pub(crate) async fn run(app: AdminApp) {
    let services = ServiceClient::of(&app.settings.service, app.http_client.clone());
    drive(RunningService { app, services }).await;
}

/// Drives redrives concurrently until dropped.
pub async fn drive(context: impl DriverContext) {
    let driver = Driver { context };
    let (mut driven, mut driving) = (BTreeSet::new(), FuturesUnordered::new());
    loop {
        // Subscribed before reading: a redrive that starts after the read still wakes the loop.
        let changed = driver.context.engine().changed(RowKey::of::<ActiveRedrives>(ACTIVE_REDRIVES));
        match driver.sending().await {
            Ok(sending) => {
                let new = sending.into_iter().filter(|id| driven.insert(*id));
                driving.extend(new.map(|id| driver.drive_to_end(id)));
            }
            Err(fault) => error!("active redrives cannot be read: {}", error_chain(&fault)),
        }
        tokio::select! {
            _ = timeout(CHECK_EVERY, changed) => {}
            Some(id) = driving.next() => {
                driven.remove(&id);
            }
        }
    }
}

impl<W: DriverContext> Driver<W> {
    async fn sending(&self) -> Result<Vec<Uuid>, StoreFault> {
        let active =
            rows::row::<ActiveRedrives>(self.context.rows(), ACTIVE_REDRIVES).await?.unwrap_or_default();
        Ok(active.sending().collect())
    }

    /// Drives a redrive until it replays nothing any more, or an error; returns its id.
    async fn drive_to_end(&self, id: Uuid) -> Uuid {
        let mut breakers_checked = None;
        loop {
            match self.step(id, &mut breakers_checked).await {
                Ok(Step::Sent) => {}
                Ok(Step::Waiting) => sleep(TICK).await,
                Ok(Step::Over) => {
                    // Avoids a busy loop if it is still listed as active.
                    sleep(TICK).await;
                    return id;
                }
                Err(fault) => {
                    error!(redrive = %id, "the redrive cannot continue: {}", error_chain(&fault));
                    sleep(CHECK_EVERY).await;
                    return id;
                }
            }
        }
    }

    /// Executes one step of a redrive: stop, replay, or end.
    async fn step(&self, id: Uuid, breakers_checked: &mut Option<Instant>) -> Result<Step, StoreFault> {
        let store = self.context.rows();
        let redrive = rows::row::<Redrive>(store, id).await?.unwrap_or_default();
        let Some(drive) = redrive.drive().filter(|drive| drive.status.is_sending()) else {
            return Ok(Step::Over);
        };
        let tag = drive.tag(id);
        // Count before checking for failures: a replay that is no longer in flight has its result by then.
        let counted = progress::counted(store, drive, tag).await?;
        if let Some(because) = self.stop_cause(tag, drive, breakers_checked).await? {
            self.report(id, RedriveCommand::Stop(drive.round, because)).await;
            return Ok(Step::Waiting);
        }
        let room = drive.room(&counted).min(CHUNK);
        let granted = room.min(drive.granted(self.context.engine().now()));
        if granted == 0 && room > 0 {
            return Ok(Step::Waiting);
        }
        let limit = usize::try_from(granted).unwrap_or(usize::MAX);
        let (wanted, replay) = (progress::to_send(drive), drive.replay(id));
        let in_canary = drive.status == RedriveStatus::Canary;
        let next = match (limit, in_canary) {
            (0, _) => vec![],
            (_, false) => reading::find_for(store, &wanted, &replay, limit).await?,
            (_, true) => {
                let now = self.context.engine().now();
                replay_values::find_awaited_for(store, &wanted, &replay, limit, now).await?
            }
        };
        let proves_nothing = next.is_empty() && in_canary && drive.sent == 0 && limit > 0;
        if proves_nothing && !reading::find_for(store, &wanted, &replay, 1).await?.is_empty() {
            self.report(id, RedriveCommand::Stop(drive.round, NOBODY_WAITS.to_owned())).await;
            return Ok(Step::Waiting);
        }
        if next.is_empty() {
            if let Some(end) = drive.ending(&counted) {
                self.report(id, end).await;
            }
            return Ok(Step::Waiting);
        }
        let is_full = next.len() as u64 == CHUNK;
        let sent = self.send(drive, tag, next).await;
        Ok(if is_full && sent > 0 { Step::Sent } else { Step::Waiting })
    }

    /// Replays dead letters, and returns their number. The row of the redrive is checked in the same transaction.
    async fn send(&self, drive: &Drive, tag: Tag, dead_letters: Vec<Uuid>) -> u64 {
        let kind = CommandKind::Send { tag, dead_letters };
        match self.execute(drive.plan.by.clone(), kind).await {
            Some(Reply::Many(many)) => many.done,
            Some(Reply::Done | Reply::Changed(_) | Reply::Notification(_)) | None => 0,
        }
    }

    async fn report(&self, redrive: Uuid, command: RedriveCommand) {
        let reason =
            if let RedriveCommand::Stop(_, because) = &command { Some(because.clone()) } else { None };
        if let Some(because) = &reason {
            info!(%redrive, "the redrive stops: {because}");
        }
        self.execute(Actor::system(reason), CommandKind::Redrive(redrive, command)).await;
    }

    async fn execute(&self, by: Actor, kind: CommandKind) -> Option<Reply> {
        let command = Command { id: self.context.fresh_id(), by, kind };
        let redrive = command.correlation_id();
        match self.context.engine().process(Input::command(command.id, redrive, command, None)).await {
            Ok(Outcome::Command(CommandOutcome::Done(reply))) => Some(reply),
            Ok(_) => None,
            Err(unavailable) => {
                error!(%redrive, "the redrive waits: {unavailable}");
                None
            }
        }
    }

    /// Returns the cause to stop: a failed replay or an open breaker.
    async fn stop_cause(
        &self,
        tag: Tag,
        drive: &Drive,
        breakers_checked: &mut Option<Instant>,
    ) -> Result<Option<String>, StoreFault> {
        if let Some((id, why)) = progress::failed_again(self.context.rows(), drive, tag).await? {
            let in_canary = drive.status == RedriveStatus::Canary;
            let what = if in_canary { "the canary failed again" } else { "the same error came back" };
            return Ok(Some(format!("{what}: {id}: {why}")));
        }
        if breakers_checked.is_some_and(|checked| checked.elapsed() < BREAKER_CHECK_EVERY) {
            return Ok(None);
        }
        let open = self.open_breaker(drive).await?;
        *breakers_checked = Some(Instant::now());
        Ok(open)
    }

    /// Finds an open breaker of a step to replay to, or of its dependencies.
    async fn open_breaker(&self, drive: &Drive) -> Result<Option<String>, StoreFault> {
        let mut wanted = progress::to_send(drive);
        wanted.statuses = vec![DeadLetterStatus::Pending, DeadLetterStatus::Replaying];
        let services = names(self.context.rows(), "service", &wanted).await?;
        let asked = services.iter().map(|service| self.open_breaker_of(service, wanted.clone()));
        let open = try_join_all(asked).await?;
        Ok(open.into_iter().flatten().next())
    }

    async fn open_breaker_of(
        &self,
        service: &str,
        mut wanted: Selection,
    ) -> Result<Option<String>, StoreFault> {
        // A service that does not answer is no cause to stop: replays wait for it at the broker.
        let Some(breakers) = self.context.breakers_of(service).await else { return Ok(None) };
        wanted.filter.service = Some(service.to_owned());
        let steps = names(self.context.rows(), "step", &wanted).await?;
        let concerns = |breaker: &&BreakerView| {
            let is_a_step = breaker.name.starts_with(&format!("{service}-"));
            !is_a_step || steps.contains(&breaker.name)
        };
        let is_open = |breaker: &&BreakerView| matches!(breaker.state, State::Open | State::ForcedOpen);
        let open = breakers.iter().filter(concerns).find(is_open);
        Ok(open.map(|breaker| format!("the breaker {} of {service} is open", breaker.name)))
    }
}

impl DriverContext for RunningService {
    type Service = AdminService;

    fn rows(&self) -> &dyn Queries {
        self.app.store.as_ref()
    }

    fn engine(&self) -> &Engine<AdminService> {
        &self.app.engine
    }

    fn fresh_id(&self) -> Uuid {
        Uuid::now_v7()
    }

    async fn breakers_of(&self, service: &str) -> Option<Vec<BreakerView>> {
        if service == NAME {
            return Some(self.app.controls.admission.breakers());
        }
        self.services.get_soon(service, "/internal/breakers").await.ok()
    }
}

/// Returns the services or steps with such dead letters, at most 100.
async fn names(
    store: &dyn Queries,
    field: &'static str,
    wanted: &Selection,
) -> Result<Vec<String>, StoreFault> {
    let groups = reading::grouped(store, field, wanted, 100).await?;
    Ok(groups.into_iter().map(|group| group.value).collect())
}
