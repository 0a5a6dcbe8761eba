//! Shell: limits of the machine. Results of different machines are compared as shares of them.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::{broker, fsync, store};

/// Measures fsync, the store alone and the broker alone, one after another.
pub async fn measure(folder: &Path, nats_server: &Path, length: Duration) -> anyhow::Result<Value> {
    let folder = tempfile::tempdir_in(folder)?;
    let fsync = fsync::measure(folder.path(), length.min(Duration::from_secs(2)))?;
    let store = store::of(folder.path(), store::BATCH, length).await?;
    let broker = broker::measure(folder.path(), nats_server, length).await?;
    Ok(json!({ "fsync": fsync, "store": store, "broker": broker }))
}
