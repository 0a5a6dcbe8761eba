//! Shell: detects a stream reset, such as after the loss of the broker's disk: published facts are missing from the stream.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use saga_core::service::stream_of;
use tracing::error;

use super::connection::{BoxedError, BusFault, NatsBus};
use crate::store::Store;

const CHECK_EVERY: Duration = Duration::from_secs(5);

/// Tolerance between publish times, which follow this service's estimate of the broker's time, and the stream's age.
const TOLERANCE: SignedDuration = SignedDuration::from_millis(500);

/// Logs an error, once for each new stream, if the stream of `service` is younger than what it has published. Never returns.
pub async fn watch(bus: &NatsBus, service: &str, store: Arc<dyn Store>) {
    let mut checked = None;
    loop {
        // A broker that does not answer is asked again.
        if let Ok(created) = bus.stream_created(service).await
            && checked != Some(created)
            && let Ok(kept_since) = store.kept_since().await
        {
            checked = Some(created);
            if kept_since
                .is_some_and(|since| since.saturating_add(TOLERANCE).is_ok_and(|since| since < created))
            {
                error!(
                    "the stream of {service} was created at {created:.0}, after facts that were published to it: if the \
                     broker has lost its data, publish them again: sagactl outbox republish {service} --since TIME \
                     --reason WHY"
                );
            }
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
}

impl NatsBus {
    /// Creation time of the stream of a service.
    async fn stream_created(&self, service: &str) -> Result<Timestamp, BusFault> {
        let name = stream_of(service);
        let created = async {
            let stream = self.jetstream.get_stream(&name).await?;
            let created = stream.cached_info().created.unix_timestamp_nanos();
            Timestamp::from_nanosecond(created).map_err(BoxedError::from)
        };
        self.in_time(created).await.map_err(|source| BusFault::Stream { stream: name.clone(), source })
    }
}
