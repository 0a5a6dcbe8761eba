//! Shell: law 8: replays reach only their step and are never swallowed. Admin and the services agree about
//! every dead letter, and a discarded one stays discarded.

use std::collections::{BTreeMap, BTreeSet};

use admin::dead_letters::events::DeadLetterEvent;
use admin::dead_letters::view::DeadLetterView;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use contract::saga::ORDER_SAGA;
use saga_core::dead_letter::{DeadLetterOrigin, DeadLetterStatus, DeadLettered, StoredDeadLetter};
use saga_core::message::Envelope;
use saga_engine::store::roles::Monitoring as _;
use serde_json::Value;
use uuid::Uuid;

use super::messages::handled;
use crate::coverage::CoveragePoint;
use crate::law::Law;
use crate::operator::{announced, is_operator_step};
use crate::sim::ready;
use crate::world::World;

/// True if nobody has to act on the dead letter.
const fn is_over(status: Option<DeadLetterStatus>) -> bool {
    matches!(
        status,
        Some(DeadLetterStatus::Resolved | DeadLetterStatus::Discarded | DeadLetterStatus::ResolvedManually)
    )
}

/// Status in the service: it stores a manually resolved dead letter as discarded.
const fn as_its_service_has_it(status: DeadLetterStatus) -> DeadLetterStatus {
    match status {
        DeadLetterStatus::ResolvedManually => DeadLetterStatus::Discarded,
        DeadLetterStatus::Pending
        | DeadLetterStatus::Replaying
        | DeadLetterStatus::Resolved
        | DeadLetterStatus::Discarded => status,
    }
}

/// Stream positions of all messages that were ever dead-lettered.
#[must_use]
pub fn dead_lettered_messages(world: &World) -> BTreeSet<usize> {
    let dead_letters = world.dead_letters().into_iter();
    let first = dead_letters.filter_map(|(id, _)| first_announced(&world.history(id)));
    first.filter_map(|announced| usize::try_from(announced.delivery?.sequence).ok()).collect()
}

/// Orders with a discarded dead letter.
#[must_use]
pub fn sagas_discarded(world: &World) -> BTreeSet<Uuid> {
    let discarded = |view: &DeadLetterView| view.status() == Some(DeadLetterStatus::Discarded);
    let views = world.dead_letters().into_iter().filter(|(_, view)| discarded(view));
    views.filter_map(|(_, view)| view.report()?.saga).collect()
}

/// Orders with an edited dead letter, which may have changed what was ordered.
#[must_use]
pub fn sagas_edited(world: &World) -> BTreeSet<Uuid> {
    let views = world.dead_letters().into_iter().filter(|(_, view)| view.is_edited());
    views.filter_map(|(_, view)| view.report()?.saga).collect()
}

/// Products with a discarded dead letter.
#[must_use]
pub fn skus_discarded(world: &World) -> BTreeSet<String> {
    let discarded = world.dead_letters().into_iter();
    let discarded = discarded.filter(|(_, view)| view.status() == Some(DeadLetterStatus::Discarded));
    discarded.filter_map(|(id, _)| sku_of(&announced(&world.history(id)).pop()?)).collect()
}

/// Product that a dead-lettered message names.
fn sku_of(dead_letter: &DeadLettered) -> Option<String> {
    let payload = BASE64.decode(&dead_letter.payload_base64).ok()?;
    let data: Value = serde_json::from_str(Envelope::from_bytes(&payload).ok()?.data.get()).ok()?;
    Some(data.get("sku")?.as_str()?.to_owned())
}

/// True if a compensation of the order is dead-lettered or discarded.
#[must_use]
pub fn is_compensation_dead_lettered(world: &World, order: Uuid) -> bool {
    let undoing: Vec<_> = ORDER_SAGA.iter().filter_map(|stage| stage.compensation_step).collect();
    world.dead_letters().iter().any(|(_, view)| {
        view.status() != Some(DeadLetterStatus::Resolved)
            && view
                .report()
                .is_some_and(|said| said.saga == Some(order) && undoing.contains(&said.step.as_str()))
    })
}

/// Checks that admin and the services have the same status of each dead letter.
pub fn check_admin_agrees_with_services(world: &World) {
    let views = world.dead_letters();
    // While commands of operators are dead-lettered themselves, the two may differ.
    if views.iter().any(|(_, view)| is_operator_step(view) && !is_over(view.status())) {
        return;
    }
    let mut stored: BTreeMap<Uuid, StoredDeadLetter> = BTreeMap::new();
    for (_, store) in world.stores() {
        let here = ready(store.dead_letters(10_000)).unwrap_or_default();
        stored.extend(here.readable.into_iter().map(|stored| (stored.dead_letter.id, stored)));
    }
    for (id, view) in &views {
        match stored.remove(id) {
            Some(stored) if view.status().map(as_its_service_has_it) == Some(stored.status) => {}
            // Dead letters processed long ago are purged.
            None if view.status() == Some(DeadLetterStatus::Resolved) && !world.trimmed_until.is_zero() => {}
            other => {
                let (seen, here) = (view.status(), other.map(|stored| stored.status));
                world.sim.breaks(
                    Law::ReplayReachesItsStep,
                    format!("admin has dead letter {id} {seen:?}, its service {here:?}"),
                );
            }
        }
    }
    for (id, stored) in stored {
        let reason = &stored.dead_letter.reason;
        world.sim.breaks(Law::NoMessageLost, format!("dead letter {id} was never announced: {reason}"));
    }
}

/// Law 8: each replay happened once, at the step that failed.
pub fn check_replays(world: &World) {
    let handled = handled(world);
    for (id, view) in world.dead_letters() {
        let Some(said) = view.report() else { continue };
        let history = world.history(id);
        let asked = Asked::of(&history);
        count(world, &view, &asked);
        let is_resolved = view.status() == Some(DeadLetterStatus::Resolved);
        let replays = u64::from(view.replays()) + u64::from(is_resolved);
        if replays > asked.replays {
            let wanted = asked.replays;
            world.sim.breaks(
                Law::ReplayReachesItsStep,
                format!("dead letter {id} was replayed {replays} times, {wanted} were requested"),
            );
        }
        let is_edit_elsewhere = |(step, id): &&(&str, Uuid)| asked.edited.contains(id) && *step != said.step;
        if let Some((step, _)) = handled.iter().find(is_edit_elsewhere) {
            world.sim.breaks(
                Law::ReplayReachesItsStep,
                format!("the replay of {id} at {} reached {step}", said.step),
            );
        }
        if said.origin == DeadLetterOrigin::Task {
            continue;
        }
        let Some(first) = first_announced(&history) else { continue };
        let inbox_id = first.original.map_or(first.message_id, |original| original.message_id);
        let is_it =
            |(step, id): &&(&str, Uuid)| *step == said.step && (*id == inbox_id || asked.edited.contains(id));
        let times = handled.iter().filter(is_it).count();
        if times > 1 && world.sim.profile().has_inbox {
            world.sim.breaks(
                Law::ReplayReachesItsStep,
                format!("dead letter {id}: the message and its edit were both processed"),
            );
        }
        if times == 0 && is_resolved {
            world.sim.breaks(
                Law::ReplayReachesItsStep,
                format!("dead letter {id} is resolved and its message was never processed"),
            );
        }
        if times > 0 && view.status() == Some(DeadLetterStatus::Discarded) {
            world.sim.breaks(
                Law::ReplayReachesItsStep,
                format!("dead letter {id} is discarded and its message was processed"),
            );
        }
    }
}

fn count(world: &World, view: &DeadLetterView, asked: &Asked) {
    let (sim, is_resolved) = (&world.sim, view.status() == Some(DeadLetterStatus::Resolved));
    sim.count_many(CoveragePoint::ReplayResolved, u64::from(is_resolved));
    sim.count_many(CoveragePoint::ReplayFailed, view.replays().into());
    sim.count_many(CoveragePoint::EditedAndResolved, u64::from(is_resolved && !asked.edited.is_empty()));
    sim.count_many(CoveragePoint::Discarded, u64::from(view.status() == Some(DeadLetterStatus::Discarded)));
}

/// Requests of operators about one dead letter.
#[derive(Default)]
struct Asked {
    replays: u64,
    edited: BTreeSet<Uuid>,
}

impl Asked {
    fn of(history: &[DeadLetterEvent]) -> Self {
        let mut asked = Self::default();
        for event in history {
            match event {
                DeadLetterEvent::Replayed { edited, .. } => {
                    asked.replays += 1;
                    asked.edited.extend(edited.as_ref().map(|edited| edited.message_id));
                }
                DeadLetterEvent::Announced(_)
                | DeadLetterEvent::Resolved(_)
                | DeadLetterEvent::Forgotten(_)
                | DeadLetterEvent::Discarded { .. }
                | DeadLetterEvent::Restored { .. }
                | DeadLetterEvent::ResolvedManually { .. }
                | DeadLetterEvent::ResolutionWithdrawn { .. }
                | DeadLetterEvent::Noted { .. } => {}
            }
        }
        asked
    }
}

fn first_announced(history: &[DeadLetterEvent]) -> Option<DeadLettered> {
    announced(history).into_iter().next()
}
