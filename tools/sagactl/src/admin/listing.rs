//! Pure: what is asked for, in which form, and how a list of it is shown.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use crate::output::{Column, table};

/// For whom an answer is printed.
#[derive(Debug, Clone, Copy, Args)]
pub struct Form {
    /// The API's own JSON.
    #[arg(long)]
    pub json: bool,
}

/// What to do with things of which there are few; they are listed when nothing is said.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct OrList<C: Subcommand> {
    #[command(subcommand)]
    pub command: Option<C>,
    #[command(flatten)]
    pub form: Form,
}

/// Which part of a list, and in which form.
#[derive(Debug, Args, Serialize)]
pub struct PageOptions {
    /// At most this many (1 to 200; 50 when not given).
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// Where the last page ended.
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    #[serde(skip)]
    pub form: Form,
}

/// A page of a list. The API calls the items of each list by their own name.
#[derive(Debug, Deserialize)]
pub struct Page<T> {
    #[serde(alias = "dead_letters", alias = "redrives", alias = "sagas", alias = "entries")]
    pub items: Vec<T>,
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// A table, and where the next page begins; or `nothing`.
    pub fn shown(&self, nothing: &str, columns: &[Column<T>]) -> String {
        if self.items.is_empty() {
            return nothing.to_owned();
        }
        let more = self.next.as_ref().map(|cursor| format!("\nmore with --cursor {cursor}"));
        table(columns, &self.items) + &more.unwrap_or_default()
    }
}

/// What one service answered to admin, or why it did not.
#[derive(Debug, Deserialize)]
pub struct OfService<T> {
    pub service: String,
    problem: Option<String>,
    #[serde(alias = "breakers", alias = "entries")]
    items: Option<Vec<T>>,
}

impl<T> OfService<T> {
    /// The items of all services, each with whose it is.
    pub fn items(all: &[Self]) -> Vec<(&str, &T)> {
        all.iter().flat_map(|of| of.items.iter().flatten().map(|item| (of.service.as_str(), item))).collect()
    }

    /// A line for each service that did not answer.
    pub fn problems(all: &[Self]) -> String {
        let mut text = String::new();
        for of in all {
            if let Some(problem) = &of.problem {
                let _ = write!(text, "\n{} cannot be asked: {problem}", of.service);
            }
        }
        text
    }
}
