//! Shell: the routes that settle something outside, and take that back: a saga, the call to the bank that it waits for,
//! or dead letters. What does not add up is looked up when it is asked for: that is accepted, and no more.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use contract::saga_view::SagaView;
use saga_core::dead_letter::DeadLetterStatus;
use saga_engine::host::http::Problem;
use saga_engine::store::StoreFault;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::extract::{Because, Change, NeededWhy, Operator, Why, needed};
use super::many::{ChangeMany, Meant, Most};
use super::sagas::{SagaItem, item_of};
use crate::audit_log::Action;
use crate::commands::{CommandKind, Many};
use crate::dead_letter::item::DeadLetterItem;
use crate::dead_letter::view::DeadLetterView;
use crate::reconciliation::settling::{Known, known_of};
use crate::request::By;
use crate::rows;
use crate::settling::{Case, Named, Settling};

/// Dead letters that are settled at once: of each the saga's books are looked at.
const MOST_SETTLED: Most = Most { number: 1_000, otherwise: "narrow it down" };

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new()
        .routes(routes!(settle_saga))
        .routes(routes!(unsettle_saga))
        .routes(routes!(settle_payment))
        .routes(routes!(unsettle_payment))
        .routes(routes!(settle_one))
        .routes(routes!(unsettle_one))
        .routes(routes!(settle_many))
        .routes(routes!(unsettle_many))
}

/// Settle outside what a saga still waits for, which needs a reason: it ends as `SETTLED`, nobody is asked for the rest
/// (payment asks the bank no more), the dead letters in its way are settled with it, and the audit accepts what does
/// not add up of it now, and no more. Refused while it goes on by itself, and when it has ended and its books balance.
#[utoipa::path(post, operation_id = "settle_saga", path = "/api/admin/sagas/{id}/settle", params(("id" = Uuid, Path), Operator),
    request_body = NeededWhy, responses(
    (status = 200, body = SagaItem), (status = 404), (status = 409), (status = 503),
))]
async fn settle_saga(
    Change { admin, path: id, operator, body }: Change<Uuid, Why>,
) -> Result<Json<SagaItem>, Problem> {
    let reason = needed(body.reason, Because::GivesUp)?;
    // Nobody is asked about what there is not.
    item_of(&admin, id).await?;
    let known = known_of(&admin.app, &admin.services, &BTreeSet::from([id])).await?;
    admin.settle_saga(Settling::Settle, By { operator, reason }, id, &known).await.map(Json)
}

/// Take back that a saga was settled outside, which needs a reason: it stands where it stood, or where it has come
/// since, with the dead letters in its way; what payment was asking the bank for it asks again.
#[utoipa::path(post, operation_id = "unsettle_saga", path = "/api/admin/sagas/{id}/unsettle", params(("id" = Uuid, Path), Operator),
    request_body = NeededWhy, responses(
    (status = 200, body = SagaItem), (status = 404), (status = 409),
))]
async fn unsettle_saga(
    Change { admin, path: id, operator, body }: Change<Uuid, Why>,
) -> Result<Json<SagaItem>, Problem> {
    let reason = needed(body.reason, Because::Forces)?;
    admin.settle_saga(Settling::Unsettle, By { operator, reason }, id, &BTreeMap::new()).await.map(Json)
}

/// Settle outside what payment asks the bank for an order, a refund or a reversal, which needs a reason: as for its
/// saga, and refused when no such call is open.
#[utoipa::path(post, operation_id = "settle_payment", path = "/api/admin/payments/{order}/settle", params(("order" = Uuid, Path), Operator),
    request_body = NeededWhy, responses(
    (status = 200, body = SagaItem), (status = 404), (status = 409), (status = 503),
))]
async fn settle_payment(
    Change { admin, path: order, operator, body }: Change<Uuid, Why>,
) -> Result<Json<SagaItem>, Problem> {
    let reason = needed(body.reason, Because::GivesUp)?;
    item_of(&admin, order).await?;
    let known = known_of(&admin.app, &admin.services, &BTreeSet::from([order])).await?;
    if !known.get(&order).is_some_and(|known| known.has_open_call) {
        return Err(Problem::conflict(
            "payment asks the bank for nothing of this order: there is nothing to settle",
        ));
    }
    admin.settle_saga(Settling::Settle, By { operator, reason }, order, &known).await.map(Json)
}

/// Take back that what payment asks the bank for an order was settled outside, which needs a reason: as for its saga.
#[utoipa::path(post, operation_id = "unsettle_payment", path = "/api/admin/payments/{order}/unsettle", params(("order" = Uuid, Path), Operator),
    request_body = NeededWhy, responses(
    (status = 200, body = SagaItem), (status = 404), (status = 409),
))]
async fn unsettle_payment(change: Change<Uuid, Why>) -> Result<Json<SagaItem>, Problem> {
    unsettle_saga(change).await
}

/// Settle a dead letter outside, which needs a reason: what it stands for was done in another way. When nothing else is
/// in its saga's way, the saga is settled with it.
#[utoipa::path(post, operation_id = "settle_dead_letter", path = "/api/admin/dlq/{id}/settle", params(("id" = Uuid, Path), Operator),
    request_body = NeededWhy, responses(
    (status = 200, body = DeadLetterItem), (status = 404), (status = 409), (status = 503),
))]
async fn settle_one(
    Change { admin, path: id, operator, body }: Change<Uuid, Why>,
) -> Result<Json<DeadLetterItem>, Problem> {
    let reason = needed(body.reason, Because::GivesUp)?;
    admin.settle_dead_letter(Settling::Settle, By { operator, reason }, id).await.map(Json)
}

/// Take back that a dead letter was settled outside, which needs a reason: it waits for somebody again, and so does its
/// saga, if that was settled too.
#[utoipa::path(post, operation_id = "unsettle_dead_letter", path = "/api/admin/dlq/{id}/unsettle", params(("id" = Uuid, Path), Operator),
    request_body = NeededWhy, responses(
    (status = 200, body = DeadLetterItem), (status = 404), (status = 409),
))]
async fn unsettle_one(
    Change { admin, path: id, operator, body }: Change<Uuid, Why>,
) -> Result<Json<DeadLetterItem>, Problem> {
    let reason = needed(body.reason, Because::Forces)?;
    admin.settle_dead_letter(Settling::Unsettle, By { operator, reason }, id).await.map(Json)
}

/// Settle many dead letters outside, at most 1000 at once.
#[utoipa::path(post, operation_id = "settle_dead_letters", path = "/api/admin/dlq/settle", params(Operator), request_body = ChangeMany, responses(
    (status = 200, body = Many), (status = 503),
))]
async fn settle_many(
    Change { admin, path: (), operator, body }: Change<(), ChangeMany>,
) -> Result<Json<Many>, Problem> {
    let reason = needed(body.reason, Because::GivesUp)?;
    let meant = Meant::of(body.ids, body.filter, &[DeadLetterStatus::Pending], MOST_SETTLED, &admin).await?;
    admin.settle_dead_letters(Settling::Settle, By { operator, reason }, Action::SettleMany, meant).await
}

/// Take back that many dead letters were settled outside, at most 1000 at once.
#[utoipa::path(post, operation_id = "unsettle_dead_letters", path = "/api/admin/dlq/unsettle", params(Operator), request_body = ChangeMany, responses(
    (status = 200, body = Many),
))]
async fn unsettle_many(
    Change { admin, path: (), operator, body }: Change<(), ChangeMany>,
) -> Result<Json<Many>, Problem> {
    let reason = needed(body.reason, Because::Forces)?;
    let meant =
        Meant::of(body.ids, body.filter, &[DeadLetterStatus::ResolvedManually], MOST_SETTLED, &admin).await?;
    admin.settle_dead_letters(Settling::Unsettle, By { operator, reason }, Action::UnsettleMany, meant).await
}

impl Admin {
    async fn settle_saga(
        &self,
        settling: Settling,
        by: By,
        id: Uuid,
        known: &BTreeMap<Uuid, Known>,
    ) -> Result<SagaItem, Problem> {
        let view = rows::row::<SagaView>(self.app.store.as_ref(), id).await?.unwrap_or_default();
        let with = view.open_dead_letters().map(|(dead_letter, _)| Named::DeadLetter(dead_letter)).collect();
        let case = Case { named: saga(id, known), with, in_the_way: BTreeSet::new() };
        self.ask(by, CommandKind::Settle(settling, case)).await?;
        item_of(self, id).await
    }

    async fn settle_dead_letter(
        &self,
        settling: Settling,
        by: By,
        id: Uuid,
    ) -> Result<DeadLetterItem, Problem> {
        let mut cases = self.cases_of(settling, &[id]).await?;
        let case = cases.remove(&id).ok_or_else(|| Problem::not_found("such dead letter"))?;
        self.ask(by, CommandKind::Settle(settling, case)).await?;
        let settled = rows::row::<DeadLetterView>(self.app.store.as_ref(), id).await?;
        let item = settled.and_then(|dead_letter| DeadLetterItem::of(id, &dead_letter));
        item.ok_or_else(|| Problem::internal(&"a changed dead letter that is none"))
    }

    async fn settle_dead_letters(
        &self,
        settling: Settling,
        by: By,
        action: Action,
        meant: Meant,
    ) -> Result<Json<Many>, Problem> {
        let cases = self.cases_of(settling, &meant.ids).await?;
        let entry = meant.entry;
        let part = |ids: Vec<Uuid>| {
            let cases = ids.iter().filter_map(|id| cases.get(id).cloned()).collect();
            CommandKind::SettleMany { settling, cases, entry }
        };
        self.of_each(by, action, meant, part).await
    }

    /// What each of these dead letters means: it, and its saga. A saga is settled with the last that is in its way, if
    /// nothing else is, and taken up again with the first.
    async fn cases_of(&self, settling: Settling, ids: &[Uuid]) -> Result<BTreeMap<Uuid, Case>, Problem> {
        let (mut cases, mut letters) = (BTreeMap::new(), BTreeMap::<Uuid, Vec<Uuid>>::new());
        for id in ids {
            let named = Named::DeadLetter(*id);
            cases.insert(*id, Case { named, with: vec![], in_the_way: BTreeSet::new() });
            let dead_letter = rows::row::<DeadLetterView>(self.app.store.as_ref(), id).await?;
            if let Some(of) = dead_letter.and_then(|dead_letter| dead_letter.said()?.saga) {
                letters.entry(of).or_default().push(*id);
            }
        }
        let mut go = BTreeMap::new();
        for (of, letters) in &letters {
            match settling {
                Settling::Settle => go.extend(self.last_of(*of, letters).await?.map(|last| (*of, last))),
                Settling::Unsettle => {
                    for id in letters {
                        cases.entry(*id).and_modify(|case| case.with.push(saga(*of, &BTreeMap::new())));
                    }
                }
            }
        }
        let known = known_of(&self.app, &self.services, &go.keys().copied().collect()).await?;
        for (of, (last, in_the_way)) in go {
            cases.entry(last).and_modify(|case| {
                case.with.push(saga(of, &known));
                case.in_the_way = in_the_way;
            });
        }
        Ok(cases)
    }

    /// The last of these dead letters that is in the way of this saga, and all that are; `None` when another waits there
    /// for somebody, or for its replay to end.
    async fn last_of(&self, saga: Uuid, ids: &[Uuid]) -> Result<Option<(Uuid, BTreeSet<Uuid>)>, Problem> {
        let store = self.app.store.as_ref();
        let view = rows::row::<SagaView>(store, saga).await?.unwrap_or_default();
        let in_the_way: BTreeSet<Uuid> = view.open_dead_letters().map(|(id, _)| id).collect();
        let mut waiting = BTreeSet::new();
        for id in &in_the_way {
            match rows::row::<DeadLetterView>(store, id).await.map(Option::unwrap_or_default) {
                Ok(dead_letter) if !dead_letter.waits() => {}
                Ok(_) if ids.contains(id) => {
                    waiting.insert(*id);
                }
                // What nobody can read nobody has settled.
                Ok(_) | Err(StoreFault::Unusable(_)) => return Ok(None),
                Err(fault) => return Err(fault.into()),
            }
        }
        let last = ids.iter().rev().find(|id| waiting.contains(id));
        Ok(last.map(|last| (*last, in_the_way)))
    }
}

/// A saga, with what does not add up of it as far as that is known.
fn saga(id: Uuid, known: &BTreeMap<Uuid, Known>) -> Named {
    Named::Saga(id, known.get(&id).map(|known| known.accepted.clone()).unwrap_or_default())
}
