//! Shell: what drives the redrives: one loop that does nothing while none is under way. It keeps nothing that
//! matters: which letters were sent is in the letters, how far a redrive is in its row. After a crash it goes on
//! from there.

use std::collections::BTreeMap;
use std::time::Duration;

use shared::engine::{Input, Outcome, error_chain};
use shared::http::Problem;
use shared::resilience::{Guard, GuardView, State};
use shared::row::RowKey;
use shared::store::{LetterStatus, StoreFault};
use tokio::time::Instant;
use tracing::{error, info};
use uuid::Uuid;

use crate::AdminApp;
use crate::commands::{Command, Wish};
use crate::filter::Wanted;
use crate::letters::{By, Tag};
use crate::pace::Pace;
use crate::policy::AdminService;
use crate::progress;
use crate::reading;
use crate::redrive::{Drive, Redrive, RedriveCommand, RedriveStatus, Seen};
use crate::roster::{Roster, THE_ROSTER};
use crate::services::Services;

/// Pause between two looks at a redrive that cannot send right now.
const TICK: Duration = Duration::from_millis(100);

/// Looks for redrives at least this often: another instance may have started one.
const LOOK_ANYWAY: Duration = Duration::from_secs(5);

/// Letters in one command. As many as a batch holds: one transaction's worth.
const CHUNK: usize = 256;

/// Pause between two looks at the breakers.
const BREAKER_LOOK: Duration = Duration::from_millis(500);

/// What the loop remembers of a redrive between two looks. Losing it costs nothing but a look.
struct Course {
    round: u32,
    pace: Pace,
    breakers_seen: Option<Instant>,
}

/// The loop.
struct Driver {
    app: AdminApp,
    services: Services,
    origin: Instant,
    courses: BTreeMap<Uuid, Course>,
}

/// Drives redrives until the service stops.
pub(crate) async fn run(app: AdminApp) {
    let services = Services::of(&app.settings.service);
    let mut driver = Driver { app, services, origin: Instant::now(), courses: BTreeMap::new() };
    loop {
        // Armed before looking: a redrive that starts after the look finds the wake-up already waiting.
        let changed = driver.app.engine.changed(RowKey::of::<Roster>(THE_ROSTER));
        let pause = match driver.look().await {
            Ok(Look::Idle) => LOOK_ANYWAY,
            Ok(Look::Waiting) => TICK,
            Ok(Look::Sent) => continue,
            Err(fault) => {
                error!("redrives cannot go on: {}", error_chain(&fault));
                LOOK_ANYWAY
            }
        };
        let _ = tokio::time::timeout(pause, changed).await;
    }
}

/// What a look at the redrives led to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Look {
    /// None is under way.
    Idle,
    /// There was nothing to send yet.
    Waiting,
    /// A whole chunk was sent, and there may be more.
    Sent,
}

impl Driver {
    async fn look(&mut self) -> Result<Look, StoreFault> {
        let roster = reading::row::<Roster>(self.app.store.as_ref(), THE_ROSTER).await?.unwrap_or_default();
        let sending: Vec<Uuid> = roster.sending().collect();
        self.courses.retain(|redrive, _| sending.contains(redrive));
        let mut most = Look::Idle;
        for id in sending {
            let Some(redrive) = reading::row::<Redrive>(self.app.store.as_ref(), id).await? else { continue };
            let Some(drive) = redrive.drive().filter(|drive| drive.status.is_sending()) else { continue };
            most = most.max(self.drive(id, drive).await?);
        }
        Ok(most)
    }

    /// One look at one redrive: stop, go on, send, or end.
    async fn drive(&mut self, id: Uuid, drive: &Drive) -> Result<Look, StoreFault> {
        let (tag, now) = (drive.tag(id), self.origin.elapsed());
        let course = self.courses.entry(id).or_insert_with(|| Course::of(drive, now));
        if course.round != drive.round {
            *course = Course::of(drive, now);
        }
        // Counted before looking for failures: what is not on its way any more has failed or succeeded by then.
        let store = self.app.store.as_ref();
        let in_flight = progress::in_flight(store, tag).await?;
        let sent = if drive.in_canary { progress::sent(store, tag).await? } else { 0 };
        let seen = Seen { sent, in_flight };
        if let Some(because) = self.objection(id, drive).await? {
            info!(redrive = %id, "the redrive stops: {because}");
            self.note(id, RedriveCommand::Stop(drive.round, because)).await;
            return Ok(Look::Waiting);
        }
        let room = drive.room(seen);
        let granted = self.grant(id, room.min(CHUNK as u64));
        if granted == 0 && room > 0 {
            return Ok(Look::Waiting);
        }
        let letters = match room {
            0 => vec![],
            _ => self.next_letters(drive, granted).await?,
        };
        let unused = granted.saturating_sub(letters.len() as u64);
        if let Some(course) = self.courses.get_mut(&id) {
            course.pace.give_back(unused);
        }
        if letters.is_empty() {
            if let Some(end) = drive.ending(seen) {
                self.note(id, end).await;
            }
            return Ok(Look::Waiting);
        }
        let is_full = letters.len() == CHUNK;
        let sent = self.send(drive, tag, letters).await;
        Ok(if is_full && sent > 0 { Look::Sent } else { Look::Waiting })
    }

    fn grant(&mut self, id: Uuid, wanted: u64) -> u64 {
        let now = self.origin.elapsed();
        self.courses.get_mut(&id).map_or(0, |course| course.pace.grant(now, wanted))
    }

    async fn next_letters(&self, drive: &Drive, limit: u64) -> Result<Vec<Uuid>, StoreFault> {
        let limit = usize::try_from(limit).unwrap_or(CHUNK);
        let wanted = progress::to_send(drive);
        let found = reading::letters(self.app.store.as_ref(), &wanted, false, None, limit).await?;
        Ok(found.into_iter().map(|(letter, _)| letter).collect())
    }

    /// Hands letters back, and answers how many. The redrive's own row is asked in the same transaction: nothing
    /// is sent once it is paused or over.
    async fn send(&self, drive: &Drive, tag: Tag, letters: Vec<Uuid>) -> u64 {
        let command =
            Command { id: Uuid::now_v7(), by: drive.plan.by.clone(), wish: Wish::Send { tag, letters } };
        let outcome = self.ask(tag.redrive, command).await;
        if let Some(Outcome::Done(reply)) = outcome { reply.replayed } else { 0 }
    }

    async fn note(&self, redrive: Uuid, command: RedriveCommand) {
        let reason =
            if let RedriveCommand::Stop(_, because) = &command { Some(because.clone()) } else { None };
        let wish = Wish::Drive(redrive, command);
        self.ask(redrive, Command { id: Uuid::now_v7(), by: By::system(reason), wish }).await;
    }

    async fn ask(&self, redrive: Uuid, command: Command) -> Option<Outcome<AdminService>> {
        let input = Input::command(command.id, redrive, command, None);
        match self.app.engine.settle(input).await {
            Ok(outcome) => Some(outcome),
            Err(unavailable) => {
                error!(%redrive, "the redrive waits: {unavailable}");
                None
            }
        }
    }

    /// What speaks against sending more.
    async fn objection(&mut self, id: Uuid, drive: &Drive) -> Result<Option<String>, StoreFault> {
        let in_canary = drive.status == RedriveStatus::Canary;
        let store = self.app.store.as_ref();
        if let Some((letter, known)) = progress::failed_again(store, drive.tag(id), in_canary).await? {
            let what = if in_canary { "the canary failed again" } else { "the same error came back" };
            let reason = known.said().map(|said| said.reason.as_str()).unwrap_or_default();
            return Ok(Some(format!("{what}: {letter}: {reason}")));
        }
        let is_due = |course: &Course| course.breakers_seen.is_none_or(|seen| seen.elapsed() >= BREAKER_LOOK);
        if !self.courses.get(&id).is_some_and(is_due) {
            return Ok(None);
        }
        let open = self.open_breaker(drive).await?;
        if let Some(course) = self.courses.get_mut(&id) {
            course.breakers_seen = Some(Instant::now());
        }
        Ok(open)
    }

    /// An open breaker of a step that letters are still to be sent to, or of something it needs.
    async fn open_breaker(&self, drive: &Drive) -> Result<Option<String>, StoreFault> {
        let store = self.app.store.as_ref();
        let mut wanted = progress::to_send(drive);
        wanted.statuses = vec![LetterStatus::Pending, LetterStatus::Replaying];
        for service in names(&wanted, "service", store).await? {
            // A service that does not answer is no reason to stop: replays wait for it in the stream.
            let Ok(guards) = self.breakers_of(&service).await else { continue };
            wanted.filter.service = Some(service.clone());
            let steps = names(&wanted, "step", store).await?;
            let concerns = |guard: &&GuardView| {
                let is_a_step = guard.name.starts_with(&format!("{service}-"));
                !is_a_step || steps.contains(&guard.name)
            };
            let is_open = |guard: &&GuardView| matches!(guard.state, State::Open | State::ForcedOpen);
            if let Some(guard) = guards.iter().filter(concerns).find(is_open) {
                return Ok(Some(format!("the breaker {} of {service} is open", guard.name)));
            }
            wanted.filter.service.clone_from(&drive.plan.filter.service);
        }
        Ok(None)
    }

    async fn breakers_of(&self, service: &str) -> Result<Vec<GuardView>, Problem> {
        if service == crate::NAME {
            return Ok(self.app.breakers.all().map(Guard::view).collect());
        }
        self.services.get_soon(service, "/internal/breakers").await
    }
}

async fn names(
    wanted: &Wanted,
    field: &'static str,
    store: &dyn shared::store::Store,
) -> Result<Vec<String>, StoreFault> {
    let groups = reading::grouped(store, field, wanted, 100).await?;
    Ok(groups.into_iter().map(|group| group.value).collect())
}

impl Course {
    fn of(drive: &Drive, now: Duration) -> Self {
        Self { round: drive.round, pace: Pace::new(drive.plan.rate, now), breakers_seen: None }
    }
}
