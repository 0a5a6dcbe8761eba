//! Shell: the route that shows what each service has stored of an order.

use admin_api::records::{RecordedEvent, SagaRecords, ServiceRecord};
use axum::Json;
use axum::extract::State;
use futures::future::join_all;
use saga_engine::host::http::Segment;
use saga_engine::host::queries::{EventPage, EventView};
use serde_json::Value;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;

/// Services with their routes for one order, in the order of the saga.
const RECORDS: [(&str, &str); 3] =
    [("order", "/api/orders"), ("inventory", "/api/reservations"), ("payment", "/api/payments")];

/// Status of a service that has no such record.
pub(super) const NOT_FOUND: u16 = 404;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(records))
}

/// Show what each service has stored of an order: its state, and the events that led to it.
#[utoipa::path(get, operation_id = "show_records", path = "/api/admin/sagas/{id}/records", params(("id" = Uuid, Path)), responses(
    (status = 200, body = SagaRecords),
))]
async fn records(State(admin): State<Admin>, Segment(id): Segment<Uuid>) -> Json<SagaRecords> {
    let read = RECORDS.map(|(service, path)| record(&admin, service, format!("{path}/{id}")));
    Json(SagaRecords { records: join_all(read).await })
}

async fn record(admin: &Admin, service: &str, path: String) -> ServiceRecord {
    let events = format!("{path}/events");
    let (state, events) = tokio::join!(
        admin.services.get_soon::<Value>(service, &path),
        admin.services.get_soon::<EventPage>(service, &events),
    );
    let problems = [state.as_ref().err(), events.as_ref().err()];
    let problem = problems.into_iter().flatten().find(|problem| problem.status != NOT_FOUND);
    let problem = problem.map(|problem| problem.detail.clone());
    let events = events.map(|page| page.events.into_iter().map(recorded).collect()).unwrap_or_default();
    ServiceRecord { service: service.to_owned(), state: state.ok(), events, problem }
}

/// Event of a service as admin shows it.
pub(super) fn recorded(event: EventView) -> RecordedEvent {
    RecordedEvent { at: event.recorded_at, event: event.event, data: event.data }
}
