//! Shell: the routes that change one dead letter: replay, discard, restore, note.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use saga_engine::host::http::{Params, Problem, Segment};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::dead_letters::detail;
use super::extract::{
    Change, Operator, OptionalBody, ReasonRule, TokenHolder, checked_reason, may_force, required_reason,
};
use crate::commands::CommandKind;
use crate::dead_letters::events::Replay;
use admin_api::actor::Actor;
use admin_api::actor::Reason;
use admin_api::dead_letters::{DeadLetterDetail, DeadLetterItem, NewNote, ReplayOne};

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new()
        .routes(routes!(replay))
        .routes(routes!(discard))
        .routes(routes!(restore))
        .routes(routes!(note))
}

/// Replay a dead letter at the step that failed, and nowhere else.
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
    let reason = if force { required_reason(reason, ReasonRule::Forces)? } else { reason };
    let kind = CommandKind::Replay(id, Replay { force, version, ..Replay::default() });
    let item = admin.change(Actor { operator, reason }, kind).await?;
    Ok((StatusCode::ACCEPTED, Json(item)))
}

/// Discard a dead letter: its message is not processed. Needs a reason.
#[utoipa::path(delete, operation_id = "discard_dead_letter", path = "/api/admin/dlq/{id}", params(("id" = Uuid, Path), Operator, Reason),
    request_body(content = Option<Reason>), responses(
    (status = 200, body = DeadLetterItem), (status = 404), (status = 409),
))]
async fn discard(
    State(admin): State<Admin>,
    Segment(id): Segment<Uuid>,
    Operator(operator): Operator,
    Params(query): Params<Reason>,
    OptionalBody(body): OptionalBody<Reason>,
) -> Result<Json<DeadLetterItem>, Problem> {
    // Some clients send no body with DELETE, so that the query may have the reason.
    let reason = required_reason(body.reason.or(checked_reason(query.reason)?), ReasonRule::GivesUp)?;
    admin.change(Actor { operator, reason }, CommandKind::Discard(id)).await.map(Json)
}

/// Restore a discarded dead letter.
#[utoipa::path(post, operation_id = "restore_dead_letter", path = "/api/admin/dlq/{id}/restore", params(("id" = Uuid, Path), Operator),
    request_body(content = Option<Reason>), responses(
    (status = 200, body = DeadLetterItem), (status = 404), (status = 409),
))]
async fn restore(
    Change { admin, path: id, operator, body: Reason { reason } }: Change<Uuid, Reason>,
) -> Result<Json<DeadLetterItem>, Problem> {
    admin.change(Actor { operator, reason }, CommandKind::Restore(id)).await.map(Json)
}

/// Add a note to a dead letter.
#[utoipa::path(post, operation_id = "note_on_dead_letter", path = "/api/admin/dlq/{id}/notes", params(("id" = Uuid, Path), Operator),
    request_body = NewNote, responses(
    (status = 201, body = DeadLetterDetail), (status = 404), (status = 409),
))]
async fn note(
    Change { admin, path: id, operator, body: NewNote { text } }: Change<Uuid, NewNote>,
) -> Result<(StatusCode, Json<DeadLetterDetail>), Problem> {
    admin.change(Actor { operator, reason: None }, CommandKind::Note(id, text)).await?;
    Ok((StatusCode::CREATED, Json(detail(&admin, id).await?)))
}
