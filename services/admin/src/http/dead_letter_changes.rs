//! Shell: the routes that change one dead letter: replay, discard, restore, note.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use garde::Validate;
use saga_engine::host::http::{Params, Problem, Segment, one_line, trimmed, trimmed_if_any};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::dead_letters::detail;
use super::extract::{Ask, Because, Change, Operator, TokenHolder, Why, checked_reason, may_force, needed};
use crate::commands::CommandKind;
use crate::dead_letter::events::Replay;
use crate::dead_letter::history::DeadLetterDetail;
use crate::dead_letter::item::DeadLetterItem;
use crate::request::By;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new()
        .routes(routes!(replay))
        .routes(routes!(discard))
        .routes(routes!(restore))
        .routes(routes!(note))
}

/// How to hand one dead letter back.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
struct ReplayOne {
    /// Even if three replays have failed, or one is under way that may have got lost. Needs a reason.
    force: bool,
    /// Why, 1 to 500 characters; kept in the audit log.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any")]
    reason: Option<String>,
    /// Only if the dead letter is still at this version.
    version: Option<u64>,
}

/// Hand a dead letter back to the step that failed, and to nobody else.
#[utoipa::path(post, operation_id = "replay_dead_letter", path = "/api/admin/dlq/{id}/replay", params(("id" = Uuid, Path), Operator),
    request_body(content = Option<ReplayOne>), responses(
    (status = 202, body = DeadLetterItem), (status = 404), (status = 409),
))]
async fn replay(
    holder: TokenHolder,
    Change { admin, path: id, operator, body }: Change<Uuid, ReplayOne>,
) -> Result<(StatusCode, Json<DeadLetterItem>), Problem> {
    let ReplayOne { force, reason, version } = body;
    may_force(force, holder)?;
    let reason = if force { needed(reason, Because::Forces)? } else { reason };
    let kind = CommandKind::Replay(id, Replay { force, version, ..Replay::default() });
    let item = admin.change(By { operator, reason }, kind).await?;
    Ok((StatusCode::ACCEPTED, Json(item)))
}

/// Give a dead letter up, which needs a reason: its message is not handled after all.
#[utoipa::path(delete, operation_id = "discard_dead_letter", path = "/api/admin/dlq/{id}", params(("id" = Uuid, Path), Operator, Why),
    request_body(content = Option<Why>), responses(
    (status = 200, body = DeadLetterItem), (status = 404), (status = 409),
))]
async fn discard(
    State(admin): State<Admin>,
    Segment(id): Segment<Uuid>,
    Operator(operator): Operator,
    Params(query): Params<Why>,
    Ask(body): Ask<Why>,
) -> Result<Json<DeadLetterItem>, Problem> {
    // Some clients send no body with DELETE: the reason may come in the address.
    let reason = needed(body.reason.or(checked_reason(query.reason)?), Because::GivesUp)?;
    admin.change(By { operator, reason }, CommandKind::Discard(id)).await.map(Json)
}

/// Take up again a dead letter that was given up.
#[utoipa::path(post, operation_id = "restore_dead_letter", path = "/api/admin/dlq/{id}/restore", params(("id" = Uuid, Path), Operator),
    request_body(content = Option<Why>), responses(
    (status = 200, body = DeadLetterItem), (status = 404), (status = 409),
))]
async fn restore(
    Change { admin, path: id, operator, body: Why { reason } }: Change<Uuid, Why>,
) -> Result<Json<DeadLetterItem>, Problem> {
    admin.change(By { operator, reason }, CommandKind::Restore(id)).await.map(Json)
}

/// Something to write down.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewNote {
    /// The note, 1 to 2000 characters.
    #[garde(length(chars, min = 1, max = 2000), custom(one_line))]
    #[schema(min_length = 1, max_length = 2000, format = "trimmed-line")]
    #[serde(deserialize_with = "trimmed")]
    text: String,
}

/// Write something down about a dead letter.
#[utoipa::path(post, operation_id = "note_on_dead_letter", path = "/api/admin/dlq/{id}/notes", params(("id" = Uuid, Path), Operator),
    request_body = NewNote, responses(
    (status = 201, body = DeadLetterDetail), (status = 404), (status = 409),
))]
async fn note(
    Change { admin, path: id, operator, body: NewNote { text } }: Change<Uuid, NewNote>,
) -> Result<(StatusCode, Json<DeadLetterDetail>), Problem> {
    admin.change(By { operator, reason: None }, CommandKind::Note(id, text)).await?;
    Ok((StatusCode::CREATED, Json(detail(&admin, id).await?)))
}
