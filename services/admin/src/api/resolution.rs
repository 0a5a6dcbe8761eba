//! Shell: the routes of manual resolution, and of its withdrawal: of a saga, of a payment's open call to the bank, and of dead
//! letters. Discrepancies are read at the time of the request, and only those are accepted.

use std::collections::{BTreeMap, BTreeSet};

use admin_api::actor::{Actor, Reason, RequiredReason};
use admin_api::audit_log::Action;
use admin_api::bulk::{BulkOutcome, ChangeMany};
use admin_api::dead_letters::DeadLetterItem;
use admin_api::sagas::SagaItem;
use axum::Json;
use contract::saga_fact::DeadLetterRef;
use contract::saga_view::SagaView;
use saga_core::dead_letter::DeadLetterStatus;
use saga_engine::host::http::Problem;
use saga_engine::store::StoreFault;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::bulk::{BulkSelection, Limit};
use super::extract::{Change, Operator, ReasonRule, required_reason};
use super::sagas::item_of;
use crate::commands::CommandKind;
use crate::dead_letters::item;
use crate::dead_letters::view::DeadLetterView;
use crate::reconciliation::acceptance::{OrderState, states_of};
use crate::resolution::{Direction, Resolution, Target};
use crate::rows;

/// Maximum number of dead letters, as the discrepancies of each saga are read.
const MAX_RESOLVED: Limit = Limit { number: 1_000, otherwise: "narrow it down" };

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new()
        .routes(routes!(resolve_saga))
        .routes(routes!(withdraw_saga))
        .routes(routes!(resolve_payment))
        .routes(routes!(withdraw_payment))
        .routes(routes!(resolve_one))
        .routes(routes!(withdraw_one))
        .routes(routes!(resolve_many))
        .routes(routes!(withdraw_many))
}

/// Resolve a saga manually. It ends as `RESOLVED_MANUALLY`, payment stops calling the bank, its dead letters are resolved with it, and
/// the reconciliation accepts its current discrepancies, and no others. Rejected while the saga can still complete, and when
/// it has ended without discrepancies. Needs a reason.
#[utoipa::path(post, operation_id = "resolve_saga", path = "/api/admin/sagas/{id}/resolve", params(("id" = Uuid, Path), Operator),
    request_body = RequiredReason, responses(
    (status = 200, body = SagaItem), (status = 404), (status = 409), (status = 503),
))]
async fn resolve_saga(
    Change { admin, path: id, operator, body }: Change<Uuid, Reason>,
) -> Result<Json<SagaItem>, Problem> {
    let reason = required_reason(body.reason, ReasonRule::GivesUp)?;
    // Returns 404 before any service is called.
    item_of(&admin, id).await?;
    let states = states_of(&admin.app, &admin.services, &BTreeSet::from([id])).await?;
    admin.resolve_saga(Direction::Resolve, Actor { operator, reason }, id, &states).await.map(Json)
}

/// Withdraw the manual resolution of a saga. It is open again with its dead letters, and payment calls the bank again. Needs a
/// reason.
#[utoipa::path(post, operation_id = "withdraw_resolution_of_saga", path = "/api/admin/sagas/{id}/withdraw-resolution", params(("id" = Uuid, Path), Operator),
    request_body = RequiredReason, responses(
    (status = 200, body = SagaItem), (status = 404), (status = 409),
))]
async fn withdraw_saga(
    Change { admin, path: id, operator, body }: Change<Uuid, Reason>,
) -> Result<Json<SagaItem>, Problem> {
    let reason = required_reason(body.reason, ReasonRule::Forces)?;
    admin.resolve_saga(Direction::Withdraw, Actor { operator, reason }, id, &BTreeMap::new()).await.map(Json)
}

/// Resolve a payment's open call to the bank manually, a refund or a reversal, as for its saga. Rejected without such a call.
/// Needs a reason.
#[utoipa::path(post, operation_id = "resolve_payment", path = "/api/admin/payments/{order}/resolve", params(("order" = Uuid, Path), Operator),
    request_body = RequiredReason, responses(
    (status = 200, body = SagaItem), (status = 404), (status = 409), (status = 503),
))]
async fn resolve_payment(
    Change { admin, path: order, operator, body }: Change<Uuid, Reason>,
) -> Result<Json<SagaItem>, Problem> {
    let reason = required_reason(body.reason, ReasonRule::GivesUp)?;
    let saga = item_of(&admin, order).await?;
    let states = states_of(&admin.app, &admin.services, &BTreeSet::from([order])).await?;
    if !states.get(&order).is_some_and(|state| state.has_open_call) {
        let advice = match blocked_payment(&admin, &saga).await? {
            None => "there is nothing to resolve".to_owned(),
            Some(blocked) => {
                format!("{blocked}, or resolve the saga: sagactl saga resolve {order} --reason \"…\"")
            }
        };
        return Err(Problem::conflict(format!(
            "payment has no open call to the bank for this order: {advice}"
        )));
    }
    admin.resolve_saga(Direction::Resolve, Actor { operator, reason }, order, &states).await.map(Json)
}

/// Describes the first dead letter of payment that blocks a saga, and what to do with it.
async fn blocked_payment(admin: &Admin, saga: &SagaItem) -> Result<Option<String>, Problem> {
    for DeadLetterRef { dead_letter: id, .. } in &saga.dead_letters {
        let dead_letter = match rows::row::<DeadLetterView>(admin.app.store.as_ref(), id).await {
            Ok(dead_letter) => dead_letter.unwrap_or_default(),
            Err(StoreFault::Unusable(_)) => continue,
            Err(fault) => return Err(fault.into()),
        };
        if dead_letter.report().is_none_or(|report| report.service != "payment") {
            continue;
        }
        let advice = match dead_letter.status() {
            Some(DeadLetterStatus::Pending) => format!("blocks it; replay it: sagactl dlq replay {id}"),
            Some(DeadLetterStatus::Replaying) => "is being replayed; wait for the outcome".to_owned(),
            Some(DeadLetterStatus::Discarded) => {
                format!(
                    "is discarded; restore it, then replay it: sagactl dlq restore {id} && sagactl dlq replay {id}"
                )
            }
            Some(DeadLetterStatus::Resolved | DeadLetterStatus::ResolvedManually) | None => continue,
        };
        return Ok(Some(format!("dead letter {id} {advice}")));
    }
    Ok(None)
}

/// Withdraw the manual resolution of a payment, as for its saga. Needs a reason.
#[utoipa::path(post, operation_id = "withdraw_resolution_of_payment", path = "/api/admin/payments/{order}/withdraw-resolution", params(("order" = Uuid, Path), Operator),
    request_body = RequiredReason, responses(
    (status = 200, body = SagaItem), (status = 404), (status = 409),
))]
async fn withdraw_payment(change: Change<Uuid, Reason>) -> Result<Json<SagaItem>, Problem> {
    withdraw_saga(change).await
}

/// Resolve a dead letter manually: its work was done by other means. The saga is resolved with its last dead letter. Needs a
/// reason.
#[utoipa::path(post, operation_id = "resolve_dead_letter", path = "/api/admin/dlq/{id}/resolve", params(("id" = Uuid, Path), Operator),
    request_body = RequiredReason, responses(
    (status = 200, body = DeadLetterItem), (status = 404), (status = 409), (status = 503),
))]
async fn resolve_one(
    Change { admin, path: id, operator, body }: Change<Uuid, Reason>,
) -> Result<Json<DeadLetterItem>, Problem> {
    let reason = required_reason(body.reason, ReasonRule::GivesUp)?;
    admin.resolve_dead_letter(Direction::Resolve, Actor { operator, reason }, id).await.map(Json)
}

/// Withdraw the manual resolution of a dead letter. It is pending again, and its saga is open again. Needs a reason.
#[utoipa::path(post, operation_id = "withdraw_resolution_of_dead_letter", path = "/api/admin/dlq/{id}/withdraw-resolution", params(("id" = Uuid, Path), Operator),
    request_body = RequiredReason, responses(
    (status = 200, body = DeadLetterItem), (status = 404), (status = 409),
))]
async fn withdraw_one(
    Change { admin, path: id, operator, body }: Change<Uuid, Reason>,
) -> Result<Json<DeadLetterItem>, Problem> {
    let reason = required_reason(body.reason, ReasonRule::Forces)?;
    admin.resolve_dead_letter(Direction::Withdraw, Actor { operator, reason }, id).await.map(Json)
}

/// Resolve many dead letters manually, at most 1000 at once.
#[utoipa::path(post, operation_id = "resolve_dead_letters", path = "/api/admin/dlq/resolve", params(Operator), request_body = ChangeMany, responses(
    (status = 200, body = BulkOutcome), (status = 503),
))]
async fn resolve_many(
    Change { admin, path: (), operator, body }: Change<(), ChangeMany>,
) -> Result<Json<BulkOutcome>, Problem> {
    let reason = required_reason(body.reason, ReasonRule::GivesUp)?;
    let selection =
        BulkSelection::of(body.ids, body.filter, &[DeadLetterStatus::Pending], MAX_RESOLVED, &admin).await?;
    admin
        .resolve_dead_letters(Direction::Resolve, Actor { operator, reason }, Action::ResolveMany, selection)
        .await
}

/// Withdraw the manual resolution of many dead letters, at most 1000 at once.
#[utoipa::path(post, operation_id = "withdraw_resolution_of_dead_letters", path = "/api/admin/dlq/withdraw-resolution", params(Operator), request_body = ChangeMany, responses(
    (status = 200, body = BulkOutcome),
))]
async fn withdraw_many(
    Change { admin, path: (), operator, body }: Change<(), ChangeMany>,
) -> Result<Json<BulkOutcome>, Problem> {
    let reason = required_reason(body.reason, ReasonRule::Forces)?;
    let selection =
        BulkSelection::of(body.ids, body.filter, &[DeadLetterStatus::ResolvedManually], MAX_RESOLVED, &admin)
            .await?;
    admin
        .resolve_dead_letters(
            Direction::Withdraw,
            Actor { operator, reason },
            Action::WithdrawResolutionMany,
            selection,
        )
        .await
}

impl Admin {
    async fn resolve_saga(
        &self,
        direction: Direction,
        by: Actor,
        id: Uuid,
        states: &BTreeMap<Uuid, OrderState>,
    ) -> Result<SagaItem, Problem> {
        let view = rows::row::<SagaView>(self.app.store.as_ref(), id).await?.unwrap_or_default();
        let along =
            view.open_dead_letters().map(|(dead_letter, _)| Target::DeadLetter(dead_letter)).collect();
        let resolution = Resolution { target: saga(id, states), along, blocking: BTreeSet::new() };
        self.ask(by, CommandKind::Resolve(direction, resolution)).await?;
        item_of(self, id).await
    }

    async fn resolve_dead_letter(
        &self,
        direction: Direction,
        by: Actor,
        id: Uuid,
    ) -> Result<DeadLetterItem, Problem> {
        let mut resolutions = self.resolutions_of(direction, &[id]).await?;
        let resolution = resolutions.remove(&id).ok_or_else(|| Problem::not_found("such dead letter"))?;
        self.ask(by, CommandKind::Resolve(direction, resolution)).await?;
        let changed = rows::row::<DeadLetterView>(self.app.store.as_ref(), id).await?;
        let item = changed.and_then(|dead_letter| item::item_of(id, &dead_letter));
        item.ok_or_else(|| Problem::internal(&"a changed dead letter that does not exist"))
    }

    async fn resolve_dead_letters(
        &self,
        direction: Direction,
        by: Actor,
        action: Action,
        selection: BulkSelection,
    ) -> Result<Json<BulkOutcome>, Problem> {
        let resolutions = self.resolutions_of(direction, &selection.ids).await?;
        let entry = selection.entry;
        let part = |ids: Vec<Uuid>| {
            let resolutions = ids.iter().filter_map(|id| resolutions.get(id).cloned()).collect();
            CommandKind::ResolveMany { direction, resolutions, entry }
        };
        self.change_each(by, action, selection, part).await
    }

    /// Returns the resolution of each dead letter. It takes its saga along, if it is the last that blocks it; a withdrawal
    /// takes the saga along with the first.
    async fn resolutions_of(
        &self,
        direction: Direction,
        ids: &[Uuid],
    ) -> Result<BTreeMap<Uuid, Resolution>, Problem> {
        let (mut resolutions, mut by_saga) = (BTreeMap::new(), BTreeMap::<Uuid, Vec<Uuid>>::new());
        for id in ids {
            let target = Target::DeadLetter(*id);
            resolutions.insert(*id, Resolution { target, along: vec![], blocking: BTreeSet::new() });
            let dead_letter = rows::row::<DeadLetterView>(self.app.store.as_ref(), id).await?;
            if let Some(of) = dead_letter.and_then(|dead_letter| dead_letter.report()?.saga) {
                by_saga.entry(of).or_default().push(*id);
            }
        }
        let mut complete = BTreeMap::new();
        for (of, dead_letters) in &by_saga {
            match direction {
                Direction::Resolve => {
                    complete.extend(self.last_of(*of, dead_letters).await?.map(|last| (*of, last)));
                }
                Direction::Withdraw => {
                    for id in dead_letters {
                        let along = saga(*of, &BTreeMap::new());
                        resolutions.entry(*id).and_modify(|resolution| resolution.along.push(along));
                    }
                }
            }
        }
        let states = states_of(&self.app, &self.services, &complete.keys().copied().collect()).await?;
        for (of, (last, blocking)) in complete {
            resolutions.entry(last).and_modify(|resolution| {
                resolution.along.push(saga(of, &states));
                resolution.blocking = blocking;
            });
        }
        Ok(resolutions)
    }

    /// Returns the last of these dead letters that blocks a saga, and all that do; `None` when another one waits.
    async fn last_of(&self, saga: Uuid, ids: &[Uuid]) -> Result<Option<(Uuid, BTreeSet<Uuid>)>, Problem> {
        let store = self.app.store.as_ref();
        let view = rows::row::<SagaView>(store, saga).await?.unwrap_or_default();
        let blocking: BTreeSet<Uuid> = view.open_dead_letters().map(|(id, _)| id).collect();
        let mut waiting = BTreeSet::new();
        for id in &blocking {
            match rows::row::<DeadLetterView>(store, id).await.map(Option::unwrap_or_default) {
                Ok(dead_letter) if !dead_letter.waits() => {}
                Ok(_) if ids.contains(id) => {
                    waiting.insert(*id);
                }
                // A damaged dead letter cannot be resolved.
                Ok(_) | Err(StoreFault::Unusable(_)) => return Ok(None),
                Err(fault) => return Err(fault.into()),
            }
        }
        let last = ids.iter().rev().find(|id| waiting.contains(id));
        Ok(last.map(|last| (*last, blocking)))
    }
}

/// Returns a saga with its discrepancies, as far as they are known.
fn saga(id: Uuid, states: &BTreeMap<Uuid, OrderState>) -> Target {
    Target::Saga(id, states.get(&id).map(|state| state.accepted.clone()).unwrap_or_default())
}
