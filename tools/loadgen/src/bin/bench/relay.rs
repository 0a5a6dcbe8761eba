//! Shell: throughput of the relay alone, from a full outbox to a broker without consumers.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;
use jiff::Timestamp;
use saga_engine::nats::{BusSettings, NatsBus, Publisher};
use saga_engine::runtime::injected_faults::{FaultSettings, InjectedFaults};
use saga_engine::runtime::relay::{Relay, RelaySettings, Round};
use serde_json::{Value, json};

use crate::nats_server::NatsServer;
use crate::proc::cpu_us;
use crate::store;

/// Number of entries that are added when the outbox is empty.
const ENTRIES: usize = 20 * store::BATCH;

/// Measures entries published and settled per second, without the time to fill the outbox.
pub async fn measure(folder: &Path, nats_server: &Path, length: Duration) -> anyhow::Result<Value> {
    let folder = tempfile::tempdir_in(folder)?;
    let server = NatsServer::start(nats_server, folder.path()).await?;
    let settings = BusSettings { url: server.url.clone(), ..BusSettings::default() };
    let bus = NatsBus::connect(settings, "bench").await?;
    bus.wait_until_connected().await?;
    bus.ensure_stream("bench").await?;
    let store = store::open(folder.path())?;
    let publisher =
        Publisher::new(bus, "bench", InjectedFaults::new(FaultSettings::default(), &[], Vec::new()));
    let mut relay = Relay::new(store.clone(), "bench".to_owned(), RelaySettings::default());
    let (mut took, mut published, mut us, mut rounds) = (Duration::ZERO, 0, 0, 0);
    while took < length {
        for _ in 0..ENTRIES / store::BATCH {
            store::write(store.as_ref(), store::BATCH).await?;
        }
        let (began, us_before) = (Instant::now(), cpu_us(std::process::id())?);
        loop {
            match relay.round(&publisher, &(), Timestamp::now()).await? {
                Round::Published(count) => published += count as u64,
                Round::Idle => break,
                Round::Delayed(reason) => bail!("the broker rejects an entry: {reason}"),
                Round::Standby => bail!("another relay holds the lease"),
            }
            rounds += 1;
        }
        took += began.elapsed();
        us += cpu_us(std::process::id())? - us_before;
    }
    Ok(json!({
        "entries_per_s": u128::from(published) * 1_000 / took.as_millis().max(1),
        "entries_per_round": published / u64::max(rounds, 1),
        "cpu_us_per_entry": us / published.max(1),
    }))
}
