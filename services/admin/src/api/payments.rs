//! Shell: the route of payments.

use admin_api::payments::PaymentDetail;
use axum::Json;
use axum::extract::State;
use contract::bank::ChargeView;
use contract::payment::PaymentView;
use saga_engine::host::http::{Problem, Segment};
use saga_engine::host::queries::EventPage;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::records::{NOT_FOUND, recorded};
use super::sagas::item_of;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(payment))
}

/// Show the payment of an order, its charge at the bank, and the dead letters that block its saga.
#[utoipa::path(get, path = "/api/admin/payments/{order}", params(("order" = Uuid, Path)), responses(
    (status = 200, body = PaymentDetail), (status = 404), (status = 503),
))]
async fn payment(
    State(admin): State<Admin>,
    Segment(order): Segment<Uuid>,
) -> Result<Json<PaymentDetail>, Problem> {
    let path = format!("/api/payments/{order}");
    let payment = admin.services.get_soon::<PaymentView>("payment", &path).await;
    let payment = payment.map_err(|problem| match problem.status {
        NOT_FOUND => Problem::not_found(format_args!("payment of order {order}")),
        _ => problem,
    })?;
    let (events, charge) = (format!("{path}/events"), format!("/v1/charges/{}", payment.id));
    let (history, charge, saga) = tokio::join!(
        admin.services.get_soon::<EventPage>("payment", &events),
        admin.services.get_soon::<ChargeView>("bank", &charge),
        item_of(&admin, payment.order),
    );
    let (charge, bank_problem) = match charge {
        Ok(charge) => (Some(charge), None),
        Err(problem) if problem.status == NOT_FOUND => (None, None),
        Err(problem) => (None, Some(problem.detail)),
    };
    // Admin may not have heard of the order yet.
    let (manual_resolution, dead_letters) =
        saga.map(|saga| (saga.manual_resolution, saga.dead_letters)).unwrap_or_default();
    Ok(Json(PaymentDetail {
        payment,
        charge,
        bank_problem,
        dead_letters: if manual_resolution.is_some() { vec![] } else { dead_letters },
        manual_resolution,
        history: history?.events.into_iter().map(recorded).collect(),
    }))
}
