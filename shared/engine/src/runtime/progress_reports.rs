//! Shell: reports unfinished deliveries to the broker as in progress, so that it does not redeliver them.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use super::bus::{Bus, HandleOf};
use super::in_progress::InProgress;

/// Reports within one acknowledgement wait of the broker.
const REPORTS_PER_ACK_WAIT: u32 = 3;

/// Reports the deliveries in `set` until dropped.
pub async fn report<B: Bus>(bus: &B, set: InProgress<HandleOf<B>>) {
    let mut tick = interval((bus.ack_wait() / REPORTS_PER_ACK_WAIT).max(Duration::from_millis(1)));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        for handle in set.next_report() {
            if let Err(error) = bus.in_progress(&handle).await {
                debug!("in-progress report not sent, deliveries may come again: {error}");
                break;
            }
        }
    }
}
