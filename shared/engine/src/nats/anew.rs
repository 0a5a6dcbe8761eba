//! Shell: noticing that a stream starts anew, as after the loss of the broker's disk: what was published is not in it.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use saga_core::service::stream_of;
use tracing::error;

use super::connection::{BoxedError, BusFault, NatsBus};
use crate::store::Store;

/// How often the stream is looked at.
const EVERY: Duration = Duration::from_secs(5);

/// What is published goes by this service's idea of the broker's time, which may be off by so much ([`super::timing`]);
/// the stream's age by the broker's own.
const TOLERANCE: SignedDuration = SignedDuration::from_millis(500);

/// Says, once for each stream, when it is younger than what `service` has published to it. Never ends.
pub async fn watch(bus: &NatsBus, service: &str, store: Arc<dyn Store>) {
    let mut known = None;
    loop {
        // One that does not answer is asked again.
        if let Ok(made) = bus.stream_made(service).await
            && known != Some(made)
            && let Ok(kept_since) = store.kept_since().await
        {
            known = Some(made);
            if kept_since.is_some_and(|since| since.saturating_add(TOLERANCE).is_ok_and(|since| since < made))
            {
                error!(
                    "the stream of {service} starts anew at {made:.0}, what was published before is not in it: if the \
                     broker has lost its data, have it published again: sagactl outbox republish {service} --since TIME \
                     --reason WHY"
                );
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

impl NatsBus {
    /// When the stream of a service was made.
    async fn stream_made(&self, service: &str) -> Result<Timestamp, BusFault> {
        let name = stream_of(service);
        let made = async {
            let stream = self.jetstream.get_stream(&name).await?;
            let made = stream.cached_info().created.unix_timestamp_nanos();
            Timestamp::from_nanosecond(made).map_err(BoxedError::from)
        };
        self.in_time(made).await.map_err(|source| BusFault::Stream { stream: name.clone(), source })
    }
}
