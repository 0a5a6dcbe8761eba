//! Shell: orders one after another: latency of a single order without other load.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressDrawTarget};
use serde::Serialize;
use serde_json::Value;

use super::options::Mix;
use super::percentiles::{Latencies, Percentiles, percentile_table};
use super::products;
use super::reconcile;
use super::report::verdict;
use super::schedule::Schedule;
use cli::exit::{self, ExitError};
use cli::{print, print_json, view};
use client::http::{Http, client_builder};
use client::reconciliation::Reconciliation;
use devstack::{Component, Endpoints};

/// Orders before the first measured one.
const WARM_UP: u64 = 5;

#[derive(Debug, Serialize)]
struct SequentialReport {
    orders: u64,
    confirmed: u64,
    latency_ms: Percentiles,
    #[serde(flatten)]
    reconciliation: Reconciliation,
}

/// `sagactl load --rest N`: each order is sent when the previous one has ended. Latency counts from the request to the answer
/// `CONFIRMED`.
pub async fn run(endpoints: &Endpoints, count: u32, json: bool) -> anyhow::Result<ExitCode> {
    let count = u64::from(count);
    let http = Http::with_access(&endpoints.access)?;
    products::ensure(&http, endpoints, count + WARM_UP).await?;
    let run_id = format!("{:08x}", fastrand::u32(..));
    let length = Duration::from_secs(count + WARM_UP);
    let schedule = Schedule::at_rate(1, Duration::ZERO, length, Mix::HAPPY, &run_id);
    let mut latencies = Latencies::new()?;
    let run = async {
        measure(endpoints, &schedule, &mut latencies).await?;
        reconcile::run(endpoints, json).await
    };
    let reconciliation = tokio::select! {
        outcome = run => Some(outcome?),
        _ = tokio::signal::ctrl_c() => None,
    };
    let Some(reconciliation) = reconciliation else {
        let (measured, percentiles) = (latencies.count(), latencies.percentiles().summary());
        let text = format!(
            "ended after {measured} of {count} orders: {percentiles}; the reconciliation has no result (sagactl reconcile)"
        );
        return Err(ExitError::new(exit::INTERRUPTED, text).into());
    };
    let (confirmed, latency_ms) = (latencies.count(), latencies.percentiles());
    let report = SequentialReport { orders: count, confirmed, latency_ms, reconciliation };
    if json {
        print_json(&serde_json::to_value(&report)?);
    } else {
        print(&format!("{count} orders one after another, from POST to CONFIRMED"));
        print(&percentile_table(&[("one order", latency_ms)], &view()));
        print(&verdict(&report.reconciliation));
    }
    Ok(if report.reconciliation.balanced { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(
    endpoints: &Endpoints,
    schedule: &Schedule,
    latencies: &mut Latencies,
) -> anyhow::Result<()> {
    let client = client_builder().timeout(Duration::from_secs(15)).build()?;
    let url = format!("{}/api/orders", endpoints.url_of(Component::ORDER));
    let orders = schedule.max_orders();
    let bar = ProgressBar::with_draw_target(Some(orders), ProgressDrawTarget::stderr_with_hz(5));
    for number in 0..orders {
        let body = schedule.body(number);
        let sent = Instant::now();
        let request =
            client.post(&url).header("content-type", "application/json").header("prefer", "wait=10");
        let response = request.body(body).send().await.with_context(|| format!("order {number}"))?;
        let answer = response.bytes().await.with_context(|| format!("answer to order {number}"))?;
        let latency = sent.elapsed();
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        if answer.get("status").and_then(Value::as_str) != Some("CONFIRMED") {
            bail!("order {number} was not confirmed within 10s: {answer}");
        }
        if number >= WARM_UP {
            latencies.record(latency);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}
