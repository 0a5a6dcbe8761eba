//! Shell: which services a command is about, as people say it: the local system's, or those of a network of containers.

use std::path::{Path, PathBuf};

use clap::Args;

use super::reach::Reach;
use super::system::System;

/// Which services are meant.
#[derive(Debug, Clone, Args)]
pub struct Whose {
    /// The services are at hosts of their own names, at their usual ports, as in containers.
    #[arg(long)]
    pub by_name: bool,
    /// Folder with this program's own credentials: DIR/sagactl of `sagactl credentials DIR`.
    #[arg(long, value_name = "DIR", requires = "by_name")]
    pub credentials: Option<PathBuf>,
}

impl Whose {
    /// Where they are; `folder` is that of the local system.
    pub fn reach(&self, folder: &Path) -> anyhow::Result<Reach> {
        match self.by_name {
            true => Reach::by_name(self.credentials.as_deref()),
            false => System::open(folder)?.reach(),
        }
    }
}
