//! Pure: command-line options that several subcommands share.

use std::path::PathBuf;

use clap::Args;

use super::component::MAX_REPLICAS;
use super::plan::{Layout, StoreKind};

/// Layout options. Those that are left out keep the value of the last start.
#[derive(Debug, Clone, Copy, Args)]
pub struct LayoutOptions {
    /// Database of the services: sqlite, a file for each; postgres, a database for each on one server that is started
    /// for them.
    #[arg(long, value_name = "KIND")]
    store: Option<StoreKind>,
    /// Processes of each service, behind one port. More than one needs --store postgres.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_REPLICAS)))]
    replicas: Option<u8>,
    /// Brokers: 1, or a cluster of 3 in which each stores all messages.
    #[arg(long, value_name = "N", value_parser = nodes)]
    nats_nodes: Option<u8>,
}

/// Two brokers are rejected: their majority is two, so that neither may fail.
fn nodes(text: &str) -> Result<u8, String> {
    match text.parse() {
        Ok(nodes @ (1 | 3)) => Ok(nodes),
        Ok(_) | Err(_) => Err("1 or 3".to_owned()),
    }
}

impl LayoutOptions {
    /// # Errors
    /// If the layout is impossible.
    pub fn layout(self, last: Layout) -> Result<Layout, String> {
        let Self { store, replicas, nats_nodes } = self;
        let layout = Layout {
            store: store.unwrap_or(last.store),
            replicas: replicas.unwrap_or(last.replicas),
            nats_nodes: nats_nodes.unwrap_or(last.nats_nodes),
        };
        layout.validated()
    }
}

/// Selects the services of the local system, or those of the container network that this program runs in.
#[derive(Debug, Clone, Args)]
pub struct Target {
    /// Reach the services at hosts of their own names and at their standard ports, as in containers.
    #[arg(long)]
    pub by_name: bool,
    /// Folder with the credentials of sagactl: DIR/sagactl of `sagactl credentials DIR`.
    #[arg(long, value_name = "DIR", requires = "by_name")]
    pub credentials: Option<PathBuf>,
}
