//! Shell: the route that edits a dead letter and replays it as what it then is.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use garde::Validate;
use serde::Deserialize;
use serde_json::Value;
use shared::contract::LetterOrigin;
use shared::http::{Problem, Segment};
use shared::operator::Machinery;
use shared::service::Service;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::change::changed;
use super::dlq::found;
use super::extract::{Ask, Operator, needed};
use crate::commands::Wish;
use crate::edit::{self, Edit, Made};
use crate::letter_view::LetterItem;
use crate::letters::LetterRejection;
use crate::policy::AdminService;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(edit_letter))
}

/// What to handle in place of what was parked: either `data` or `payload`.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
struct EditLetter {
    /// What the message says: replaces the envelope's `data`.
    #[garde(skip)]
    #[schema(value_type = Option<Object>)]
    data: Option<Value>,
    /// The whole envelope; its id is replaced.
    #[garde(skip)]
    #[schema(value_type = Option<Object>)]
    payload: Option<Value>,
    /// Why.
    #[garde(inner(length(chars, min = 1, max = 500)))]
    reason: Option<String>,
    /// Even if three replays have failed, or one is under way that may have got lost.
    #[garde(skip)]
    force: bool,
    /// Only if the letter is still at this version.
    #[garde(skip)]
    version: Option<u64>,
}

/// Edit a dead letter's message and hand it back to the step that failed, under an id of its own. What was parked
/// at first stays known.
#[utoipa::path(post, path = "/api/admin/dlq/{id}/edit", params(("id" = Uuid, Path), Operator),
    request_body = EditLetter, responses(
    (status = 202, body = LetterItem), (status = 404, body = Problem), (status = 409, body = Problem),
    (status = 422, body = Problem), (status = 503, body = Problem),
))]
async fn edit_letter(
    State(admin): State<Admin>,
    Segment(letter): Segment<Uuid>,
    Operator(operator): Operator,
    Ask(EditLetter { data, payload, reason, force, version }): Ask<EditLetter>,
) -> Result<(StatusCode, Json<LetterItem>), Problem> {
    let reason = needed(reason, "an edit needs one")?;
    let edit = match (data, payload) {
        (Some(data), None) => Edit::Data(data),
        (None, Some(payload)) => Edit::Payload(payload),
        (None, None) => return Err(Problem::field("data", "give `data` or `payload`")),
        (Some(_), Some(_)) => return Err(Problem::field("payload", "give `data` or `payload`, not both")),
    };
    let (item, history) = found(&admin, letter).await?;
    if item.origin == LetterOrigin::Task {
        return Err(Problem::conflict(LetterRejection::NotEditable.to_string()));
    }
    if let Some(version) = version.filter(|version| *version != item.version) {
        return Err(Problem::conflict(format!(
            "version {version}: {}",
            LetterRejection::Changed(item.version)
        )));
    }
    let announced =
        history.announced.ok_or_else(|| Problem::internal(&"a letter without an announcement"))?;
    let (is_data, revision) = (matches!(edit, Edit::Data(_)), item.version + 1);
    let made = edit::make(&announced, revision, &edit).map_err(|fault| Problem::fields(vec![fault]))?;
    // A step hears what it failed at; of another type only its service knows.
    if item.message_type.as_deref() != Some(made.fact_type.name()) && !is_heard(&admin, &item, &made).await? {
        let (field, step) = (if is_data { "data" } else { "payload.type" }, &item.step);
        let detail = format!("{step} does not hear {} of {:?}", made.fact_type.name(), made.producer);
        return Err(Problem::field(field, detail));
    }
    // What was made is of this version of the letter: of another one it would have another id.
    let wish = Wish::Replay { letter, force, version: Some(item.version), edited: Some(made.message) };
    let item = changed(&admin, letter, operator, Some(reason), wish).await?;
    Ok((StatusCode::ACCEPTED, Json(item)))
}

async fn is_heard(admin: &Admin, letter: &LetterItem, made: &Made) -> Result<bool, Problem> {
    let subject = made.fact_type.subject(&made.producer, &letter.service);
    if letter.service == crate::NAME {
        let step = AdminService::steps().iter().find(|step| step.name == letter.step);
        let mut heard = step.into_iter().flat_map(|step| step.hears);
        return Ok(heard.any(|heard| heard.subjects(crate::NAME).contains(&subject)));
    }
    let machinery: Machinery = admin.services.get_soon(&letter.service, "/internal/machinery").await?;
    let step = machinery.steps.into_iter().find(|step| step.step == letter.step);
    Ok(step.is_some_and(|step| step.subjects.contains(&subject)))
}
