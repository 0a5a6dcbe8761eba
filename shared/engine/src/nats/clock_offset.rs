//! Shell: measures the offset of the broker's clock.

use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::connection::{BoxedError, BusFault, NatsBus};
use super::permissions::ADVISORY_STREAM;
use crate::runtime::clock::Clock;

/// Samples in one measurement. The fastest answer is the most exact, as with NTP (RFC 5905, section 10).
const SAMPLES: usize = 5;

/// Maximum duration of a usable answer. Its error is up to half of that.
const TOO_SLOW: Duration = Duration::from_secs(1);

/// Answer to a request for stream information.
#[derive(Deserialize)]
struct StreamInfo {
    /// Broker's time of the answer.
    ts: Timestamp,
}

impl NatsBus {
    /// Measures by how much the broker is ahead of `clock`. All services ask the leader of one stream, so that a cluster
    /// has one clock too.
    ///
    /// # Errors
    /// If the broker does not answer, or answers too slowly.
    pub fn clock_offset<'a>(
        &'a self,
        clock: &'a dyn Clock,
    ) -> BoxFuture<'a, Result<SignedDuration, BusFault>> {
        Box::pin(async move {
            let mut best: Option<(Duration, SignedDuration)> = None;
            for _ in 0..SAMPLES {
                let sample = self.in_time(self.sample_offset(clock)).await;
                let sample = sample.map_err(|source| {
                    let stream = ADVISORY_STREAM.to_owned();
                    BusFault::Stream { stream, source }
                })?;
                best = best.into_iter().chain([sample]).min_by_key(|(took, _)| *took);
            }
            match best {
                Some((took, offset)) if took <= TOO_SLOW => Ok(offset),
                _ => Err(BusFault::Stream {
                    stream: ADVISORY_STREAM.to_owned(),
                    source: format!("every answer took longer than {TOO_SLOW:?}").into(),
                }),
            }
        })
    }

    async fn sample_offset(&self, clock: &dyn Clock) -> Result<(Duration, SignedDuration), BoxedError> {
        let subject = format!("$JS.API.STREAM.INFO.{ADVISORY_STREAM}");
        let (began, before) = (Instant::now(), clock.now());
        let answer = self.client.request(subject, "".into()).await?;
        let took = began.elapsed();
        let StreamInfo { ts } = serde_json::from_slice(&answer.payload)?;
        Ok((took, ts.duration_since(before.saturating_add(took / 2)?)))
    }
}
