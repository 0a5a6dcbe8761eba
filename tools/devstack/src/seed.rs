//! Shell: the demo's products, put into the catalogue of a system that runs.

use std::process::ExitCode;

use super::catalogue;
use super::reach::Reach;
use cli::note;
use client::http::Http;

/// `sagactl seed`. What is listed already stays as it is.
pub async fn run(reach: &Reach) -> anyhow::Result<ExitCode> {
    fill(&Http::new()?, reach).await?;
    Ok(ExitCode::SUCCESS)
}

/// Lists the products, and waits until orders for them are taken.
pub async fn fill(http: &Http, reach: &Reach) -> anyhow::Result<()> {
    let shop = catalogue::shop();
    let mut new = 0;
    for product in &shop {
        new += usize::from(catalogue::list(http, reach, product).await?);
    }
    catalogue::wait_until_known(http, reach, &shop).await?;
    note(&format!("  catalogue  {} products, {new} of them new", shop.len()));
    Ok(())
}
