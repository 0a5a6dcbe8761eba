//! Shell: the routes that do one thing to many: to dead letters, or to the sagas behind them. What they are is looked up
//! when it is asked for: what comes later is not among them. The audit log has one entry for all.

use std::collections::BTreeSet;

use axum::Json;
use garde::Validate;
use jiff::SignedDuration;
use saga_core::dead_letter::DeadLetterStatus;
use saga_engine::host::http::{Problem, one_line, trimmed, trimmed_if_any};
use saga_engine::runtime::clock::Clock as _;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::extract::{Because, Change, Operator, TokenHolder, checked_filter, may_force, needed};
use crate::audit_log::{Action, DONE};
use crate::commands::{CommandKind, Many, Reply, Wish};
use crate::dead_letter::events::Replay;
use crate::dead_letter::filter::{Filter, Wanted};
use crate::dead_letter::reading;
use crate::request::By;

/// How many dead letters one request may be about.
pub(super) struct Most {
    pub(super) number: usize,
    /// What is to be done when they are more.
    pub(super) otherwise: &'static str,
}

/// More of them are dealt with filter by filter.
const MOST_AT_ONCE: Most = Most { number: 100_000, otherwise: "narrow it down" };

/// Of those that are handed back at once; more are a redrive's work, which can be watched and stops when it goes wrong.
const MOST_REPLAYED: Most = Most { number: 1_000, otherwise: "use a redrive" };

/// So many in one transaction: others need not wait long for theirs.
const CHUNK: usize = 500;

/// Longer than this no order is made to wait, in seconds: a day.
const LONGEST_WAIT_S: u32 = 86_400;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new()
        .routes(routes!(replay))
        .routes(routes!(discard))
        .routes(routes!(restore))
        .routes(routes!(note))
        .routes(routes!(extend))
        .routes(routes!(extend_one))
}

/// What was meant.
pub(super) struct Meant {
    pub(super) ids: Vec<Uuid>,
    /// Id of the entry in the audit log.
    pub(super) entry: Uuid,
    /// What that calls them.
    target: String,
    detail: Value,
}

impl Meant {
    /// These dead letters, or all of these statuses that the filter matches now, if they are not too many.
    pub(super) async fn of(
        ids: Option<Vec<Uuid>>,
        filter: Option<Filter>,
        statuses: &[DeadLetterStatus],
        most: Most,
        admin: &Admin,
    ) -> Result<Self, Problem> {
        let entry = Uuid::now_v7();
        let filter = match (ids, filter) {
            (Some(ids), None) => {
                let ids: Vec<Uuid> = ids.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
                let target = format!("{} dead letters", ids.len());
                return Ok(Self { entry, target, detail: json!({ "matching": ids.len() }), ids });
            }
            (None, Some(filter)) => filter,
            (None, None) => return Err(Problem::field("filter", "give `ids` or `filter`")),
            (Some(_), Some(_)) => return Err(Problem::field("filter", "give `ids` or `filter`, not both")),
        };
        if filter.is_empty() {
            return Err(Problem::field("filter", "must have at least one member"));
        }
        let filter = checked_filter(filter, "filter.")?;
        let wanted = Wanted { filter, statuses: statuses.to_vec(), ..Wanted::default() };
        let ids = all(admin, &wanted, most).await?;
        let target = wanted.filter.fingerprint.clone().unwrap_or_else(|| "a filter".to_owned());
        let detail = json!({ "filter": wanted.filter, "matching": ids.len() });
        Ok(Self { ids, entry, target, detail })
    }
}

/// Ids of all the wanted ones; damaged ones are left alone. No more are looked up than may be.
async fn all(admin: &Admin, wanted: &Wanted, most: Most) -> Result<Vec<Uuid>, Problem> {
    let store = admin.app.store.as_ref();
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let found = reading::find(store, wanted, false, after.as_ref(), CHUNK).await?;
        ids.extend(found.dead_letters.into_iter().map(|(id, _)| id));
        let Most { number, otherwise } = most;
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
    /// Has it done, part by part, and written down once: who wanted it of what, and to how many it was done. Who dies
    /// meanwhile leaves an entry without an outcome; asked for again, it goes on with the rest.
    pub(super) async fn of_each(
        &self,
        by: By,
        action: Action,
        meant: Meant,
        part: impl Fn(Vec<Uuid>) -> CommandKind,
    ) -> Result<Json<Many>, Problem> {
        let Meant { ids, entry, target, detail } = meant;
        let detail = Some(detail);
        self.ask_as(entry, by.clone(), CommandKind::OpenEntry { action, target, detail }).await?;
        let mut many = Many::default();
        let mut failed = None;
        for chunk in ids.chunks(CHUNK) {
            match self.ask(by.clone(), part(chunk.to_vec())).await {
                Ok(Reply::Many(part)) => many.add_all(part),
                Ok(Reply::Done | Reply::Changed(_) | Reply::Notice(_)) => {
                    failed = Some(Problem::internal(&"nobody counted"));
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

/// Which dead letters to hand back, and why.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
struct ReplayMany {
    /// These, by their ids: 1 to 1000.
    #[garde(inner(length(min = 1, max = 1000)))]
    #[schema(min_items = 1, max_items = 1000)]
    ids: Option<Vec<Uuid>>,
    /// All that it matches now, at most 1000; at least one member.
    filter: Option<Filter>,
    /// Why, 1 to 500 characters; kept in the audit log.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(required = true, nullable = false, min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any")]
    reason: Option<String>,
    /// Even if three replays have failed; and by its id, even if one is under way that may have got lost.
    force: bool,
}

/// Hand many dead letters back at once. A redrive does so gently, and stops when it goes wrong.
#[utoipa::path(post, operation_id = "replay_dead_letters", path = "/api/admin/dlq/replay", params(Operator), request_body = ReplayMany, responses(
    (status = 200, body = Many),
))]
async fn replay(
    holder: TokenHolder,
    Change { admin, path: (), operator, body }: Change<(), ReplayMany>,
) -> Result<Json<Many>, Problem> {
    may_force(body.force, holder)?;
    let reason = needed(body.reason, Because::ChangesMany)?;
    let pending = [DeadLetterStatus::Pending];
    let meant = Meant::of(body.ids, body.filter, &pending, MOST_REPLAYED, &admin).await?;
    let wish = Wish::Replay(Replay { force: body.force, ..Replay::default() });
    let part = |dead_letters| CommandKind::Many { dead_letters, wish: wish.clone() };
    admin.of_each(By { operator, reason }, Action::ReplayMany, meant, part).await
}

/// Which dead letters, and why.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub(super) struct ChangeMany {
    /// These, by their ids: 1 to 1000.
    #[garde(inner(length(min = 1, max = 1000)))]
    #[schema(min_items = 1, max_items = 1000)]
    pub(super) ids: Option<Vec<Uuid>>,
    /// All that it matches now, at most 100000, of those to settle or unsettle 1000; at least one member.
    pub(super) filter: Option<Filter>,
    /// Why, 1 to 500 characters; kept in the audit log.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(required = true, nullable = false, min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any")]
    pub(super) reason: Option<String>,
}

/// Give many dead letters up.
#[utoipa::path(post, operation_id = "discard_dead_letters", path = "/api/admin/dlq/discard", params(Operator), request_body = ChangeMany, responses(
    (status = 200, body = Many),
))]
async fn discard(
    Change { admin, path: (), operator, body }: Change<(), ChangeMany>,
) -> Result<Json<Many>, Problem> {
    let reason = needed(body.reason, Because::GivesUp)?;
    let meant = Meant::of(body.ids, body.filter, &[DeadLetterStatus::Pending], MOST_AT_ONCE, &admin).await?;
    let part = |dead_letters| CommandKind::Many { dead_letters, wish: Wish::Discard };
    admin.of_each(By { operator, reason }, Action::DiscardMany, meant, part).await
}

/// Take up again many dead letters that were given up.
#[utoipa::path(post, operation_id = "restore_dead_letters", path = "/api/admin/dlq/restore", params(Operator), request_body = ChangeMany, responses(
    (status = 200, body = Many),
))]
async fn restore(
    Change { admin, path: (), operator, body }: Change<(), ChangeMany>,
) -> Result<Json<Many>, Problem> {
    let reason = needed(body.reason, Because::ChangesMany)?;
    let meant =
        Meant::of(body.ids, body.filter, &[DeadLetterStatus::Discarded], MOST_AT_ONCE, &admin).await?;
    let part = |dead_letters| CommandKind::Many { dead_letters, wish: Wish::Restore };
    admin.of_each(By { operator, reason }, Action::RestoreMany, meant, part).await
}

/// Which dead letters, and what to write down about each.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
struct NoteMany {
    /// These, by their ids: 1 to 1000.
    #[garde(inner(length(min = 1, max = 1000)))]
    #[schema(min_items = 1, max_items = 1000)]
    ids: Option<Vec<Uuid>>,
    /// All that it matches now, at most 100000; at least one member.
    filter: Option<Filter>,
    /// The note, 1 to 2000 characters.
    #[garde(length(chars, min = 1, max = 2000), custom(one_line))]
    #[schema(required = true, min_length = 1, max_length = 2000, format = "trimmed-line")]
    #[serde(deserialize_with = "trimmed")]
    text: String,
}

/// Write the same down about many dead letters; a filter leaves out those that are resolved.
#[utoipa::path(post, operation_id = "note_on_dead_letters", path = "/api/admin/dlq/notes", params(Operator), request_body = NoteMany, responses(
    (status = 200, body = Many),
))]
async fn note(
    Change { admin, path: (), operator, body }: Change<(), NoteMany>,
) -> Result<Json<Many>, Problem> {
    // Whatever somebody may still take up again.
    let unresolved = [
        DeadLetterStatus::Pending,
        DeadLetterStatus::Replaying,
        DeadLetterStatus::Discarded,
        DeadLetterStatus::ResolvedManually,
    ];
    let meant = Meant::of(body.ids, body.filter, &unresolved, MOST_AT_ONCE, &admin).await?;
    let part = |dead_letters| CommandKind::Many { dead_letters, wish: Wish::Note(body.text.clone()) };
    admin.of_each(By { operator, reason: None }, Action::NoteMany, meant, part).await
}

/// Which orders are to wait longer, for how long, and why.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
struct ExtendMany {
    /// The orders of these dead letters, by the ids of these: 1 to 1000.
    #[garde(inner(length(min = 1, max = 1000)))]
    #[schema(min_items = 1, max_items = 1000)]
    ids: Option<Vec<Uuid>>,
    /// The orders of all dead letters that it matches now, at most 100000; at least one member.
    filter: Option<Filter>,
    /// From now on, in seconds: 1 to 86400, a day.
    #[garde(range(min = 1, max = LONGEST_WAIT_S))]
    #[schema(required = true, minimum = 1, maximum = 86_400)]
    seconds: u32,
    /// Why, 1 to 500 characters; kept in the audit log.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(required = true, nullable = false, min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any")]
    reason: Option<String>,
}

/// Let the orders behind dead letters wait longer, so that there is time to mend the cause. What has ended, or is past
/// its deadline, is refused. The saga's `deadline` is the new one once the order service has said so.
#[utoipa::path(post, operation_id = "extend_sagas", path = "/api/admin/sagas/extend", params(Operator), request_body = ExtendMany, responses(
    (status = 200, body = Many),
))]
async fn extend(
    Change { admin, path: (), operator, body }: Change<(), ExtendMany>,
) -> Result<Json<Many>, Problem> {
    let reason = needed(body.reason, Because::ChangesMany)?;
    let open = [DeadLetterStatus::Pending, DeadLetterStatus::Replaying, DeadLetterStatus::Discarded];
    let mut meant = Meant::of(body.ids, body.filter, &open, MOST_AT_ONCE, &admin).await?;
    meant.ids = sagas_of(&admin, meant.ids).await?;
    extended(&admin, By { operator, reason }, meant, body.seconds).await
}

/// How long an order is to wait, and why.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
struct ExtendOne {
    /// From now on, in seconds: 1 to 86400, a day.
    #[garde(range(min = 1, max = LONGEST_WAIT_S))]
    #[schema(required = true, minimum = 1, maximum = 86_400)]
    seconds: u32,
    /// Why, 1 to 500 characters; kept in the audit log.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(required = true, nullable = false, min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any")]
    reason: Option<String>,
}

/// Let an order wait longer.
#[utoipa::path(post, operation_id = "extend_saga", path = "/api/admin/sagas/{id}/extend", params(("id" = Uuid, Path), Operator),
    request_body = ExtendOne, responses((status = 200, body = Many)))]
async fn extend_one(
    Change { admin, path: id, operator, body }: Change<Uuid, ExtendOne>,
) -> Result<Json<Many>, Problem> {
    let reason = needed(body.reason, Because::Forces)?;
    let (entry, detail) = (Uuid::now_v7(), json!({ "matching": 1 }));
    let meant = Meant { ids: vec![id], entry, target: id.to_string(), detail };
    extended(&admin, By { operator, reason }, meant, body.seconds).await
}

async fn extended(admin: &Admin, by: By, meant: Meant, seconds: u32) -> Result<Json<Many>, Problem> {
    let until = admin.app.clock.now().saturating_add(SignedDuration::from_secs(seconds.into()));
    let until = until.map_err(|error| Problem::internal(&error))?;
    admin.of_each(by, Action::SagaExtend, meant, |orders| CommandKind::Extend { orders, until }).await
}

/// The sagas that dead letters belong to, each once.
async fn sagas_of(admin: &Admin, ids: Vec<Uuid>) -> Result<Vec<Uuid>, Problem> {
    let mut sagas = BTreeSet::new();
    for chunk in ids.chunks(CHUNK) {
        let found = reading::by_ids(admin.app.store.as_ref(), chunk).await?;
        sagas.extend(found.iter().filter_map(|dead_letter| dead_letter.said()?.saga));
    }
    Ok(sagas.into_iter().collect())
}
