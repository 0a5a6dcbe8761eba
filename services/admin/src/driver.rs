//! Shell: what drives the redrives: one loop that does nothing while none is under way. It keeps nothing that
//! matters: which dead letters were sent is in their rows, how far a redrive is in its row. After a crash it goes on
//! from there.

use std::collections::BTreeMap;
use std::time::Duration;

use saga_core::breaker::State;
use saga_core::dead_letter::DeadLetterStatus;
use saga_core::input::{CommandOutcome, Input, Outcome};
use saga_core::retry::error_chain;
use saga_core::row::RowKey;
use saga_core::service::Service;
use saga_engine::runtime::admission::BreakerView;
use saga_engine::runtime::engine::Engine;
use saga_engine::store::{Store, StoreFault};
use tokio::time::Instant;
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
use crate::redrive::pace::Pace;
use crate::redrive::progress;
use crate::redrive::roster::{Roster, THE_ROSTER};
use crate::request::By;
use crate::rows;

/// Pause between two looks at a redrive that cannot send right now.
const TICK: Duration = Duration::from_millis(100);

/// Looks for redrives at least this often: another instance may have started one.
const LOOK_ANYWAY: Duration = Duration::from_secs(5);

/// Dead letters in one command. As many as a batch holds: one transaction's worth.
const CHUNK: usize = 256;

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

/// What the loop stands on, and what it remembers.
struct Driver<W> {
    around: W,
    origin: Instant,
    memories: BTreeMap<Uuid, Memory>,
}

/// What the loop remembers of a redrive between two looks. Losing it costs nothing but a look.
struct Memory {
    round: u32,
    pace: Pace,
    breakers_seen: Option<Instant>,
}

/// What a look at the redrives led to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Looked {
    /// None is under way.
    Idle,
    /// There was nothing to send yet.
    Waiting,
    /// A whole chunk was sent, and there may be more.
    Sent,
}

/// Drives redrives until the service stops.
pub(crate) async fn run(app: AdminApp) {
    let services = OtherServices::of(&app.settings.service);
    drive(Here { app, services }).await;
}

/// Drives redrives until dropped.
pub async fn drive(around: impl Surroundings) {
    let mut driver = Driver { around, origin: Instant::now(), memories: BTreeMap::new() };
    loop {
        // Armed before looking: a redrive that starts after the look finds the wake-up already waiting.
        let changed = driver.around.engine().changed(RowKey::of::<Roster>(THE_ROSTER));
        let pause = match driver.look().await {
            Ok(Looked::Idle) => LOOK_ANYWAY,
            Ok(Looked::Waiting) => TICK,
            Ok(Looked::Sent) => continue,
            Err(fault) => {
                error!("redrives cannot go on: {}", error_chain(&fault));
                LOOK_ANYWAY
            }
        };
        let _ = tokio::time::timeout(pause, changed).await;
    }
}

impl<W: Surroundings> Driver<W> {
    async fn look(&mut self) -> Result<Looked, StoreFault> {
        let roster = rows::row::<Roster>(self.around.store(), THE_ROSTER).await?.unwrap_or_default();
        let sending: Vec<Uuid> = roster.sending().collect();
        self.memories.retain(|redrive, _| sending.contains(redrive));
        let mut most = Looked::Idle;
        for id in sending {
            let Some(redrive) = rows::row::<Redrive>(self.around.store(), id).await? else { continue };
            let Some(drive) = redrive.drive().filter(|drive| drive.status.is_sending()) else { continue };
            let known = self.memories.remove(&id).filter(|memory| memory.round == drive.round);
            let mut memory = known.unwrap_or_else(|| Memory::of(drive, self.origin.elapsed()));
            let looked = self.drive(id, drive, &mut memory).await;
            self.memories.insert(id, memory);
            most = most.max(looked?);
        }
        Ok(most)
    }

    /// One look at one redrive: stop, go on, send, or end.
    async fn drive(&self, id: Uuid, drive: &Drive, memory: &mut Memory) -> Result<Looked, StoreFault> {
        let (store, tag) = (self.around.store(), drive.tag(id));
        // Counted before looking for failures: what is not on its way any more has failed or succeeded by then.
        let in_flight = progress::in_flight(store, tag).await?;
        if let Some(because) = self.objection(tag, drive, memory).await? {
            info!(redrive = %id, "the redrive stops: {because}");
            self.report(id, RedriveCommand::Stop(drive.round, because)).await;
            return Ok(Looked::Waiting);
        }
        let room = drive.room(in_flight);
        let granted = memory.pace.grant(self.origin.elapsed(), room.min(CHUNK as u64));
        if granted == 0 && room > 0 {
            return Ok(Looked::Waiting);
        }
        let next = if room == 0 { vec![] } else { self.next(drive, granted).await? };
        memory.pace.give_back(granted.saturating_sub(next.len() as u64));
        if next.is_empty() {
            if let Some(end) = drive.ending(in_flight) {
                self.report(id, end).await;
            }
            return Ok(Looked::Waiting);
        }
        let is_full = next.len() == CHUNK;
        let sent = self.send(drive, tag, next).await;
        Ok(if is_full && sent > 0 { Looked::Sent } else { Looked::Waiting })
    }

    /// The dead letters that are sent next, the one that failed longest ago first.
    async fn next(&self, drive: &Drive, limit: u64) -> Result<Vec<Uuid>, StoreFault> {
        let limit = usize::try_from(limit).unwrap_or(CHUNK);
        let wanted = progress::to_send(drive);
        // Those that are damaged keep none of the others from being sent.
        let found = reading::find_readable(self.around.store(), &wanted, false, limit).await?;
        Ok(found.into_iter().map(|(id, _)| id).collect())
    }

    /// Hands dead letters back, and answers how many. The redrive's own row is asked in the same transaction:
    /// nothing is sent once it is paused or over.
    async fn send(&self, drive: &Drive, tag: Tag, dead_letters: Vec<Uuid>) -> u64 {
        let kind = CommandKind::Send { tag, dead_letters };
        match self.ask(drive.plan.by.clone(), kind).await {
            Some(Reply::Replayed(many)) => many.replayed,
            Some(Reply::Done | Reply::Changed(_)) | None => 0,
        }
    }

    async fn report(&self, redrive: Uuid, command: RedriveCommand) {
        let reason =
            if let RedriveCommand::Stop(_, because) = &command { Some(because.clone()) } else { None };
        self.ask(By::system(reason), CommandKind::Redrive(redrive, command)).await;
    }

    async fn ask(&self, by: By, kind: CommandKind) -> Option<Reply> {
        let command = Command { id: self.around.fresh_id(), by, kind };
        let redrive = command.correlation_id();
        match self.around.engine().settle(Input::command(command.id, redrive, command, None)).await {
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
        memory: &mut Memory,
    ) -> Result<Option<String>, StoreFault> {
        let in_canary = drive.status == RedriveStatus::Canary;
        if let Some((id, again)) = progress::failed_again(self.around.store(), tag, in_canary).await? {
            let what = if in_canary { "the canary failed again" } else { "the same error came back" };
            let reason = again.said().map(|said| said.reason.as_str()).unwrap_or_default();
            return Ok(Some(format!("{what}: {id}: {reason}")));
        }
        if memory.breakers_seen.is_some_and(|seen| seen.elapsed() < BREAKER_LOOK) {
            return Ok(None);
        }
        let open = self.open_breaker(drive).await?;
        memory.breakers_seen = Some(Instant::now());
        Ok(open)
    }

    /// An open breaker of a step that dead letters are still to be sent to, or of something it needs.
    async fn open_breaker(&self, drive: &Drive) -> Result<Option<String>, StoreFault> {
        let store = self.around.store();
        let mut wanted = progress::to_send(drive);
        wanted.statuses = vec![DeadLetterStatus::Pending, DeadLetterStatus::Replaying];
        for service in names(store, "service", &wanted).await? {
            // A service that does not answer is no reason to stop: replays wait for it in the stream.
            let Some(breakers) = self.around.breakers_of(&service).await else { continue };
            wanted.filter.service = Some(service.clone());
            let steps = names(store, "step", &wanted).await?;
            let concerns = |breaker: &&BreakerView| {
                let is_a_step = breaker.name.starts_with(&format!("{service}-"));
                !is_a_step || steps.contains(&breaker.name)
            };
            let is_open = |breaker: &&BreakerView| matches!(breaker.state, State::Open | State::ForcedOpen);
            if let Some(breaker) = breakers.iter().filter(concerns).find(is_open) {
                return Ok(Some(format!("the breaker {} of {service} is open", breaker.name)));
            }
            wanted.filter.service.clone_from(&drive.plan.filter.service);
        }
        Ok(None)
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
            return Some(self.app.admission.breakers());
        }
        self.services.get_soon(service, "/internal/breakers").await.ok()
    }
}

/// Names of the services or steps that have some of the dead letters, at most 100.
async fn names(store: &dyn Store, field: &'static str, wanted: &Wanted) -> Result<Vec<String>, StoreFault> {
    let groups = reading::grouped(store, field, wanted, 100).await?;
    Ok(groups.into_iter().map(|group| group.value).collect())
}

impl Memory {
    fn of(drive: &Drive, now: Duration) -> Self {
        Self { round: drive.round, pace: Pace::new(drive.plan.rate, now), breakers_seen: None }
    }
}
