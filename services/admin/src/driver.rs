//! Shell: what drives the redrives: one loop that does nothing while none is under way. It keeps nothing that
//! matters: which dead letters were sent is in their rows, how far a redrive is in its row. After a crash it goes on
//! from there.

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
use saga_engine::store::{Store, StoreFault};
use tokio::time::{Instant, sleep, timeout};
use tracing::{error, info};
use uuid::Uuid;

use crate::AdminApp;
use crate::commands::{Command, CommandKind, Reply};
use crate::dead_letter::events::Tag;
use crate::dead_letter::filter::Wanted;
use crate::dead_letter::reading;
use crate::other_services::OtherServices;
use crate::policy::AdminService;
use crate::redrive::decider::{Drive, Redrive};
use crate::redrive::events::{RedriveCommand, RedriveStatus};
use crate::redrive::progress;
use crate::redrive::roster::{Roster, THE_ROSTER};
use crate::request::By;
use crate::rows;

/// Pause between two looks at a redrive that cannot send right now.
const TICK: Duration = Duration::from_millis(100);

/// Looks for redrives at least this often: another instance may have started one.
const LOOK_ANYWAY: Duration = Duration::from_secs(5);

/// Dead letters in one command. As many as a batch holds: one transaction's worth.
const CHUNK: u64 = 256;

/// Pause between two looks at the breakers.
const BREAKER_LOOK: Duration = Duration::from_millis(500);

/// Where the loop runs, and what it asks for there.
pub trait Surroundings: Send + Sync {
    /// The admin service, as the engine there has it.
    type Service: Service<Command = Command, Reply = Reply>;

    /// Admin's own database.
    fn store(&self) -> &dyn Store;

    /// Admin's own engine.
    fn engine(&self) -> &Engine<Self::Service>;

    /// An id that no command has had.
    fn fresh_id(&self) -> Uuid;

    /// The breakers of this service; `None` when it does not answer.
    fn breakers_of(&self, service: &str) -> impl Future<Output = Option<Vec<BreakerView>>> + Send;
}

/// The running service.
struct Here {
    app: AdminApp,
    services: OtherServices,
}

/// What the loop stands on.
struct Driver<W> {
    around: W,
}

/// What a look at a redrive led to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// It sends nothing any more.
    Over,
    /// There was nothing to send yet.
    Waiting,
    /// A whole chunk was sent, and there may be more.
    Sent,
}

/// Drives redrives until the service stops.
pub(crate) async fn run(app: AdminApp) {
    let services = OtherServices::of(&app.settings.service, app.http_client.clone());
    drive(Here { app, services }).await;
}

/// Drives redrives until dropped, each by itself: what one waits for holds up no other.
pub async fn drive(around: impl Surroundings) {
    let driver = Driver { around };
    let (mut driven, mut driving) = (BTreeSet::new(), FuturesUnordered::new());
    loop {
        // Armed before looking: a redrive that starts after the look finds the wake-up already waiting.
        let changed = driver.around.engine().changed(RowKey::of::<Roster>(THE_ROSTER));
        match driver.sending().await {
            Ok(sending) => {
                let new = sending.into_iter().filter(|id| driven.insert(*id));
                driving.extend(new.map(|id| driver.drive_to_its_end(id)));
            }
            Err(fault) => error!("redrives cannot be looked at: {}", error_chain(&fault)),
        }
        tokio::select! {
            _ = timeout(LOOK_ANYWAY, changed) => {}
            Some(id) = driving.next() => {
                driven.remove(&id);
            }
        }
    }
}

impl<W: Surroundings> Driver<W> {
    /// The redrives that send.
    async fn sending(&self) -> Result<Vec<Uuid>, StoreFault> {
        let roster = rows::row::<Roster>(self.around.store(), THE_ROSTER).await?.unwrap_or_default();
        Ok(roster.sending().collect())
    }

    /// Looks at a redrive until it sends nothing any more, or cannot be looked at for now; answers which it was.
    async fn drive_to_its_end(&self, id: Uuid) -> Uuid {
        let mut breakers_seen = None;
        loop {
            match self.look(id, &mut breakers_seen).await {
                Ok(Looked::Sent) => {}
                Ok(Looked::Waiting) => sleep(TICK).await,
                Ok(Looked::Over) => {
                    // Should the roster say otherwise, it is not asked without a pause.
                    sleep(TICK).await;
                    return id;
                }
                Err(fault) => {
                    error!(redrive = %id, "the redrive cannot go on: {}", error_chain(&fault));
                    sleep(LOOK_ANYWAY).await;
                    return id;
                }
            }
        }
    }

    /// One look at one redrive: stop, go on, send, or end.
    async fn look(&self, id: Uuid, breakers_seen: &mut Option<Instant>) -> Result<Looked, StoreFault> {
        let store = self.around.store();
        let redrive = rows::row::<Redrive>(store, id).await?.unwrap_or_default();
        let Some(drive) = redrive.drive().filter(|drive| drive.status.is_sending()) else {
            return Ok(Looked::Over);
        };
        let tag = drive.tag(id);
        // Counted before looking for failures: what is not on its way any more has failed or succeeded by then.
        let counted = progress::counted(store, drive, tag).await?;
        if let Some(because) = self.objection(tag, drive, breakers_seen).await? {
            self.report(id, RedriveCommand::Stop(drive.round, because)).await;
            return Ok(Looked::Waiting);
        }
        let room = drive.room(&counted).min(CHUNK);
        let granted = room.min(drive.granted(self.around.engine().now()));
        if granted == 0 && room > 0 {
            return Ok(Looked::Waiting);
        }
        let limit = usize::try_from(granted).unwrap_or(usize::MAX);
        let (wanted, replay) = (progress::to_send(drive), drive.replay(id));
        let next =
            if limit == 0 { vec![] } else { reading::find_for(store, &wanted, &replay, limit).await? };
        if next.is_empty() {
            if let Some(end) = drive.ending(&counted) {
                self.report(id, end).await;
            }
            return Ok(Looked::Waiting);
        }
        let is_full = next.len() as u64 == CHUNK;
        let sent = self.send(drive, tag, next).await;
        Ok(if is_full && sent > 0 { Looked::Sent } else { Looked::Waiting })
    }

    /// Hands dead letters back, and answers how many. The redrive's own row is asked in the same transaction:
    /// nothing is sent once it is paused or over.
    async fn send(&self, drive: &Drive, tag: Tag, dead_letters: Vec<Uuid>) -> u64 {
        let kind = CommandKind::Send { tag, dead_letters };
        match self.ask(drive.plan.by.clone(), kind).await {
            Some(Reply::Many(many)) => many.done,
            Some(Reply::Done | Reply::Changed(_) | Reply::Notice(_)) | None => 0,
        }
    }

    async fn report(&self, redrive: Uuid, command: RedriveCommand) {
        let reason =
            if let RedriveCommand::Stop(_, because) = &command { Some(because.clone()) } else { None };
        if let Some(because) = &reason {
            info!(%redrive, "the redrive stops: {because}");
        }
        self.ask(By::system(reason), CommandKind::Redrive(redrive, command)).await;
    }

    async fn ask(&self, by: By, kind: CommandKind) -> Option<Reply> {
        let command = Command { id: self.around.fresh_id(), by, kind };
        let redrive = command.correlation_id();
        match self.around.engine().process(Input::command(command.id, redrive, command, None)).await {
            Ok(Outcome::Command(CommandOutcome::Done(reply))) => Some(reply),
            Ok(_) => None,
            Err(unavailable) => {
                error!(%redrive, "the redrive waits: {unavailable}");
                None
            }
        }
    }

    /// What speaks against sending more.
    async fn objection(
        &self,
        tag: Tag,
        drive: &Drive,
        breakers_seen: &mut Option<Instant>,
    ) -> Result<Option<String>, StoreFault> {
        if let Some((id, why)) = progress::failed_again(self.around.store(), drive, tag).await? {
            let in_canary = drive.status == RedriveStatus::Canary;
            let what = if in_canary { "the canary failed again" } else { "the same error came back" };
            return Ok(Some(format!("{what}: {id}: {why}")));
        }
        if breakers_seen.is_some_and(|seen| seen.elapsed() < BREAKER_LOOK) {
            return Ok(None);
        }
        let open = self.open_breaker(drive).await?;
        *breakers_seen = Some(Instant::now());
        Ok(open)
    }

    /// An open breaker of a step that dead letters are still to be sent to, or of something it needs.
    async fn open_breaker(&self, drive: &Drive) -> Result<Option<String>, StoreFault> {
        let mut wanted = progress::to_send(drive);
        wanted.statuses = vec![DeadLetterStatus::Pending, DeadLetterStatus::Replaying];
        let services = names(self.around.store(), "service", &wanted).await?;
        let asked = services.iter().map(|service| self.open_breaker_of(service, wanted.clone()));
        let open = try_join_all(asked).await?;
        Ok(open.into_iter().flatten().next())
    }

    async fn open_breaker_of(&self, service: &str, mut wanted: Wanted) -> Result<Option<String>, StoreFault> {
        // A service that does not answer is no reason to stop: replays wait for it in the stream.
        let Some(breakers) = self.around.breakers_of(service).await else { return Ok(None) };
        wanted.filter.service = Some(service.to_owned());
        let steps = names(self.around.store(), "step", &wanted).await?;
        let concerns = |breaker: &&BreakerView| {
            let is_a_step = breaker.name.starts_with(&format!("{service}-"));
            !is_a_step || steps.contains(&breaker.name)
        };
        let is_open = |breaker: &&BreakerView| matches!(breaker.state, State::Open | State::ForcedOpen);
        let open = breakers.iter().filter(concerns).find(is_open);
        Ok(open.map(|breaker| format!("the breaker {} of {service} is open", breaker.name)))
    }
}

impl Surroundings for Here {
    type Service = AdminService;

    fn store(&self) -> &dyn Store {
        self.app.store.as_ref()
    }

    fn engine(&self) -> &Engine<AdminService> {
        &self.app.engine
    }

    fn fresh_id(&self) -> Uuid {
        Uuid::now_v7()
    }

    async fn breakers_of(&self, service: &str) -> Option<Vec<BreakerView>> {
        if service == crate::NAME {
            return Some(self.app.controls.admission.breakers());
        }
        self.services.get_soon(service, "/internal/breakers").await.ok()
    }
}

/// Names of the services or steps that have some of the dead letters, at most 100.
async fn names(store: &dyn Store, field: &'static str, wanted: &Wanted) -> Result<Vec<String>, StoreFault> {
    let groups = reading::grouped(store, field, wanted, 100).await?;
    Ok(groups.into_iter().map(|group| group.value).collect())
}
