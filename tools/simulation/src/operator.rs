//! Shell: operators: they look at admin's dead letters and replay, edit, give up and take up again, two of them
//! at once now and then, while the world is rough; in the end one of them mends everything.

use std::collections::BTreeSet;
use std::time::Duration;

use admin::commands::{Command, CommandKind};
use admin::dead_letter::events::{DeadLetterEvent, MOST_REPLAYS, Replay};
use admin::dead_letter::view::DeadLetterView;
use admin::policy::{AdminMessage, AdminService};
use admin::request::By;
use admin::settling::{Case, Named, Settling};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use contract::order::CancelReason;
use contract::saga_view::SagaView;
use jiff::Timestamp;
use saga_core::dead_letter::{DeadLetterOrigin, DeadLetterStatus, DeadLettered, EditedMessage};
use saga_core::ids;
use saga_core::input::CommandOutcome;
use saga_core::message::{Envelope, Message as _};
use saga_core::service::Step;
use uuid::Uuid;

use crate::endings::Ending;
use crate::reasons::{DISAGREES, misread};
use crate::tampered::Tampered;
use crate::world::{World, events, rows};

/// What an order is given from now on: more than most have.
const MORE_TIME: Duration = Duration::from_secs(90);

/// Looks of the operator who mends; a dead letter that is not handled by then never will be.
const LOOKS: usize = 12;

impl World {
    /// Admin's dead letters, whatever became of them.
    #[must_use]
    pub fn dead_letters(&self) -> Vec<(Uuid, DeadLetterView)> {
        let rows = rows::<DeadLetterView>(self.admin.store()).into_iter();
        rows.filter_map(|(id, dead_letter)| Some((id.parse().ok()?, dead_letter))).collect()
    }

    /// What happened to a dead letter, as admin has it, oldest first.
    #[must_use]
    pub fn history(&self, dead_letter: Uuid) -> Vec<DeadLetterEvent> {
        events::<DeadLetterView>(self.admin.store(), dead_letter)
    }

    /// Does something with one of the dead letters; two operators may want the same at once.
    pub async fn operate(&mut self) {
        let dead_letters = self.dead_letters();
        if dead_letters.is_empty() {
            return;
        }
        if self.sim.below(100) < 15 {
            return self.redrive_some().await;
        }
        let (id, dead_letter) = &dead_letters[self.sim.below(dead_letters.len())];
        if self.sim.below(100) < 12 {
            return self.extend(dead_letter).await;
        }
        let force = self.sim.below(100) < 10;
        match dead_letter.status() {
            Some(DeadLetterStatus::Pending) => match self.sim.below(100) {
                0..=11 if !is_machinery(dead_letter) => self.discard(*id).await,
                12..=21 if !is_machinery(dead_letter) => self.discard_by_mistake(*id).await,
                90..=97 if !is_machinery(dead_letter) => self.settle(*id, dead_letter).await,
                22..=39 => {
                    let edited = self.edit_of(*id, dead_letter);
                    self.replay(*id, dead_letter, force, edited).await;
                }
                _ => self.replay(*id, dead_letter, force, None).await,
            },
            Some(DeadLetterStatus::Replaying) if force => self.replay(*id, dead_letter, true, None).await,
            Some(DeadLetterStatus::Discarded) => self.restore(*id).await,
            Some(DeadLetterStatus::Settled) => self.unsettle(*id, dead_letter).await,
            Some(DeadLetterStatus::Replaying | DeadLetterStatus::Resolved) | None => {}
        }
    }

    /// Handles every dead letter, look by look, until none waits. After each look all must be `at_rest`.
    pub async fn mend(&mut self, at_rest: fn(&Self)) {
        self.unsettle_all().await;
        for _ in 0..LOOKS {
            let open = self.open_dead_letters();
            if open.is_empty() {
                return;
            }
            if self.sim.below(4) == 0 {
                self.redrive_all().await;
            } else {
                for (id, dead_letter) in &open {
                    self.mend_one(*id, dead_letter).await;
                }
            }
            self.come_to_rest().await;
            at_rest(self);
        }
        let left = self.open_dead_letters().into_iter();
        let left: Vec<_> = left.map(|(id, dead_letter)| (id, dead_letter.status())).collect();
        if !left.is_empty() {
            self.sim.object(format!("law 8: not handled although its cause was mended: {left:?}"));
        }
    }

    fn open_dead_letters(&self) -> Vec<(Uuid, DeadLetterView)> {
        let open = [Some(DeadLetterStatus::Pending), Some(DeadLetterStatus::Replaying)];
        let mut dead_letters = self.dead_letters();
        dead_letters.retain(|(_, dead_letter)| open.contains(&dead_letter.status()));
        dead_letters
    }

    async fn mend_one(&mut self, id: Uuid, dead_letter: &DeadLetterView) {
        self.cancel_if_misread(dead_letter).await;
        let force = dead_letter.replays() >= MOST_REPLAYS;
        if dead_letter.status() == Some(DeadLetterStatus::Replaying) {
            // Nothing is under way any more, so the request got lost.
            return self.replay(id, dead_letter, true, None).await;
        }
        let may_go = self.sim.weather().discards_some && !is_machinery(dead_letter);
        match self.sim.below(100) {
            0..=29 if may_go => self.discard(id).await,
            30..=34 => self.discard_by_mistake(id).await,
            35..=44 => match self.edit_of(id, dead_letter) {
                Some(edited) => self.replay(id, dead_letter, force, Some(edited)).await,
                None => self.replay_or_discard(id, dead_letter, force).await,
            },
            _ => self.replay_or_discard(id, dead_letter, force).await,
        }
    }

    /// An order that was edited into another cannot be kept: it is cancelled, and what is parked has nothing to do.
    async fn cancel_if_misread(&self, dead_letter: &DeadLetterView) {
        let misread = dead_letter.said().filter(|said| said.reason.contains(DISAGREES));
        let Some(order) = misread.and_then(|said| said.saga) else { return };
        let (id, reason) = (self.sim.fresh_id(), CancelReason::Operator);
        let command = order::policy::Command::Cancel { order, reason };
        self.order.ask(&self.sim, (id, order), command, None).await;
    }

    /// Replays what can be read, edits what cannot, and gives up what nothing can be made of.
    async fn replay_or_discard(&mut self, id: Uuid, dead_letter: &DeadLetterView, force: bool) {
        if self.is_readable(id, dead_letter) {
            self.replay(id, dead_letter, force, None).await;
        } else if let Some(edited) = self.edit_of(id, dead_letter) {
            self.replay(id, dead_letter, force, Some(edited)).await;
        } else {
            self.discard(id).await;
        }
    }

    async fn replay(
        &self,
        id: Uuid,
        dead_letter: &DeadLetterView,
        force: bool,
        edited: Option<EditedMessage>,
    ) {
        let version = (!force).then(|| dead_letter.version());
        let is_edit = edited.is_some();
        let asked = CommandKind::Replay(id, Replay { force, version, edited, ..Replay::default() });
        let is_alone = !self.sim.chance(30);
        let other = async { if is_alone { None } else { self.ask_admin(id, asked.clone()).await } };
        let (one, other) = tokio::join!(self.ask_admin(id, asked.clone()), other);
        let answers = [one, other];
        let granted =
            answers.iter().flatten().filter(|outcome| matches!(outcome, CommandOutcome::Done(_))).count();
        if granted > 1 && !force {
            self.sim.object(format!("law 8: two operators replayed dead letter {id} at once"));
        }
        self.sim.note(|| format!("{id} replayed, force {force}, edited {is_edit}: {granted} granted"));
        self.sim.count_many(Ending::Replayed, granted as u64);
        self.sim.count_many(Ending::ReplayForced, u64::from(force && granted > 0));
        let refused = answers.iter().flatten().any(|outcome| matches!(outcome, CommandOutcome::Rejected(_)));
        self.sim.count_many(Ending::SecondOperatorRefused, u64::from(granted == 1 && refused));
    }

    /// The order behind a dead letter is given more time.
    async fn extend(&self, dead_letter: &DeadLetterView) {
        let Some(order) = dead_letter.said().and_then(|said| said.saga) else { return };
        let until = self.sim.now().saturating_add(MORE_TIME).unwrap_or(Timestamp::MAX);
        self.sim.note(|| format!("order {order} is to wait until {until}"));
        self.ask_admin(order, CommandKind::Extend { orders: vec![order], until }).await;
    }

    async fn discard(&self, id: Uuid) {
        self.sim.note(|| format!("{id} discarded"));
        self.ask_admin(id, CommandKind::Discard(id)).await;
    }

    /// Given up and taken up again at once: the two commands may well overtake each other.
    async fn discard_by_mistake(&self, id: Uuid) {
        self.discard(id).await;
        self.restore(id).await;
    }

    /// Settles a dead letter outside, and its saga with the last in its way; now and then that is taken back at once, and the two words
    /// may overtake each other on their way.
    async fn settle(&self, id: Uuid, dead_letter: &DeadLetterView) {
        self.sim.note(|| format!("{id} settled"));
        self.sim.count(Ending::Settled);
        self.ask_admin(id, CommandKind::Settle(Settling::Settle, self.case(id, dead_letter))).await;
        if self.sim.chance(50) {
            self.unsettle(id, dead_letter).await;
        }
    }

    async fn unsettle(&self, id: Uuid, dead_letter: &DeadLetterView) {
        self.sim.note(|| format!("{id} no longer settled"));
        self.ask_admin(id, CommandKind::Settle(Settling::Unsettle, self.case(id, dead_letter))).await;
    }

    /// A dead letter, and its saga with it.
    fn case(&self, id: Uuid, dead_letter: &DeadLetterView) -> Case {
        let saga = dead_letter.said().and_then(|said| said.saga);
        let views = rows::<SagaView>(self.admin.store()).into_iter();
        let its_own = views.filter(|(of, _)| saga.is_some_and(|saga| saga.to_string() == *of));
        let in_the_way = |view: SagaView| view.in_the_way().map(|(id, _)| id).collect::<Vec<_>>();
        Case {
            named: Named::DeadLetter(id),
            with: saga.map(|saga| Named::Saga(saga, vec![])).into_iter().collect(),
            in_the_way: its_own.flat_map(|(_, view)| in_the_way(view)).collect(),
        }
    }

    /// Whoever mends everything settles nothing outside.
    async fn unsettle_all(&self) {
        for (id, dead_letter) in self.dead_letters() {
            if dead_letter.status() == Some(DeadLetterStatus::Settled) {
                self.unsettle(id, &dead_letter).await;
            }
        }
        for (saga, view) in rows::<SagaView>(self.admin.store()) {
            if let (Some(_), Ok(saga)) = (view.settled, saga.parse()) {
                let named = Named::Saga(saga, vec![]);
                let case = Case { named, with: vec![], in_the_way: BTreeSet::new() };
                self.ask_admin(saga, CommandKind::Settle(Settling::Unsettle, case)).await;
            }
        }
    }

    async fn restore(&self, id: Uuid) {
        self.sim.note(|| format!("{id} restored"));
        self.sim.count(Ending::Restored);
        self.ask_admin(id, CommandKind::Restore(id)).await;
    }

    /// Asks one of the instances of admin for something. `None` when nobody answers in time.
    pub async fn ask_admin(
        &self,
        saga: Uuid,
        kind: CommandKind,
    ) -> Option<CommandOutcome<Tampered<AdminService>>> {
        let id = self.sim.fresh_id();
        let by = By { operator: "grace".to_owned(), reason: Some("it has to end".to_owned()) };
        self.admin.ask(&self.sim, (id, saga), Command { id, by, kind }, None).await
    }

    /// Whether the step could handle what is parked.
    fn is_readable(&self, id: Uuid, dead_letter: &DeadLetterView) -> bool {
        let Some(said) = dead_letter.said() else { return false };
        if said.origin == DeadLetterOrigin::Task {
            return true;
        }
        let envelope = self.payload_of(id).and_then(|payload| Envelope::from_bytes(&payload).ok());
        let message = envelope.and_then(|envelope| envelope.open::<AdminMessage>().ok());
        message
            .zip(Self::step(&said.step))
            .is_some_and(|(message, step)| step.consumes_type(message.fact.message_type().name))
    }

    fn payload_of(&self, id: Uuid) -> Option<Vec<u8>> {
        let announced = announced(&self.history(id)).pop()?;
        BASE64.decode(announced.payload_base64).ok()
    }

    /// The same message in a form that the step can read, or another one that it has heard already: that does no
    /// harm. Always under an id of its own.
    fn edit_of(&self, id: Uuid, dead_letter: &DeadLetterView) -> Option<EditedMessage> {
        let said = dead_letter.said()?;
        if said.origin == DeadLetterOrigin::Task {
            return None;
        }
        let step = Self::step(&said.step)?;
        let message_id = ids::derived(&["edited", &id.to_string(), &dead_letter.version().to_string()]);
        let payload = self.payload_of(id)?;
        let payload = match reworded(&payload, message_id, step) {
            // Whoever repairs by hand what a machine wrote may get it wrong.
            Some(payload) if self.sim.below(2) == 0 => misread(payload),
            Some(payload) => payload,
            None if is_machinery(dead_letter) => return None,
            None => self.something_like_it(message_id, step)?,
        };
        Some(EditedMessage { message_id, payload_base64: BASE64.encode(payload) })
    }

    fn something_like_it(&self, message_id: Uuid, step: &'static Step) -> Option<Vec<u8>> {
        let broker = self.broker.lock();
        let all = 0..broker.messages().len();
        let heard: Vec<usize> = all.filter(|index| broker.hearers(*index).contains(&step.name)).collect();
        let index = heard.get(self.sim.below(heard.len()))?;
        reworded(&broker.messages()[*index].payload, message_id, step)
    }
}

/// What its service said of a dead letter, each time that it was parked, oldest first.
#[must_use]
pub fn announced(history: &[DeadLetterEvent]) -> Vec<DeadLettered> {
    let announced = history.iter().filter_map(|event| match event {
        DeadLetterEvent::Announced(announced) => Some((**announced).clone()),
        DeadLetterEvent::Resolved(_)
        | DeadLetterEvent::Forgotten(_)
        | DeadLetterEvent::Replayed { .. }
        | DeadLetterEvent::Discarded { .. }
        | DeadLetterEvent::Restored { .. }
        | DeadLetterEvent::Settled { .. }
        | DeadLetterEvent::Unsettled { .. }
        | DeadLetterEvent::Noted { .. } => None,
    });
    announced.collect()
}

/// Whether it belongs to what moves dead letters: that is replayed, and never given up.
#[must_use]
pub fn is_machinery(dead_letter: &DeadLetterView) -> bool {
    let is_of_it =
        |step: &str| World::step(step).is_some_and(Step::is_for_operators) || step == "admin-dead-letters";
    dead_letter.said().is_some_and(|said| is_of_it(&said.step))
}

/// The message under another id, in the version that this build reads; `None` when the step cannot read it then.
fn reworded(payload: &[u8], id: Uuid, step: &Step) -> Option<Vec<u8>> {
    let mut envelope = Envelope::from_bytes(payload).ok()?;
    let message_type = AdminMessage::named(&envelope.message_type)?;
    envelope.version = message_type.version;
    envelope.id = id;
    envelope.open::<AdminMessage>().ok()?;
    step.consumes_type(message_type.name).then(|| serde_json::to_vec(&envelope).ok())?
}
