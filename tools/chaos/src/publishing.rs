//! Shell: watches the outboxes during a run.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use client::http::Http;
use devstack::System;
use devstack::component::Component;
use reqwest::Method;

use super::publish_stall::Sample;

/// Interval between two looks at each outbox.
const INTERVAL: Duration = Duration::from_millis(500);
/// Time limit of a look.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Gauge of the oldest entry that waits.
const AGE: &str = "outbox_oldest_pending_age_seconds ";

/// Takes samples until aborted.
pub async fn watch(http: Http, system: System, began: Instant, samples: &mut Vec<Sample>) -> Infallible {
    loop {
        tokio::time::sleep(INTERVAL).await;
        for service in Component::services().filter(|service| service.has_stream()) {
            let url = format!("{}/metrics", system.url_of(service));
            let request = http.request(Method::GET, &url).timeout(TIMEOUT);
            // Without an answer nothing is known.
            let Ok(answer) = request.send().await else { continue };
            let Ok(text) = answer.text().await else { continue };
            if let Some(age) = age_in(&text) {
                samples.push(Sample { service, at: began.elapsed(), age });
            }
        }
    }
}

fn age_in(metrics: &str) -> Option<Duration> {
    let value = metrics.lines().find_map(|line| line.strip_prefix(AGE))?;
    Duration::try_from_secs_f64(value.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_is_read_from_metrics() {
        assert_eq!(
            age_in("# x\noutbox_oldest_pending_age_seconds 2.5\n"),
            Some(Duration::from_millis(2_500))
        );
        assert_eq!(age_in("outbox_oldest_pending_age_seconds NaN\n"), None);
    }
}
