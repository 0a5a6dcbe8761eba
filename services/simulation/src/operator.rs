//! Shell: operators: they look at admin's dead letters and replay, edit, give up and take up again, two of them
//! at once now and then, while the world is rough; in the end one of them mends everything.

use admin::commands::{Command, Wish};
use admin::letters::{By, Letter, LetterEvent};
use admin::policy::AdminService;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use shared::contract::{DeadLettered, EditedMessage, FactType, LetterOrigin};
use shared::engine::{Input, Outcome};
use shared::envelope::Envelope;
use shared::ids;
use shared::row::RowKey;
use shared::service::Step;
use shared::store::{LetterStatus, Query, Store as _};
use uuid::Uuid;

use crate::endings::Ending;
use crate::laws;
use crate::node::{Committed, ready};
use crate::world::World;

/// Looks of the operator who mends; a letter that is not handled by then never will be.
const LOOKS: usize = 12;

impl World {
    /// Admin's dead letters, whatever became of them.
    #[must_use]
    pub fn letters(&self) -> Vec<(Uuid, Letter)> {
        let query = Query { limit: 10_000, ..Query::default() };
        let rows = ready(self.admin.store.find("dead_letter_view", query)).unwrap_or_default();
        let letter = |row: shared::store::FoundRow| {
            Some((row.id.parse().ok()?, serde_json::from_str(&row.state).ok()?))
        };
        rows.into_iter().filter_map(letter).collect()
    }

    /// What happened to a dead letter, as admin has it, oldest first.
    #[must_use]
    pub fn history(&self, letter: Uuid) -> Vec<LetterEvent> {
        let events = ready(self.admin.store.events(RowKey::of::<Letter>(letter))).unwrap_or_default();
        events.into_iter().filter_map(|event| serde_json::from_str(&event.data).ok()).collect()
    }

    /// Does something with one of the letters; two operators may want the same at once.
    pub(crate) fn operate(&mut self) {
        let letters = self.letters();
        if letters.is_empty() {
            return;
        }
        let (id, letter) = &letters[self.rng.usize(0..letters.len())];
        let force = self.rng.u8(0..100) < 10;
        match letter.status() {
            Some(LetterStatus::Pending) => match self.rng.u8(0..100) {
                0..=11 if !is_machinery(letter) => self.discard(*id),
                12..=21 if !is_machinery(letter) => self.discard_by_mistake(*id),
                22..=39 => match self.edit_of(*id, letter) {
                    Some(edited) => self.replay(*id, letter, force, Some(edited)),
                    None => self.replay(*id, letter, force, None),
                },
                _ => self.replay(*id, letter, force, None),
            },
            Some(LetterStatus::Replaying) if force => self.replay(*id, letter, true, None),
            Some(LetterStatus::Discarded) => self.restore(*id),
            Some(LetterStatus::Replaying | LetterStatus::Resolved) | None => {}
        }
        if self.chance(self.weather.dies) {
            self.admin.crash(self.now);
        }
    }

    /// Handles every letter, look by look, until none waits.
    pub fn mend(&mut self) {
        for _ in 0..LOOKS {
            let open = [Some(LetterStatus::Pending), Some(LetterStatus::Replaying)];
            let letters: Vec<_> =
                self.letters().into_iter().filter(|(_, letter)| open.contains(&letter.status())).collect();
            if letters.is_empty() {
                return;
            }
            for (id, letter) in &letters {
                self.mend_one(*id, letter);
            }
            self.come_to_rest();
            laws::letters::admin_and_services_agree(self);
        }
        let left = self.letters().into_iter().filter(|(_, letter)| {
            matches!(letter.status(), Some(LetterStatus::Pending | LetterStatus::Replaying))
        });
        let left: Vec<_> = left.map(|(id, letter)| (id, letter.status())).collect();
        self.object(format!("law 8: not handled although its cause was mended: {left:?}"));
    }

    fn mend_one(&mut self, id: Uuid, letter: &Letter) {
        let force = letter.replays() >= admin::letters::MOST_REPLAYS;
        if letter.status() == Some(LetterStatus::Replaying) {
            // Nothing is under way any more, so the request got lost.
            self.replay(id, letter, true, None);
            return;
        }
        let may_go = self.weather.discards_some && !is_machinery(letter);
        match self.rng.u8(0..100) {
            0..=29 if may_go => self.discard(id),
            30..=34 => self.discard_by_mistake(id),
            35..=44 => match self.edit_of(id, letter) {
                Some(edited) => self.replay(id, letter, force, Some(edited)),
                None => self.replay_or_discard(id, letter, force),
            },
            _ => self.replay_or_discard(id, letter, force),
        }
    }

    /// Replays what can be read, edits what cannot, and gives up what nothing can be made of.
    fn replay_or_discard(&mut self, id: Uuid, letter: &Letter, force: bool) {
        if self.is_readable(id, letter) {
            self.replay(id, letter, force, None);
        } else if let Some(edited) = self.edit_of(id, letter) {
            self.replay(id, letter, force, Some(edited));
        } else {
            self.discard(id);
        }
    }

    fn replay(&mut self, id: Uuid, letter: &Letter, force: bool, edited: Option<EditedMessage>) {
        let version = (!force).then(|| letter.version());
        let operators = if self.chance(30) { 2 } else { 1 };
        let is_edit = edited.is_some();
        let wish = Wish::Replay { letter: id, force, version, edited };
        let Some(committed) = self.ask_admin(vec![wish; operators]) else {
            return;
        };
        let granted = committed.outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Done(_))).count();
        if granted > 1 && !force {
            self.object(format!("law 8: two operators replayed letter {id} at once"));
        }
        self.note(|| {
            format!("letter {id} replayed, force {force}, edited {is_edit}: {granted} of {operators}")
        });
        self.seen.count_many(Ending::Replayed, granted as u64);
        self.seen.count_many(Ending::ReplayForced, u64::from(force && granted > 0));
        self.seen.count_many(Ending::SecondOperatorRefused, u64::from(granted == 1 && operators == 2));
    }

    fn discard(&mut self, letter: Uuid) {
        self.note(|| format!("letter {letter} discarded"));
        self.ask_admin(vec![Wish::Discard(letter)]);
    }

    /// Given up and taken up again at once: the two wishes may well overtake each other.
    fn discard_by_mistake(&mut self, letter: Uuid) {
        self.discard(letter);
        self.restore(letter);
    }

    fn restore(&mut self, letter: Uuid) {
        self.note(|| format!("letter {letter} restored"));
        self.seen.count(Ending::Restored);
        self.ask_admin(vec![Wish::Restore(letter)]);
    }

    fn ask_admin(&mut self, wishes: Vec<Wish>) -> Option<Committed<AdminService>> {
        let mut inputs = Vec::new();
        for wish in wishes {
            let id = self.fresh_id();
            let by = By { operator: "grace".to_owned(), reason: Some("it has to end".to_owned()) };
            inputs.push(Input::command(id, id, Command { id, by, wish }, None));
        }
        self.admin.commit(inputs, self.now).ok()
    }

    /// Whether the step could handle what is parked.
    fn is_readable(&self, id: Uuid, letter: &Letter) -> bool {
        let Some(said) = letter.said() else { return false };
        if said.origin == LetterOrigin::Task {
            return true;
        }
        let message =
            self.payload_of(id).and_then(|payload| Envelope::from_bytes(&payload).ok()?.open().ok());
        let step = Self::step(&said.step);
        message.zip(step).is_some_and(|(message, step)| step.is_told(message.fact.fact_type()))
    }

    /// What was parked last.
    fn payload_of(&self, id: Uuid) -> Option<Vec<u8>> {
        let announced = announced(&self.history(id)).pop()?;
        BASE64.decode(announced.payload_base64).ok()
    }

    /// The same message in a form that the step can read, or another one that it has heard already: that does no
    /// harm. Always under an id of its own.
    fn edit_of(&mut self, id: Uuid, letter: &Letter) -> Option<EditedMessage> {
        let said = letter.said()?;
        if said.origin == LetterOrigin::Task {
            return None;
        }
        let step = Self::step(&said.step)?;
        let message_id = ids::derived(&["edited", &id.to_string(), &letter.version().to_string()]);
        let payload = self.payload_of(id)?;
        let payload = match reworded(&payload, message_id, step) {
            Some(payload) => payload,
            None if is_machinery(letter) => return None,
            None => self.something_like_it(message_id, step)?,
        };
        Some(EditedMessage { message_id, payload_base64: BASE64.encode(payload) })
    }

    fn something_like_it(&mut self, message_id: Uuid, step: &'static Step) -> Option<Vec<u8>> {
        let heard: Vec<usize> =
            (0..self.broker.len()).filter(|index| self.broker.hearers(*index).contains(&step.name)).collect();
        let index = heard.get(self.rng.usize(0..heard.len().max(1)))?;
        reworded(&self.broker.message(*index).payload.clone(), message_id, step)
    }

    /// A step of whatever service.
    pub(crate) fn step(name: &str) -> Option<&'static Step> {
        let all = Self::all_declared().into_iter().flatten();
        all.into_iter().find(|step| step.name == name)
    }
}

/// What its service said of a letter, each time that it was parked, oldest first.
#[must_use]
pub fn announced(history: &[LetterEvent]) -> Vec<DeadLettered> {
    let announced = history.iter().filter_map(|event| match event {
        LetterEvent::Announced(announced) => Some((**announced).clone()),
        LetterEvent::Resolved(_)
        | LetterEvent::Replayed { .. }
        | LetterEvent::Discarded { .. }
        | LetterEvent::Restored { .. }
        | LetterEvent::Noted { .. } => None,
    });
    announced.collect()
}

/// Whether it belongs to what moves dead letters: that is replayed, and never given up.
#[must_use]
pub fn is_machinery(letter: &Letter) -> bool {
    letter.said().is_some_and(|said| said.step.ends_with("-operations") || said.step == "admin-dead-letters")
}

/// The message under another id, in the version that this build reads; `None` when the step cannot read it then.
fn reworded(payload: &[u8], id: Uuid, step: &Step) -> Option<Vec<u8>> {
    let mut envelope = Envelope::from_bytes(payload).ok()?;
    let fact_type = FactType::named(&envelope.message_type)?;
    envelope.version = fact_type.version();
    envelope.id = id;
    envelope.open().ok()?;
    step.is_told(fact_type).then(|| serde_json::to_vec(&envelope).ok())?
}
