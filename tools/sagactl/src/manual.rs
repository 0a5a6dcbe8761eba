//! Shell: manual pages and shell completion.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::command::Arguments;
use cli::print;

const NAME: &str = "sagactl";

/// `sagactl completions SHELL`.
pub fn completions(shell: Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), NAME, &mut script);
    // A closed pipe is no failure.
    let _ = std::io::stdout().write_all(&script);
    Ok(ExitCode::SUCCESS)
}

/// `sagactl man DIR`. Writes `sagactl.1`, `sagactl-dlq.1`, `sagactl-dlq-list.1` and so on.
pub fn pages(folder: &Path) -> anyhow::Result<ExitCode> {
    let unwritable = || format!("the manual pages cannot be written to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(unwritable)?;
    clap_mangen::generate_to(Arguments::command(), folder).with_context(unwritable)?;
    print(&format!("the manual pages are in {0}; read them with: man {0}/{NAME}.1", folder.display()));
    Ok(ExitCode::SUCCESS)
}
