//! Shell: what time it is for the broker, as far as the way to it allows to tell.

use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::connection::{BoxedError, BusFault, NatsBus};
use super::permissions::ADVISORY_STREAM;
use crate::runtime::clock::Clock;

/// Questions in one measurement: the one that was answered soonest says most, as with NTP (RFC 5905, section 10).
const QUESTIONS: usize = 5;

/// An answer that took longer says too little: its time may be off by half of that.
const TOO_SLOW: Duration = Duration::from_secs(1);

/// What a stream's description says of the time.
#[derive(Deserialize)]
struct Described {
    /// When the broker wrote it.
    ts: Timestamp,
}

impl NatsBus {
    /// How far the broker's time is ahead of `clock`. All services ask the leader of one stream: in a cluster that is
    /// one clock too.
    ///
    /// # Errors
    /// When the broker does not answer, or too slowly to tell.
    pub fn ahead_of<'a>(&'a self, clock: &'a dyn Clock) -> BoxFuture<'a, Result<SignedDuration, BusFault>> {
        Box::pin(async move {
            let mut best: Option<(Duration, SignedDuration)> = None;
            for _ in 0..QUESTIONS {
                let sample = self.in_time(self.ask_time(clock)).await;
                let sample = sample.map_err(|source| {
                    let stream = ADVISORY_STREAM.to_owned();
                    BusFault::Stream { stream, source }
                })?;
                best = best.into_iter().chain([sample]).min_by_key(|(took, _)| *took);
            }
            match best {
                Some((took, ahead)) if took <= TOO_SLOW => Ok(ahead),
                _ => Err(BusFault::Stream {
                    stream: ADVISORY_STREAM.to_owned(),
                    source: format!("every answer took longer than {TOO_SLOW:?}").into(),
                }),
            }
        })
    }

    async fn ask_time(&self, clock: &dyn Clock) -> Result<(Duration, SignedDuration), BoxedError> {
        let question = format!("$JS.API.STREAM.INFO.{ADVISORY_STREAM}");
        let (asked, before) = (Instant::now(), clock.now());
        let answer = self.client.request(question, "".into()).await?;
        let took = asked.elapsed();
        let Described { ts } = serde_json::from_slice(&answer.payload)?;
        Ok((took, ts.duration_since(before.saturating_add(took / 2)?)))
    }
}
