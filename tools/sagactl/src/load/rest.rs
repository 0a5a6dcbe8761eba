//! Shell: orders one after another: what one order costs when nothing else goes on.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressDrawTarget};
use serde::Serialize;
use serde_json::Value;

use super::plan::Plan;
use super::report::{self, Percentiles};
use super::shelf;
use crate::http::Http;
use crate::local::{Member, System};
use crate::reconciliation;

/// Orders before the first measured one: they open the connection.
const WARM_UP: u64 = 5;
/// The audit waits this long for quiet.
const AUDIT_WAIT: Duration = Duration::from_secs(30);

#[derive(Debug, Serialize)]
struct RestReport {
    orders: u64,
    confirmed: u64,
    latency_ms: Percentiles,
    books_balanced: bool,
    audit: Value,
}

/// `sagactl load --rest N`: each order is sent when the one before it has ended, and measured from its POST
/// until the answer that says `CONFIRMED`.
pub async fn run(system: &System, count: u32, json: bool) -> anyhow::Result<ExitCode> {
    let count = u64::from(count);
    let http = Http::new()?;
    shelf::fill(&http, system, count + WARM_UP).await?;
    let run_id = format!("{:08x}", fastrand::u32(..));
    let length = Duration::from_secs(count + WARM_UP);
    let plan =
        Plan::new(1, Duration::ZERO, length, "happy=100".parse().map_err(anyhow::Error::msg)?, &run_id);
    let latency_us = measure(system, &plan).await?;
    let audit = reconciliation::ask(&http, &system.url_of(Member::Admin), AUDIT_WAIT).await?;
    let report = RestReport {
        orders: count,
        confirmed: latency_us.len(),
        latency_ms: Percentiles::of(&latency_us),
        books_balanced: audit.balanced,
        audit: audit.report,
    };
    if json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        println!("{count} orders one after another, from POST to CONFIRMED");
        println!("{}", report::percentile_table([report.latency_ms.row("one order")]));
        report::print_verdict(report.books_balanced, &report.audit);
    }
    Ok(if report.books_balanced { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(system: &System, plan: &Plan) -> anyhow::Result<Histogram<u64>> {
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(15)).build()?;
    let url = format!("{}/api/orders", system.url_of(Member::Order));
    let bar = ProgressBar::with_draw_target(Some(plan.orders), ProgressDrawTarget::stderr_with_hz(5));
    let mut latency_us = report::histogram()?;
    for number in 0..plan.orders {
        let body = plan.body(number);
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
            latency_us.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(latency_us)
}
