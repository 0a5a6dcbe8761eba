//! Shell: operators who replay, edit, discard, restore and resolve dead letters, sometimes two at once. At
//! the end one of them handles all that are left.

use std::collections::BTreeSet;
use std::time::Duration;

use admin::commands::{Command, CommandKind};
use admin::dead_letters::events::{DeadLetterEvent, MAX_REPLAYS, Replay};
use admin::dead_letters::view::DeadLetterView;
use admin::resolution::{Direction, Resolution, Target};
use admin::service::{AdminMessage, AdminService};
use admin_api::actor::Actor;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use contract::order::CancelReason;
use contract::saga_view::SagaView;
use jiff::Timestamp;
use order::domain::Order;
use saga_core::dead_letter::{DeadLetterOrigin, DeadLetterStatus, DeadLettered, EditedMessage};
use saga_core::ids;
use saga_core::input::CommandOutcome;
use saga_core::message::{Envelope, Message as _};
use saga_core::service::Step;
use uuid::Uuid;

use crate::coverage::CoveragePoint;
use crate::failure_reasons::{LINES_DIFFER, edited_line};
use crate::instrumented::Instrumented;
use crate::law::Law;
use crate::world::{World, events, rows};

/// Extension of a deadline, longer than that of most orders.
const MORE_TIME: Duration = Duration::from_secs(90);

/// Rounds in which every dead letter must be handled.
const ROUNDS: usize = 12;

impl World {
    /// All dead letters as admin has them.
    pub fn dead_letters(&self) -> Vec<(Uuid, DeadLetterView)> {
        let rows = rows::<DeadLetterView>(self.admin.store()).into_iter();
        rows.filter_map(|(id, dead_letter)| Some((id.parse().ok()?, dead_letter))).collect()
    }

    /// History of a dead letter as admin has it, oldest event first.
    pub fn history(&self, dead_letter: Uuid) -> Vec<DeadLetterEvent> {
        events::<DeadLetterView>(self.admin.store(), dead_letter)
    }

    /// Performs a random action on a random dead letter; two operators may act at once.
    pub async fn act_on_dead_letter(&mut self) {
        let dead_letters = self.dead_letters();
        if dead_letters.is_empty() {
            return;
        }
        if self.sim.below(100) < 15 {
            return self.redrive_some().await;
        }
        let (id, dead_letter) = &dead_letters[self.sim.below(dead_letters.len())];
        if self.sim.below(100) < 12 {
            if let Some(order) = dead_letter.report().and_then(|report| report.saga) {
                self.extend(order).await;
            }
            return;
        }
        let force = self.sim.below(100) < 10;
        match dead_letter.status() {
            Some(DeadLetterStatus::Pending) => match self.sim.below(100) {
                0..=11 if !is_operator_step(dead_letter) => self.discard(*id).await,
                12..=21 if !is_operator_step(dead_letter) => self.discard_by_mistake(*id).await,
                90..=97 if !is_operator_step(dead_letter) => self.resolve_manually(*id, dead_letter).await,
                22..=39 => {
                    let edited = self.edit_of(*id, dead_letter);
                    self.replay(*id, dead_letter, force, edited).await;
                }
                _ => self.replay(*id, dead_letter, force, None).await,
            },
            Some(DeadLetterStatus::Replaying) if force => self.replay(*id, dead_letter, true, None).await,
            Some(DeadLetterStatus::Discarded) => self.restore(*id).await,
            Some(DeadLetterStatus::ResolvedManually) => self.withdraw_resolution(*id, dead_letter).await,
            Some(DeadLetterStatus::Replaying | DeadLetterStatus::Resolved) | None => {}
        }
    }

    /// Handles dead letters in rounds until none is open, and runs `at_rest` after each round.
    pub async fn handle_dead_letters(&mut self, at_rest: fn(&Self)) {
        self.withdraw_all_resolutions().await;
        for _ in 0..ROUNDS {
            let open = self.open_dead_letters();
            if open.is_empty() {
                return;
            }
            if self.sim.below(4) == 0 {
                self.redrive_all().await;
            } else {
                for (id, dead_letter) in &open {
                    self.handle_dead_letter(*id, dead_letter).await;
                }
            }
            self.wait_until_idle().await;
            at_rest(self);
        }
        let left = self.open_dead_letters().into_iter();
        let left: Vec<_> = left.map(|(id, dead_letter)| (id, dead_letter.status())).collect();
        if !left.is_empty() {
            let broken = format!("dead letters stay open without a cause: {left:?}");
            self.sim.breaks(Law::ReplayReachesItsStep, broken);
        }
    }

    fn open_dead_letters(&self) -> Vec<(Uuid, DeadLetterView)> {
        let open = [Some(DeadLetterStatus::Pending), Some(DeadLetterStatus::Replaying)];
        let mut dead_letters = self.dead_letters();
        dead_letters.retain(|(_, dead_letter)| open.contains(&dead_letter.status()));
        dead_letters
    }

    async fn handle_dead_letter(&mut self, id: Uuid, dead_letter: &DeadLetterView) {
        self.cancel_if_edited(dead_letter).await;
        let force = dead_letter.replays() >= MAX_REPLAYS;
        if dead_letter.status() == Some(DeadLetterStatus::Replaying) {
            // Nothing is in flight any more, so the request got lost.
            return self.replay(id, dead_letter, true, None).await;
        }
        let may_discard = self.sim.profile().discards_some && !is_operator_step(dead_letter);
        match self.sim.below(100) {
            0..=29 if may_discard => self.discard(id).await,
            30..=34 => self.discard_by_mistake(id).await,
            35..=44 => match self.edit_of(id, dead_letter) {
                Some(edited) => self.replay(id, dead_letter, force, Some(edited)).await,
                None => self.replay_or_discard(id, dead_letter, force).await,
            },
            _ => self.replay_or_discard(id, dead_letter, force).await,
        }
    }

    /// Cancels an order whose lines were edited: its confirmation can never be processed.
    async fn cancel_if_edited(&self, dead_letter: &DeadLetterView) {
        let report = dead_letter.report().filter(|report| report.reason.contains(LINES_DIFFER));
        let Some(order) = report.and_then(|report| report.saga) else { return };
        let (id, reason) = (self.sim.fresh_id(), CancelReason::Operator);
        let command = order::service::Command::Cancel { order, reason };
        self.order.ask(&self.sim, (id, order), command, None).await;
    }

    /// Replays a readable dead letter, edits an unreadable one, and discards it if neither works.
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
        let command = CommandKind::Replay(id, Replay { force, version, edited, ..Replay::default() });
        let is_alone = !self.sim.chance(30);
        let other = async { if is_alone { None } else { self.ask_admin(id, command.clone()).await } };
        let (one, other) = tokio::join!(self.ask_admin(id, command.clone()), other);
        let answers = [one, other];
        let granted =
            answers.iter().flatten().filter(|outcome| matches!(outcome, CommandOutcome::Done(_))).count();
        if granted > 1 && !force {
            let broken = format!("two operators replayed dead letter {id} at once");
            self.sim.breaks(Law::ReplayReachesItsStep, broken);
        }
        self.sim.note(|| format!("{id} replayed, force {force}, edited {is_edit}: {granted} granted"));
        self.sim.count_many(CoveragePoint::Replayed, granted as u64);
        self.sim.count_if(CoveragePoint::ReplayForced, force && granted > 0);
        let rejected = answers.iter().flatten().any(|outcome| matches!(outcome, CommandOutcome::Rejected(_)));
        self.sim.count_if(CoveragePoint::SecondOperatorRejected, granted == 1 && rejected);
    }

    /// Extends the deadline of a random order that waits, as while a service is away.
    pub async fn extend_pending_order(&self) {
        let orders = rows::<Order>(self.order.store()).into_iter();
        let pending = orders.filter(|(_, order)| matches!(order, Order::Pending(_)));
        let pending: Vec<Uuid> = pending.filter_map(|(id, _)| id.parse().ok()).collect();
        if !pending.is_empty() {
            self.extend(pending[self.sim.below(pending.len())]).await;
        }
    }

    async fn extend(&self, order: Uuid) {
        let until = self.sim.now().saturating_add(MORE_TIME).unwrap_or(Timestamp::MAX);
        self.sim.note(|| format!("operator extends order {order} until {until}"));
        self.ask_admin(order, CommandKind::Extend { orders: vec![order], until }).await;
    }

    async fn discard(&self, id: Uuid) {
        self.sim.note(|| format!("{id} discarded"));
        self.ask_admin(id, CommandKind::Discard(id)).await;
    }

    /// Discards and restores at once, so that the two commands may overtake each other.
    async fn discard_by_mistake(&self, id: Uuid) {
        self.discard(id).await;
        self.restore(id).await;
    }

    /// Resolves a dead letter and its saga manually. Sometimes withdraws that at once, so that the two
    /// requests may overtake each other.
    async fn resolve_manually(&self, id: Uuid, dead_letter: &DeadLetterView) {
        self.sim.note(|| format!("{id} resolved manually"));
        self.sim.count(CoveragePoint::ResolvedManually);
        self.ask_admin(id, CommandKind::Resolve(Direction::Resolve, self.case(id, dead_letter))).await;
        if self.sim.chance(50) {
            self.withdraw_resolution(id, dead_letter).await;
        }
    }

    async fn withdraw_resolution(&self, id: Uuid, dead_letter: &DeadLetterView) {
        self.sim.note(|| format!("{id}: manual resolution withdrawn"));
        self.ask_admin(id, CommandKind::Resolve(Direction::Withdraw, self.case(id, dead_letter))).await;
    }

    /// A dead letter together with its saga.
    fn case(&self, id: Uuid, dead_letter: &DeadLetterView) -> Resolution {
        let saga = dead_letter.report().and_then(|report| report.saga);
        let views = rows::<SagaView>(self.admin.store()).into_iter();
        let own = views.filter(|(of, _)| saga.is_some_and(|saga| saga.to_string() == *of));
        let blocking = |view: SagaView| view.open_dead_letters().map(|(id, _)| id).collect::<Vec<_>>();
        Resolution {
            target: Target::DeadLetter(id),
            along: saga.map(|saga| Target::Saga(saga, vec![])).into_iter().collect(),
            blocking: own.flat_map(|(_, view)| blocking(view)).collect(),
        }
    }

    /// Withdraws all manual resolutions, since the simulation expects complete orders.
    async fn withdraw_all_resolutions(&self) {
        for (id, dead_letter) in self.dead_letters() {
            if dead_letter.status() == Some(DeadLetterStatus::ResolvedManually) {
                self.withdraw_resolution(id, &dead_letter).await;
            }
        }
        for (saga, view) in rows::<SagaView>(self.admin.store()) {
            if let (Some(_), Ok(saga)) = (view.manual_resolution, saga.parse()) {
                let target = Target::Saga(saga, vec![]);
                let case = Resolution { target, along: vec![], blocking: BTreeSet::new() };
                self.ask_admin(saga, CommandKind::Resolve(Direction::Withdraw, case)).await;
            }
        }
    }

    async fn restore(&self, id: Uuid) {
        self.sim.note(|| format!("{id} restored"));
        self.sim.count(CoveragePoint::Restored);
        self.ask_admin(id, CommandKind::Restore(id)).await;
    }

    /// Runs a command on one of admin's instances; `None` after a time-out.
    pub async fn ask_admin(
        &self,
        saga: Uuid,
        kind: CommandKind,
    ) -> Option<CommandOutcome<Instrumented<AdminService>>> {
        let id = self.sim.fresh_id();
        let by = Actor { operator: "grace".to_owned(), reason: Some("it has to end".to_owned()) };
        self.admin.ask(&self.sim, (id, saga), Command { id, by, kind }, None).await
    }

    /// True if the step could process the message.
    fn is_readable(&self, id: Uuid, dead_letter: &DeadLetterView) -> bool {
        let Some(report) = dead_letter.report() else { return false };
        if report.origin == DeadLetterOrigin::Task {
            return true;
        }
        let envelope = self.payload_of(id).and_then(|payload| Envelope::from_bytes(&payload).ok());
        let message = envelope.and_then(|envelope| envelope.open::<AdminMessage>().ok());
        message
            .zip(Self::step(&report.step))
            .is_some_and(|(message, step)| step.consumes_type(message.fact.message_type().name))
    }

    fn payload_of(&self, id: Uuid) -> Option<Vec<u8>> {
        let announced = announced(&self.history(id)).pop()?;
        BASE64.decode(announced.payload_base64).ok()
    }

    /// Edits a message into a form that the step can read, or replaces it by another that the step has
    /// consumed, which does no harm. The result has an id of its own.
    fn edit_of(&self, id: Uuid, dead_letter: &DeadLetterView) -> Option<EditedMessage> {
        let report = dead_letter.report()?;
        if report.origin == DeadLetterOrigin::Task {
            return None;
        }
        let step = Self::step(&report.step)?;
        let message_id = ids::derived(&["edited", &id.to_string(), &dead_letter.version().to_string()]);
        let payload = self.payload_of(id)?;
        let payload = match readdressed(&payload, message_id, step) {
            // A manual edit may be wrong.
            Some(payload) if self.sim.below(2) == 0 => edited_line(payload),
            Some(payload) => payload,
            None if is_operator_step(dead_letter) => return None,
            None => self.similar_message(message_id, step)?,
        };
        Some(EditedMessage { message_id, payload_base64: BASE64.encode(payload) })
    }

    fn similar_message(&self, message_id: Uuid, step: &'static Step) -> Option<Vec<u8>> {
        let broker = self.broker.lock();
        let all = 0..broker.messages().len();
        let consumed: Vec<usize> =
            all.filter(|index| broker.consumers(*index).contains(&step.name)).collect();
        let index = consumed.get(self.sim.below(consumed.len()))?;
        readdressed(&broker.messages()[*index].facts.first()?.payload, message_id, step)
    }
}

/// Announcements of a dead letter by its service, oldest first.
pub fn announced(history: &[DeadLetterEvent]) -> Vec<DeadLettered> {
    let announced = history.iter().filter_map(|event| {
        if let DeadLetterEvent::Announced(announced) = event { Some((**announced).clone()) } else { None }
    });
    announced.collect()
}

/// True if it belongs to the handling of dead letters itself. Such a dead letter is replayed and never
/// discarded.
pub fn is_operator_step(dead_letter: &DeadLetterView) -> bool {
    let is_operator_step =
        |step: &str| World::step(step).is_some_and(Step::is_for_operators) || step == "admin-dead-letters";
    dead_letter.report().is_some_and(|report| is_operator_step(&report.step))
}

/// Copies a message with another id and the current version; `None` if the step cannot read it.
fn readdressed(payload: &[u8], id: Uuid, step: &Step) -> Option<Vec<u8>> {
    let mut envelope = Envelope::from_bytes(payload).ok()?;
    let message_type = AdminMessage::named(&envelope.message_type)?;
    envelope.version = message_type.version;
    envelope.id = id;
    envelope.open::<AdminMessage>().ok()?;
    step.consumes_type(message_type.name).then(|| serde_json::to_vec(&envelope).ok())?
}
