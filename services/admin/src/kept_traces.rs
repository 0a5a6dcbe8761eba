//! Shell: traces that are recorded because of a failure, passed on to programs that are not on the broker.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::sleep;
use tracing::debug;

use crate::app::AdminApp;
use crate::service_client::{self, ServiceClient};

/// Interval between two rounds. The spans of a trace wait for longer in the other programs.
const EVERY: Duration = Duration::from_secs(1);

/// Maximum number of traces in one request.
const TRACES: usize = 1_000;

/// Passes traces on until the service stops.
pub(crate) async fn run(app: AdminApp) {
    let Some(forwards) = app.engine.tracer().forwards() else { return std::future::pending().await };
    let services = ServiceClient::of(&app.settings.service, app.http_client.clone());
    loop {
        sleep(EVERY).await;
        let traces = forwards.take(TRACES);
        if !traces.is_empty() && !pass_on(&services, &traces).await {
            forwards.put_back(traces);
        }
    }
}

/// Returns false if a program did not take them. It gets them again; to keep a trace twice changes nothing.
async fn pass_on(services: &ServiceClient, traces: &[u128]) -> bool {
    let ids: Vec<_> = traces.iter().map(|trace_id| format!("{trace_id:032x}")).collect();
    let body = json!({ "traces": ids });
    for service in service_client::off_the_broker() {
        let kept = services.command::<Value>(Method::POST, service, "/internal/traces", Some(body.clone()));
        if let Err(problem) = kept.await {
            debug!(service, "kept traces are not passed on, retrying: {}", problem.detail);
            return false;
        }
    }
    true
}
