//! Shell: the route that edits a dead letter and replays it as what it then is.

use axum::Json;
use axum::http::StatusCode;
use garde::Validate;
use saga_core::dead_letter::DeadLetterOrigin;
use saga_core::service::steps_of;
use saga_core::service_stats::ServiceStats;
use saga_engine::host::http::{Problem, one_line, trimmed_if_any};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::dead_letters::found;
use super::extract::{Because, Change, Operator, invalid_request, needed};
use crate::commands::CommandKind;
use crate::dead_letter::difference::EditedMember;
use crate::dead_letter::edit::{self, Edit, Made};
use crate::dead_letter::events::{DeadLetterRejection, Replay};
use crate::dead_letter::item::DeadLetterItem;
use crate::policy::AdminService;
use crate::request::By;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(edit_dead_letter))
}

/// A dead letter, and what an edit changes in its message.
#[derive(Debug, Serialize, ToSchema)]
struct EditedDeadLetter {
    #[serde(flatten)]
    dead_letter: DeadLetterItem,
    /// Every member that is not what it was; empty when the edit only gives it another id.
    changes: Vec<EditedMember>,
}

/// What to handle in place of what was parked: either `data` or `payload`.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
struct EditDeadLetter {
    /// What the message says: replaces the envelope's `data`. A card token that is `***` stays what it was.
    #[schema(value_type = Option<Object>)]
    data: Option<Value>,
    /// The whole envelope; its id is replaced, and a card token that is `***` stays what it was.
    #[schema(value_type = Option<Object>)]
    payload: Option<Value>,
    /// Why, 1 to 500 characters; kept in the audit log, and not needed for a preview.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(nullable = false, min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any")]
    reason: Option<String>,
    /// Say what it would change, and do nothing.
    preview: bool,
    /// Even if three replays have failed, or one is under way that may have got lost.
    force: bool,
    /// Only if the dead letter is still at this version.
    version: Option<u64>,
}

/// Edit a dead letter's message and hand it back to the step that failed, under an id of its own. What was parked
/// at first stays known. What others act on already may not change: whose order it is, what was ordered, who pays
/// how much. The answer says what was and what is, and so does the audit log.
#[utoipa::path(post, path = "/api/admin/dlq/{id}/edit", params(("id" = Uuid, Path), Operator),
    request_body = EditDeadLetter, responses(
    (status = 200, body = EditedDeadLetter, description = "A preview"),
    (status = 202, body = EditedDeadLetter), (status = 404), (status = 409),
))]
async fn edit_dead_letter(
    Change { admin, path: id, operator, body }: Change<Uuid, EditDeadLetter>,
) -> Result<(StatusCode, Json<EditedDeadLetter>), Problem> {
    let EditDeadLetter { data, payload, reason, preview, force, version } = body;
    let reason = if preview { reason } else { needed(reason, Because::Forces)? };
    let edit = match (data, payload) {
        (Some(data), None) => Edit::Data(data),
        (None, Some(payload)) => Edit::Payload(payload),
        (None, None) => return Err(Problem::field("data", "give `data` or `payload`")),
        (Some(_), Some(_)) => return Err(Problem::field("payload", "give `data` or `payload`, not both")),
    };
    let (item, history) = found(&admin, id).await?;
    if item.origin == DeadLetterOrigin::Task {
        return Err(Problem::conflict(DeadLetterRejection::NotEditable.to_string()));
    }
    if let Some(version) = version.filter(|version| *version != item.version) {
        return Err(Problem::conflict(format!(
            "version {version}: {}",
            DeadLetterRejection::Changed(item.version)
        )));
    }
    let announced =
        history.announced.ok_or_else(|| Problem::internal(&"a dead letter without an announcement"))?;
    let (is_data, revision) = (matches!(edit, Edit::Data(_)), item.version + 1);
    let made = edit::make(&announced, revision, &edit).map_err(|field| invalid_request(vec![field]))?;
    // A step hears what it failed at; of another type only its service knows.
    if item.message_type.as_deref() != Some(made.message_type.name) && !is_heard(&admin, &item, &made).await?
    {
        let (field, step) = (if is_data { "data" } else { "payload.type" }, &item.step);
        let detail = format!("{step} does not hear {} of {:?}", made.message_type.name, made.producer);
        return Err(Problem::field(field, detail));
    }
    let changes = made.changes;
    if preview {
        return Ok((StatusCode::OK, Json(EditedDeadLetter { dead_letter: item, changes })));
    }
    // What was made is of this version of the dead letter: of another one it would have another id.
    let (version, edited) = (Some(item.version), Some(made.message));
    let replay = Replay { force, version, edited, changes: changes.clone(), tag: None };
    let dead_letter = admin.change(By { operator, reason }, CommandKind::Replay(id, replay)).await?;
    Ok((StatusCode::ACCEPTED, Json(EditedDeadLetter { dead_letter, changes })))
}

async fn is_heard(admin: &Admin, item: &DeadLetterItem, made: &Made) -> Result<bool, Problem> {
    let subject = made.message_type.subject(&made.producer, &item.service);
    if item.service == crate::NAME {
        let steps = steps_of::<AdminService>();
        let step = steps.iter().find(|step| step.name == item.step);
        let mut heard = step.into_iter().flat_map(|step| step.consumes);
        return Ok(heard.any(|heard| heard.subjects(crate::NAME).contains(&subject)));
    }
    let service_stats: ServiceStats = admin.services.get_soon(&item.service, "/internal/stats").await?;
    let step = service_stats.steps.into_iter().find(|step| step.step == item.step);
    Ok(step.is_some_and(|step| step.subjects.contains(&subject)))
}
