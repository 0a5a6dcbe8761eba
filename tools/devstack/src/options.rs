//! Pure: options of the command line.

use std::path::PathBuf;

use clap::Args;

use super::member::MOST_REPLICAS;
use super::plan::{Layout, StoreKind};

/// Of what a system is to consist.
#[derive(Debug, Clone, Copy, Args)]
pub struct LayoutOptions {
    /// Where the services keep their data: sqlite, each in a file; postgres, each in a database of one server that is
    /// started for them.
    #[arg(long, value_name = "KIND")]
    store: Option<StoreKind>,
    /// Processes of each service, behind one port; more than one needs --store postgres.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_REPLICAS)))]
    replicas: Option<u8>,
    /// Brokers: 1, or a cluster of 3 each of which stores all messages.
    #[arg(long, value_name = "N", value_parser = nodes)]
    nats_nodes: Option<u8>,
}

/// A majority of two is two: no more than one alone may be missing of three.
fn nodes(text: &str) -> Result<u8, String> {
    match text.parse() {
        Ok(nodes @ (1 | 3)) => Ok(nodes),
        Ok(_) | Err(_) => Err("1 or 3".to_owned()),
    }
}

impl LayoutOptions {
    /// What is not said is as the last time.
    ///
    /// # Errors
    /// When there can be no such system.
    pub fn layout(self, last: Layout) -> Result<Layout, String> {
        let Self { store, replicas, nats_nodes } = self;
        let wanted = Layout {
            store: store.unwrap_or(last.store),
            replicas: replicas.unwrap_or(last.replicas),
            nats_nodes: nats_nodes.unwrap_or(last.nats_nodes),
        };
        wanted.checked()
    }
}

/// Which services are meant: those of the local system, or those of the network of containers that this program is in.
#[derive(Debug, Clone, Args)]
pub struct Whose {
    /// The services are at hosts of their own names, at their usual ports, as in containers.
    #[arg(long)]
    pub by_name: bool,
    /// Folder with this program's own credentials: DIR/sagactl of `sagactl credentials DIR`.
    #[arg(long, value_name = "DIR", requires = "by_name")]
    pub credentials: Option<PathBuf>,
}
