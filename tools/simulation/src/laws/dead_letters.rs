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
const fn status_in_service(status: DeadLetterStatus) -> DeadLetterStatus {
    match status {
        DeadLetterStatus::ResolvedManually => DeadLetterStatus::Discarded,
        DeadLetterStatus::Pending
        | DeadLetterStatus::Replaying
        | DeadLetterStatus::Resolved
        | DeadLetterStatus::Discarded => status,
    }
}

/// Stream positions of all messages that were ever dead-lettered.
pub fn dead_lettered_messages(world: &World) -> BTreeSet<usize> {
    let dead_letters = world.dead_letters().into_iter();
    let first = dead_letters.filter_map(|(id, _)| first_announced(&world.history(id)));
    first.filter_map(|announced| usize::try_from(announced.delivery?.sequence).ok()).collect()
}

/// Orders with a discarded dead letter.
pub fn sagas_discarded(world: &World) -> BTreeSet<Uuid> {
    let discarded = |view: &DeadLetterView| view.status() == Some(DeadLetterStatus::Discarded);
    let views = world.dead_letters().into_iter().filter(|(_, view)| discarded(view));
    views.filter_map(|(_, view)| view.report()?.saga).collect()
}

/// Orders with an edited dead letter, which may have changed what was ordered.
pub fn sagas_edited(world: &World) -> BTreeSet<Uuid> {
    let views = world.dead_letters().into_iter().filter(|(_, view)| view.is_edited());
    views.filter_map(|(_, view)| view.report()?.saga).collect()
}

/// Products with a discarded dead letter.
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
pub fn is_compensation_dead_lettered(world: &World, order: Uuid) -> bool {
    let steps: Vec<_> = ORDER_SAGA.iter().filter_map(|stage| stage.compensation_step).collect();
    world.dead_letters().iter().any(|(_, view)| {
        let is_compensation = view
            .report()
            .is_some_and(|report| report.saga == Some(order) && steps.contains(&report.step.as_str()));
        view.status() != Some(DeadLetterStatus::Resolved) && is_compensation
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
            Some(stored) if view.status().map(status_in_service) == Some(stored.status) => {}
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

/// Guarantee 8: each replay happened once, at the step that failed.
pub fn check_replays(world: &World) {
    let handled = handled(world);
    let must = |holds: bool, broken: &dyn Fn() -> String| {
        if !holds {
            world.sim.breaks(Law::ReplayReachesItsStep, broken());
        }
    };
    for (id, view) in world.dead_letters() {
        let Some(report) = view.report() else { continue };
        let history = world.history(id);
        let requests = Requests::of(&history);
        count(world, &view, &requests);
        let is_resolved = view.status() == Some(DeadLetterStatus::Resolved);
        let replays = u64::from(view.replays()) + u64::from(is_resolved);
        must(replays <= requests.replays, &|| {
            let requested = requests.replays;
            format!("dead letter {id} was replayed {replays} times, {requested} were requested")
        });
        let is_edit_elsewhere =
            |(step, id): &&(&str, Uuid)| requests.edited.contains(id) && *step != report.step;
        let elsewhere = handled.iter().find(is_edit_elsewhere);
        must(elsewhere.is_none(), &|| format!("the replay of {id} at {} reached {elsewhere:?}", report.step));
        if report.origin == DeadLetterOrigin::Task {
            continue;
        }
        let Some(first) = first_announced(&history) else { continue };
        let inbox_id = first.original.map_or(first.message_id, |original| original.message_id);
        let is_own = |(step, id): &&(&str, Uuid)| {
            *step == report.step && (*id == inbox_id || requests.edited.contains(id))
        };
        let times = handled.iter().filter(is_own).count();
        must(times <= 1 || !world.sim.profile().has_inbox, &|| {
            format!("dead letter {id}: the message and its edit were both processed")
        });
        must(times > 0 || !is_resolved, &|| {
            format!("dead letter {id} is resolved and its message was never processed")
        });
        must(times == 0 || view.status() != Some(DeadLetterStatus::Discarded), &|| {
            format!("dead letter {id} is discarded and its message was processed")
        });
    }
}

fn count(world: &World, view: &DeadLetterView, requests: &Requests) {
    let (sim, is_resolved) = (&world.sim, view.status() == Some(DeadLetterStatus::Resolved));
    sim.count_if(CoveragePoint::ReplayResolved, is_resolved);
    sim.count_many(CoveragePoint::ReplayFailed, view.replays().into());
    sim.count_if(CoveragePoint::EditedAndResolved, is_resolved && !requests.edited.is_empty());
    sim.count_if(CoveragePoint::Discarded, view.status() == Some(DeadLetterStatus::Discarded));
}

/// Replays of one dead letter that operators have requested.
#[derive(Default)]
struct Requests {
    replays: u64,
    edited: BTreeSet<Uuid>,
}

impl Requests {
    fn of(history: &[DeadLetterEvent]) -> Self {
        let mut requests = Self::default();
        for event in history {
            if let DeadLetterEvent::Replayed { edited, .. } = event {
                requests.replays += 1;
                requests.edited.extend(edited.as_ref().map(|edited| edited.message_id));
            }
        }
        requests
    }
}

fn first_announced(history: &[DeadLetterEvent]) -> Option<DeadLettered> {
    announced(history).into_iter().next()
}
