//! Shell: the routes of one change to many dead letters, or to the sagas behind them. A filter is evaluated once, at the time
//! of the request. The audit log has one entry for all.

use std::collections::BTreeSet;

use axum::Json;
use contract::saga_view::SagaView;
use jiff::SignedDuration;
use saga_core::dead_letter::DeadLetterStatus;
use saga_core::decider::{Decider as _, FieldValue};
use saga_core::query::Query;
use saga_engine::host::http::Problem;
use saga_engine::runtime::clock::Clock as _;
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::extract::{Change, Operator, ReasonRule, TokenHolder, checked_filter, may_force, required_reason};
use super::sagas::{check_step, item_of};
use admin_api::audit_log::{Action, MAX_LISTED_SAGAS};
use admin_api::bulk::{BulkOutcome, ChangeMany, ExtendMany, ExtendOne, NoteMany, ReplayMany};
use admin_api::dead_letters::{Filter, replayable_statuses};

use crate::audit_log::DONE;
use crate::commands::{BulkChange, CommandKind, Reply};
use crate::dead_letters::events::Replay;
use crate::dead_letters::filter::Selection;
use crate::dead_letters::reading;
use crate::overview::waiting_orders::MAX_EXTENDED;
use crate::rows::id_of;
use admin_api::actor::Actor;

/// Maximum number of dead letters of one request.
pub(super) struct Limit {
    pub(super) number: usize,
    /// Advice for more.
    pub(super) otherwise: &'static str,
}

const MAX_CHANGED: Limit = Limit { number: MAX_EXTENDED, otherwise: "narrow it down" };

/// More replays are the work of a redrive, which can be watched and stops automatically.
const MAX_REPLAYED: Limit = Limit { number: 1_000, otherwise: "use a redrive" };

/// Dead letters in one transaction, so that others need not wait long.
const CHUNK: usize = 500;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new()
        .routes(routes!(replay))
        .routes(routes!(discard))
        .routes(routes!(restore))
        .routes(routes!(note))
        .routes(routes!(extend))
        .routes(routes!(extend_one))
}

/// The dead letters of a request.
pub(super) struct BulkSelection {
    pub(super) ids: Vec<Uuid>,
    /// Id of the audit entry.
    pub(super) entry: Uuid,
    /// Target in the audit entry.
    target: String,
    detail: Value,
}

impl BulkSelection {
    /// Selects dead letters by id, or all that a filter matches now, up to the limit.
    pub(super) async fn of(
        ids: Option<Vec<Uuid>>,
        filter: Option<Filter>,
        statuses: &[DeadLetterStatus],
        limit: Limit,
        admin: &Admin,
    ) -> Result<Self, Problem> {
        let entry = Uuid::now_v7();
        let filter = match (ids, filter) {
            (Some(ids), None) => {
                let ids: Vec<Uuid> = ids.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
                let target = format!("{} dead letters", ids.len());
                let mut detail = json!({ "matching": ids.len() });
                list_sagas_of(admin, &ids, &mut detail).await?;
                return Ok(Self { entry, target, detail, ids });
            }
            (None, Some(filter)) => filter,
            (None, None) => return Err(Problem::field("filter", "give `ids` or `filter`")),
            (Some(_), Some(_)) => return Err(Problem::field("filter", "give `ids` or `filter`, not both")),
        };
        if filter.is_empty() {
            return Err(Problem::field("filter", "must have at least one member"));
        }
        let filter = checked_filter(filter, "filter.")?;
        let wanted = Selection { filter, statuses: statuses.to_vec(), ..Selection::default() };
        let ids = all(admin, &wanted, limit).await?;
        let target = wanted.filter.fingerprint.clone().unwrap_or_else(|| "a filter".to_owned());
        let mut detail = json!({ "filter": wanted.filter, "matching": ids.len() });
        list_sagas_of(admin, &ids, &mut detail).await?;
        Ok(Self { ids, entry, target, detail })
    }
}

/// Finds the ids of all wanted dead letters, without damaged ones.
async fn all(admin: &Admin, wanted: &Selection, limit: Limit) -> Result<Vec<Uuid>, Problem> {
    let store = admin.app.store.as_ref();
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let found = reading::find(store, wanted, false, after.as_ref(), CHUNK).await?;
        ids.extend(found.dead_letters.into_iter().map(|(id, _)| id));
        let Limit { number, otherwise } = limit;
        if ids.len() > number {
            let matching = reading::count(store, wanted).await?;
            let detail = format!("matches {matching}, which is more than {number}: {otherwise}");
            return Err(Problem::field("filter", detail));
        }
        after = found.next;
        if after.is_none() {
            return Ok(ids);
        }
    }
}

impl Admin {
    /// Executes a change in parts, with one audit entry. After a crash the entry has no outcome, and the same request
    /// continues with the rest.
    pub(super) async fn change_each(
        &self,
        by: Actor,
        action: Action,
        selection: BulkSelection,
        part: impl Fn(Vec<Uuid>) -> CommandKind,
    ) -> Result<Json<BulkOutcome>, Problem> {
        let BulkSelection { ids, entry, target, detail } = selection;
        let detail = Some(detail);
        self.ask_as(entry, by.clone(), CommandKind::OpenEntry { action, target, detail }).await?;
        let mut many = BulkOutcome::default();
        let mut failed = None;
        for chunk in ids.chunks(CHUNK) {
            match self.ask(by.clone(), part(chunk.to_vec())).await {
                Ok(Reply::Many(part)) => many.add_all(part),
                Ok(Reply::Done | Reply::Changed(_) | Reply::Notification(_)) => {
                    failed = Some(Problem::internal(&"a bulk change without an outcome"));
                }
                Err(problem) => failed = Some(problem),
            }
            if failed.is_some() {
                break;
            }
        }
        let outcome = match &failed {
            None => format!("{DONE}: {} of {}", many.done, ids.len()),
            Some(problem) => format!("{} of {}, then: {}", many.done, ids.len(), problem.detail),
        };
        self.ask(by, CommandKind::CloseEntry(entry, outcome)).await?;
        failed.map_or(Ok(Json(many)), Err)
    }
}

/// Replay many dead letters at once. A redrive limits the rate, and stops when the error comes back.
#[utoipa::path(post, operation_id = "replay_dead_letters", path = "/api/admin/dlq/replay", params(Operator), request_body = ReplayMany, responses(
    (status = 200, body = BulkOutcome),
))]
async fn replay(
    holder: TokenHolder,
    Change { admin, path: (), operator, body }: Change<(), ReplayMany>,
) -> Result<Json<BulkOutcome>, Problem> {
    may_force(body.force, holder)?;
    let reason = required_reason(body.reason, ReasonRule::ChangesMany)?;
    let statuses = replayable_statuses(body.force);
    let selection = BulkSelection::of(body.ids, body.filter, statuses, MAX_REPLAYED, &admin).await?;
    let change = BulkChange::Replay(Replay { force: body.force, ..Replay::default() });
    let part = |dead_letters| CommandKind::Many { dead_letters, change: change.clone() };
    admin.change_each(Actor { operator, reason }, Action::ReplayMany, selection, part).await
}

/// Discard many dead letters.
#[utoipa::path(post, operation_id = "discard_dead_letters", path = "/api/admin/dlq/discard", params(Operator), request_body = ChangeMany, responses(
    (status = 200, body = BulkOutcome),
))]
async fn discard(
    Change { admin, path: (), operator, body }: Change<(), ChangeMany>,
) -> Result<Json<BulkOutcome>, Problem> {
    let reason = required_reason(body.reason, ReasonRule::GivesUp)?;
    let selection =
        BulkSelection::of(body.ids, body.filter, &[DeadLetterStatus::Pending], MAX_CHANGED, &admin).await?;
    let part = |dead_letters| CommandKind::Many { dead_letters, change: BulkChange::Discard };
    admin.change_each(Actor { operator, reason }, Action::DiscardMany, selection, part).await
}

/// Restore many discarded dead letters.
#[utoipa::path(post, operation_id = "restore_dead_letters", path = "/api/admin/dlq/restore", params(Operator), request_body = ChangeMany, responses(
    (status = 200, body = BulkOutcome),
))]
async fn restore(
    Change { admin, path: (), operator, body }: Change<(), ChangeMany>,
) -> Result<Json<BulkOutcome>, Problem> {
    let reason = required_reason(body.reason, ReasonRule::ChangesMany)?;
    let selection =
        BulkSelection::of(body.ids, body.filter, &[DeadLetterStatus::Discarded], MAX_CHANGED, &admin).await?;
    let part = |dead_letters| CommandKind::Many { dead_letters, change: BulkChange::Restore };
    admin.change_each(Actor { operator, reason }, Action::RestoreMany, selection, part).await
}

/// Add the same note to many dead letters. A filter does not match resolved ones.
#[utoipa::path(post, operation_id = "note_on_dead_letters", path = "/api/admin/dlq/notes", params(Operator), request_body = NoteMany, responses(
    (status = 200, body = BulkOutcome),
))]
async fn note(
    Change { admin, path: (), operator, body }: Change<(), NoteMany>,
) -> Result<Json<BulkOutcome>, Problem> {
    // Everything that an operator may still change.
    let unresolved = [
        DeadLetterStatus::Pending,
        DeadLetterStatus::Replaying,
        DeadLetterStatus::Discarded,
        DeadLetterStatus::ResolvedManually,
    ];
    let selection = BulkSelection::of(body.ids, body.filter, &unresolved, MAX_CHANGED, &admin).await?;
    let part = |dead_letters| CommandKind::Many { dead_letters, change: BulkChange::Note(body.text.clone()) };
    admin.change_each(Actor { operator, reason: None }, Action::NoteMany, selection, part).await
}

/// Extend the deadlines of the orders behind dead letters, or of all that wait for a step, so that there is time to fix the
/// cause. Orders that have ended, or are past their deadline, are rejected. The saga shows the new deadline once the order
/// service has it.
#[utoipa::path(post, operation_id = "extend_sagas", path = "/api/admin/sagas/extend", params(Operator), request_body = ExtendMany, responses(
    (status = 200, body = BulkOutcome),
))]
async fn extend(
    Change { admin, path: (), operator, body }: Change<(), ExtendMany>,
) -> Result<Json<BulkOutcome>, Problem> {
    let reason = required_reason(body.reason, ReasonRule::ChangesMany)?;
    let selection = match (body.stuck_at, body.ids, body.filter) {
        (None, ids, filter) => {
            let open = [DeadLetterStatus::Pending, DeadLetterStatus::Replaying, DeadLetterStatus::Discarded];
            let mut selection = BulkSelection::of(ids, filter, &open, MAX_CHANGED, &admin).await?;
            selection.ids = sagas_of(&admin, &selection.ids).await?;
            selection
        }
        (Some(step), None, None) => waiting_for(&admin, step).await?,
        (Some(_), ..) => return Err(Problem::field("stuck_at", "give it without `ids` and `filter`")),
    };
    extended(&admin, Actor { operator, reason }, selection, body.seconds).await
}

/// Extend the deadline of an order.
#[utoipa::path(post, operation_id = "extend_saga", path = "/api/admin/sagas/{id}/extend", params(("id" = Uuid, Path), Operator),
    request_body = ExtendOne, responses((status = 200, body = BulkOutcome), (status = 404)))]
async fn extend_one(
    Change { admin, path: id, operator, body }: Change<Uuid, ExtendOne>,
) -> Result<Json<BulkOutcome>, Problem> {
    let reason = required_reason(body.reason, ReasonRule::Forces)?;
    item_of(&admin, id).await?;
    let (entry, detail) = (Uuid::now_v7(), json!({ "matching": 1 }));
    let selection = BulkSelection { ids: vec![id], entry, target: id.to_string(), detail };
    extended(&admin, Actor { operator, reason }, selection, body.seconds).await
}

async fn extended(
    admin: &Admin,
    by: Actor,
    selection: BulkSelection,
    seconds: u32,
) -> Result<Json<BulkOutcome>, Problem> {
    let until = admin.app.clock.now().saturating_add(SignedDuration::from_secs(seconds.into()));
    let until = until.map_err(|error| Problem::internal(&error))?;
    let part = |orders| CommandKind::Extend { orders, until };
    let Json(outcome) = admin.change_each(by, Action::SagaExtend, selection, part).await?;
    Ok(Json(BulkOutcome { until: Some(until), ..outcome }))
}

/// Returns the sagas of dead letters, each once.
async fn sagas_of(admin: &Admin, ids: &[Uuid]) -> Result<Vec<Uuid>, Problem> {
    let mut sagas = BTreeSet::new();
    for chunk in ids.chunks(CHUNK) {
        let found = reading::by_ids(admin.app.store.as_ref(), chunk).await?;
        sagas.extend(found.iter().filter_map(|dead_letter| dead_letter.report()?.saga));
    }
    Ok(sagas.into_iter().collect())
}

/// Lists the sagas of dead letters in the detail of an audit entry, as [`list_sagas`].
async fn list_sagas_of(admin: &Admin, ids: &[Uuid], detail: &mut Value) -> Result<(), Problem> {
    let sagas = if ids.len() > MAX_LISTED_SAGAS { ids.to_vec() } else { sagas_of(admin, ids).await? };
    list_sagas(&sagas, detail);
    Ok(())
}

/// Lists sagas in the detail of an audit entry, so that it is found by them; of too many only that they are not listed.
fn list_sagas(sagas: &[Uuid], detail: &mut Value) {
    if sagas.len() > MAX_LISTED_SAGAS {
        detail["sagas_listed"] = false.into();
    } else if !sagas.is_empty() {
        detail["sagas"] = json!(sagas);
    }
}

/// Selects all sagas that wait for a step now.
async fn waiting_for(admin: &Admin, step: String) -> Result<BulkSelection, Problem> {
    check_step(&step)?;
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let equals = vec![("next_step", FieldValue::Text(step.clone()))];
        let query = Query { equals, after, limit: CHUNK, ..Query::default() };
        let rows = admin.app.store.find(SagaView::KIND, query).await?;
        for row in &rows {
            ids.push(id_of(row)?);
        }
        let Limit { number, .. } = MAX_CHANGED;
        if ids.len() > number {
            return Err(Problem::field("stuck_at", format!("more than {number} orders wait for {step}")));
        }
        match rows.last() {
            Some(last) if rows.len() == CHUNK => after = Some(last.id.clone()),
            Some(_) | None => break,
        }
    }
    let mut detail = json!({ "stuck_at": step, "matching": ids.len() });
    list_sagas(&ids, &mut detail);
    Ok(BulkSelection { ids, entry: Uuid::now_v7(), target: step, detail })
}
