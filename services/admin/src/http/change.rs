//! Shell: the routes that change dead letters: replay, discard, restore, note.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use garde::Validate;
use serde::{Deserialize, Serialize};
use shared::http::{Params, Problem, Segment};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::dlq::detail;
use super::extract::{Ask, Operator, Why, checked_reason, needed};
use crate::commands::{Refused, Wish};
use crate::filter::{Filter, Wanted};
use crate::letter_view::{LetterDetail, LetterItem};
use crate::letters::By;
use crate::reading;

/// Letters that one request hands back; more are a redrive's work, which can be watched and stopped.
const MOST_AT_ONCE: usize = 1_000;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new()
        .routes(routes!(replay))
        .routes(routes!(discard))
        .routes(routes!(restore))
        .routes(routes!(note))
        .routes(routes!(replay_many))
}

/// How to replay.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
struct ReplayOne {
    /// Even if three replays have failed, or one is under way that may have got lost. Needs a reason.
    #[garde(skip)]
    force: bool,
    /// Why.
    #[garde(inner(length(chars, min = 1, max = 500)))]
    reason: Option<String>,
    /// Only if the letter is still at this version.
    #[garde(skip)]
    version: Option<u64>,
}

/// Hand a dead letter back to the step that failed, and to nobody else.
#[utoipa::path(post, path = "/api/admin/dlq/{id}/replay", params(("id" = Uuid, Path), Operator),
    request_body(content = Option<ReplayOne>), responses(
    (status = 202, body = LetterItem), (status = 404, body = Problem), (status = 409, body = Problem),
    (status = 422, body = Problem),
))]
async fn replay(
    State(admin): State<Admin>,
    Segment(letter): Segment<Uuid>,
    Operator(operator): Operator,
    Ask(ReplayOne { force, mut reason, version }): Ask<ReplayOne>,
) -> Result<(StatusCode, Json<LetterItem>), Problem> {
    if force {
        reason = Some(needed(reason, "force needs one")?);
    }
    let wish = Wish::Replay { letter, force, version, edited: None };
    let item = changed(&admin, letter, operator, reason, wish).await?;
    Ok((StatusCode::ACCEPTED, Json(item)))
}

/// Changes a letter, and answers it as it is then.
pub(super) async fn changed(
    admin: &Admin,
    letter: Uuid,
    operator: String,
    reason: Option<String>,
    wish: Wish,
) -> Result<LetterItem, Problem> {
    let reply = admin.ask(By { operator, reason }, wish, Some(letter)).await?;
    reply.letter.ok_or_else(|| Problem::internal(&"a changed letter that is none"))
}

/// Give a dead letter up: its message is not handled after all.
#[utoipa::path(delete, path = "/api/admin/dlq/{id}", params(("id" = Uuid, Path), Operator, Why),
    request_body(content = Option<Why>), responses(
    (status = 200, body = LetterItem), (status = 404, body = Problem), (status = 409, body = Problem),
    (status = 422, body = Problem),
))]
async fn discard(
    State(admin): State<Admin>,
    Segment(letter): Segment<Uuid>,
    Operator(operator): Operator,
    Params(query): Params<Why>,
    Ask(body): Ask<Why>,
) -> Result<Json<LetterItem>, Problem> {
    // Some clients send no body with DELETE: the reason may come in the address.
    let reason = body.reason.or(checked_reason(query.reason)?);
    changed(&admin, letter, operator, reason, Wish::Discard(letter)).await.map(Json)
}

/// Take up again a dead letter that was given up.
#[utoipa::path(post, path = "/api/admin/dlq/{id}/restore", params(("id" = Uuid, Path), Operator),
    request_body(content = Option<Why>), responses(
    (status = 200, body = LetterItem), (status = 404, body = Problem), (status = 409, body = Problem),
    (status = 422, body = Problem),
))]
async fn restore(
    State(admin): State<Admin>,
    Segment(letter): Segment<Uuid>,
    Operator(operator): Operator,
    Ask(Why { reason }): Ask<Why>,
) -> Result<Json<LetterItem>, Problem> {
    changed(&admin, letter, operator, reason, Wish::Restore(letter)).await.map(Json)
}

/// A note.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewNote {
    /// What to write down.
    #[garde(length(chars, min = 1, max = 2000))]
    text: String,
}

/// Write something down about a dead letter.
#[utoipa::path(post, path = "/api/admin/dlq/{id}/notes", params(("id" = Uuid, Path), Operator),
    request_body = NewNote, responses(
    (status = 201, body = LetterDetail), (status = 404, body = Problem), (status = 409, body = Problem),
    (status = 422, body = Problem),
))]
async fn note(
    State(admin): State<Admin>,
    Segment(letter): Segment<Uuid>,
    Operator(operator): Operator,
    Ask(NewNote { text }): Ask<NewNote>,
) -> Result<(StatusCode, Json<LetterDetail>), Problem> {
    changed(&admin, letter, operator, None, Wish::Note(letter, text)).await?;
    Ok((StatusCode::CREATED, Json(detail(&admin, letter).await?)))
}

/// Which dead letters to replay: these, or all of a cause that wait.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
struct ReplayMany {
    /// These.
    #[garde(inner(length(min = 1, max = 1000)))]
    ids: Option<Vec<Uuid>>,
    /// All of this cause.
    #[garde(inner(length(chars, min = 1, max = 200)))]
    fingerprint: Option<String>,
    /// Why.
    #[garde(inner(length(chars, min = 1, max = 500)))]
    reason: Option<String>,
    /// Even if three replays have failed, or one is under way that may have got lost.
    #[garde(skip)]
    force: bool,
}

/// What became of a request to replay many.
#[derive(Debug, Serialize, ToSchema)]
struct ReplayedMany {
    /// How many were handed back.
    replayed: u64,
    /// Those that could not be.
    refused: Vec<Refused>,
}

/// Hand many dead letters back at once.
#[utoipa::path(post, path = "/api/admin/dlq/replay", params(Operator), request_body = ReplayMany, responses(
    (status = 200, body = ReplayedMany), (status = 422, body = Problem),
))]
async fn replay_many(
    State(admin): State<Admin>,
    Operator(operator): Operator,
    Ask(ReplayMany { ids, fingerprint, reason, force }): Ask<ReplayMany>,
) -> Result<Json<ReplayedMany>, Problem> {
    let reason = needed(reason, "replaying many needs one")?;
    let (letters, target) = match (ids, fingerprint) {
        (Some(ids), None) => {
            let once: BTreeSet<Uuid> = ids.into_iter().collect();
            let target = format!("{} letters", once.len());
            (once.into_iter().collect(), target)
        }
        (None, Some(fingerprint)) => (of_cause(&admin, &fingerprint).await?, fingerprint),
        (None, None) => return Err(Problem::field("ids", "give `ids` or `fingerprint`")),
        (Some(_), Some(_)) => {
            return Err(Problem::field("fingerprint", "give `ids` or `fingerprint`, not both"));
        }
    };
    let wish = Wish::ReplayMany { letters, force, target };
    let reply = admin.ask(By { operator, reason: Some(reason) }, wish, None).await?;
    Ok(Json(ReplayedMany { replayed: reply.replayed, refused: reply.refused }))
}

/// Letters of a cause that wait.
async fn of_cause(admin: &Admin, fingerprint: &str) -> Result<Vec<Uuid>, Problem> {
    let filter = Filter { fingerprint: Some(fingerprint.to_owned()), ..Filter::default() };
    let (wanted, store) = (Wanted::pending(filter), admin.app.store.as_ref());
    let letters = reading::letters(store, &wanted, false, None, MOST_AT_ONCE + 1).await?;
    if letters.len() > MOST_AT_ONCE {
        let detail = format!("more than {MOST_AT_ONCE} letters have it: use a redrive");
        return Err(Problem::field("fingerprint", detail));
    }
    Ok(letters.into_iter().map(|(id, _)| id).collect())
}
