//! stub
use std::process::ExitCode;
#[derive(Debug, clap::Args)]
pub struct LoadOptions {}
pub async fn run(_: &crate::system::System, _: LoadOptions) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
