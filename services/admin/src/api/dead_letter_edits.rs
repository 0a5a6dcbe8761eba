//! Shell: the route that edits a dead letter and replays it as what it then is.

use axum::Json;
use axum::http::StatusCode;
use saga_core::dead_letter::DeadLetterOrigin;
use saga_core::service::steps_of;
use saga_core::service_stats::ServiceStats;
use saga_engine::host::http::Problem;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::dead_letters::found;
use super::extract::{Change, Operator, ReasonRule, invalid_request, required_reason};
use crate::commands::CommandKind;
use crate::dead_letters::edit::{self, Edit, Made};
use crate::dead_letters::events::{DeadLetterRejection, Replay};
use crate::service::AdminService;
use crate::topology::NAME;
use admin_api::actor::Actor;
use admin_api::dead_letters::{DeadLetterItem, EditDeadLetter, EditedDeadLetter};

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(edit_dead_letter))
}

/// Edit the message of a dead letter and replay it with an id of its own. The first message is kept. Members that other
/// services act on already may not change: order, lines, payer and amount. The response and the audit log list the changes.
#[utoipa::path(post, path = "/api/admin/dlq/{id}/edit", params(("id" = Uuid, Path), Operator),
    request_body = EditDeadLetter, responses(
    (status = 200, body = EditedDeadLetter, description = "A preview"),
    (status = 202, body = EditedDeadLetter), (status = 404), (status = 409),
))]
async fn edit_dead_letter(
    Change { admin, path: id, operator, body }: Change<Uuid, EditDeadLetter>,
) -> Result<(StatusCode, Json<EditedDeadLetter>), Problem> {
    let EditDeadLetter { data, payload, reason, preview, force, version } = body;
    let reason = if preview { reason } else { required_reason(reason, ReasonRule::Forces)? };
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
    // A step consumes the type that it failed at. Of another type only its service knows.
    if item.message_type.as_deref() != Some(made.message_type.name)
        && !is_consumed(&admin, &item, &made).await?
    {
        let (field, step) = (if is_data { "data" } else { "payload.type" }, &item.step);
        let detail = format!("{step} does not consume {} of {:?}", made.message_type.name, made.producer);
        return Err(Problem::field(field, detail));
    }
    let changes = made.changes;
    if preview {
        return Ok((StatusCode::OK, Json(EditedDeadLetter { dead_letter: item, changes })));
    }
    // The id of the new message depends on this version of the dead letter.
    let (version, edited) = (Some(item.version), Some(made.message));
    let replay = Replay { force, version, edited, changes: changes.clone(), tag: None };
    let dead_letter = admin.change(Actor { operator, reason }, CommandKind::Replay(id, replay)).await?;
    Ok((StatusCode::ACCEPTED, Json(EditedDeadLetter { dead_letter, changes })))
}

async fn is_consumed(admin: &Admin, item: &DeadLetterItem, made: &Made) -> Result<bool, Problem> {
    let subject = made.message_type.subject(&made.producer, &item.service);
    if item.service == NAME {
        let steps = steps_of::<AdminService>();
        let step = steps.iter().find(|step| step.name == item.step);
        let mut consumed = step.into_iter().flat_map(|step| step.consumes);
        return Ok(consumed.any(|subscription| subscription.subjects(NAME).contains(&subject)));
    }
    let service_stats: ServiceStats = admin.services.get_soon(&item.service, "/internal/stats").await?;
    let step = service_stats.steps.into_iter().find(|step| step.step == item.step);
    Ok(step.is_some_and(|step| step.subjects.contains(&subject)))
}
