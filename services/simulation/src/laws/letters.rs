//! Shell: law 8: a replay reaches only the step that failed, and is never swallowed; admin and the services agree
//! about every letter; what was given up stays given up.

use std::collections::{BTreeMap, BTreeSet};

use admin::letters::{Letter, LetterEvent};
use shared::contract::{DeadLettered, LetterOrigin};
use shared::saga::ORDER_SAGA;
use shared::store::{LetterStatus, Store as _, StoredLetter};
use uuid::Uuid;

use super::messages::journal;
use crate::broker::Place;
use crate::endings::Ending;
use crate::node::ready;
use crate::operator::{announced, is_machinery};
use crate::world::World;

/// Whether a letter waits for nobody any more.
const fn is_over(status: Option<LetterStatus>) -> bool {
    matches!(status, Some(LetterStatus::Resolved | LetterStatus::Discarded))
}

/// Where every letter's message was delivered.
#[must_use]
pub fn places(world: &World) -> Vec<Place> {
    let letters = world.letters().into_iter();
    let first = letters.filter_map(|(id, _)| first_announced(&world.history(id)));
    let place = |announced: DeadLettered| {
        let index = usize::try_from(announced.delivery?.sequence).ok()?;
        Some((World::step(&announced.step)?.name, index))
    };
    first.filter_map(place).collect()
}

/// Orders of which something was given up.
#[must_use]
pub fn sagas_given_up(world: &World) -> BTreeSet<Uuid> {
    let letters = world.letters().into_iter();
    let discarded = letters.filter(|(_, letter)| letter.status() == Some(LetterStatus::Discarded));
    discarded.filter_map(|(_, letter)| letter.said()?.saga).collect()
}

/// Whether a letter waits, or was given up, that should undo something of this order.
#[must_use]
pub fn is_compensation_parked(world: &World, order: Uuid) -> bool {
    let undoing: Vec<_> = ORDER_SAGA.iter().filter_map(|stage| stage.undoing_step).collect();
    world.letters().iter().any(|(_, letter)| {
        letter.status() != Some(LetterStatus::Resolved)
            && letter
                .said()
                .is_some_and(|said| said.saga == Some(order) && undoing.contains(&said.step.as_str()))
    })
}

/// At rest, admin and the service that holds a letter say the same of it.
pub fn admin_and_services_agree(world: &mut World) {
    let letters = world.letters();
    // What moves the letters is parked itself: until that is mended, they may well differ.
    if letters.iter().any(|(_, letter)| is_machinery(letter) && !is_over(letter.status())) {
        return;
    }
    let mut stored: BTreeMap<Uuid, StoredLetter> = BTreeMap::new();
    for (_, store) in world.stores() {
        let here = ready(store.dead_letters(10_000)).unwrap_or_default();
        stored.extend(here.into_iter().map(|stored| (stored.letter.id, stored)));
    }
    for (id, letter) in &letters {
        let here = stored.remove(id).map(|stored| stored.status);
        if letter.status() != here {
            let seen = letter.status();
            world.object(format!("law 8: admin has letter {id} {seen:?}, its service {here:?}"));
        }
    }
    for (id, stored) in stored {
        world.object(format!("law 2: letter {id} is parked and nobody was told: {}", stored.letter.reason));
    }
}

/// Law 8: what an operator asked for happened, once, at the step that failed.
pub fn replays_reach_their_step_alone(world: &mut World) {
    let notes: Vec<_> = journal(world).collect();
    for (id, letter) in world.letters() {
        let Some(said) = letter.said() else { continue };
        let history = world.history(id);
        let asked = Asked::of(&history);
        let is_resolved = letter.status() == Some(LetterStatus::Resolved);
        let replays = u64::from(letter.replays()) + u64::from(is_resolved);
        if replays > asked.replays {
            let wanted = asked.replays;
            world.object(format!("law 8: letter {id} was replayed {replays} times, {wanted} were asked for"));
        }
        let elsewhere = |step: &str| step != said.step;
        if let Some(note) =
            notes.iter().find(|note| asked.edited.contains(&note.message) && elsewhere(note.step))
        {
            world.object(format!("law 8: the replay of letter {id} at {} reached {}", said.step, note.step));
        }
        if said.origin != LetterOrigin::Task {
            let Some(first) = first_announced(&history) else { continue };
            let known_as = first.original.map_or(first.message_id, |original| original.message_id);
            let mine = notes.iter().filter(|note| note.step == said.step && note.is_handled());
            let handled =
                mine.filter(|note| note.known_as == known_as || asked.edited.contains(&note.message)).count();
            if handled > 1 && world.weather.has_inbox {
                world.object(format!("law 8: letter {id}: the message and its edit were both handled"));
            }
            if handled == 0 && is_resolved {
                world.object(format!("law 8: letter {id} ended and its message was never handled"));
            }
            if handled > 0 && letter.status() == Some(LetterStatus::Discarded) {
                world.object(format!("law 8: letter {id} was given up, and its message was handled"));
            }
        }
        count(world, &letter, &asked);
    }
}

fn count(world: &mut World, letter: &Letter, asked: &Asked) {
    let Some(said) = letter.said() else { return };
    let is_resolved = letter.status() == Some(LetterStatus::Resolved);
    world.seen.count_many(Ending::ReplayResolved, u64::from(is_resolved));
    world.seen.count_many(Ending::ReplayFailed, letter.replays().into());
    world.seen.count_many(Ending::EditedAndResolved, u64::from(is_resolved && !asked.edited.is_empty()));
    let is_discarded = letter.status() == Some(LetterStatus::Discarded);
    world.seen.count_many(Ending::Discarded, is_discarded.into());
    world.seen.count_many(Ending::RefundParked, u64::from(said.origin == LetterOrigin::Task));
    world.seen.count_many(Ending::WishParked, u64::from(said.step.ends_with("-operations")));
}

/// What operators asked for of one letter.
#[derive(Default)]
struct Asked {
    replays: u64,
    /// Ids of edited messages.
    edited: BTreeSet<Uuid>,
}

impl Asked {
    fn of(history: &[LetterEvent]) -> Self {
        let mut asked = Self::default();
        for event in history {
            match event {
                LetterEvent::Replayed { edited, .. } => {
                    asked.replays += 1;
                    asked.edited.extend(edited.as_ref().map(|edited| edited.message_id));
                }
                LetterEvent::Announced(_)
                | LetterEvent::Resolved(_)
                | LetterEvent::Discarded { .. }
                | LetterEvent::Restored { .. }
                | LetterEvent::Noted { .. } => {}
            }
        }
        asked
    }
}

fn first_announced(history: &[LetterEvent]) -> Option<DeadLettered> {
    announced(history).into_iter().next()
}
