//! Shell: lists, all in one shape, and the options of a list.

use std::fmt::Write as _;

use admin_api::text::{counted, grouped};
use clap::{Args, Subcommand};
use cli::exit::rejected;
use cli::table::{Column, table};
use cli::view::View;
use serde::Serialize;
use uuid::Uuid;

use super::response::Form;
use crate::args;

/// A command that lists if it has no subcommand.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct OrList<C: Subcommand, L: Args = Form> {
    #[command(subcommand)]
    pub command: Option<C>,
    #[command(flatten)]
    pub list: L,
}

#[derive(Debug, Args)]
pub struct PageOptions {
    /// Maximum number of items (1 to 200) [default: 50].
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Start of the page: next of the page before.
    #[arg(long)]
    pub cursor: Option<String>,
    #[command(flatten)]
    pub form: Form,
}

impl PageOptions {
    /// Reads a cursor that is an id.
    pub fn cursor_id(&self) -> anyhow::Result<Option<Uuid>> {
        let id = |cursor: &String| args::id(cursor).map_err(|why| rejected(format!("--cursor: {why}")));
        self.cursor.as_ref().map(id).transpose()
    }
}

/// A list, or a page of one.
#[derive(Debug, Serialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// `--cursor` of the next page.
    pub next: Option<String>,
    /// Ids of damaged items, which cannot be shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// Services whose items are missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<Unreachable>,
    /// Services with more items than are listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub truncated: Vec<String>,
    /// Number of items on all pages, if they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Messages that admin has not consumed yet, if the broker reports them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unconsumed: Option<u64>,
}

/// A service that did not answer.
#[derive(Debug, Serialize)]
pub struct Unreachable {
    pub service: String,
    pub problem: String,
}

/// A complete list.
impl<T> FromIterator<T> for Page<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self {
            items: items.into_iter().collect(),
            next: None,
            unreadable: vec![],
            unreachable: vec![],
            truncated: vec![],
            total: None,
            unconsumed: None,
        }
    }
}

impl<T> Page<T> {
    /// Formats the items as a table, or `empty`, followed by what is missing and the cursor of the next page.
    pub fn text(&self, empty: &str, columns: &[Column<T>], view: &View) -> String {
        let mut text =
            if self.items.is_empty() { empty.to_owned() } else { table(columns, &self.items, view) };
        if let Some(count) = self.count() {
            let _ = write!(text, "\n{count}");
        }
        if let Some(unconsumed) = self.unconsumed.filter(|unconsumed| *unconsumed > 0) {
            let messages = counted(unconsumed, "message", "messages");
            let _ = write!(text, "\nadmin has yet to consume {messages}: there may be more");
        }
        if !self.unreadable.is_empty() {
            let _ = write!(text, "\ndamaged, and not shown: {}", self.unreadable.join(", "));
        }
        for Unreachable { service, problem } in &self.unreachable {
            let _ = write!(text, "\n{service} is missing: {problem}");
        }
        if !self.truncated.is_empty() {
            let _ = write!(text, "\nthere are more than listed: {}", self.truncated.join(", "));
        }
        if let Some(cursor) = &self.next {
            let _ = write!(text, "\nnext page: --cursor {cursor}");
        }
        text
    }

    /// Number of items shown, and of all, if there are more: `50 of 1,234`.
    fn count(&self) -> Option<String> {
        let shown = grouped((self.items.len() + self.unreadable.len()) as u64);
        match self.total {
            Some(0) => None,
            Some(total) => Some(format!("{shown} of {}", grouped(total))),
            None => self.next.is_some().then(|| format!("{shown} shown; the total was not counted")),
        }
    }
}

#[cfg(test)]
mod tests {
    use cli::table::left;

    use super::*;

    #[test]
    fn text_of_a_page_names_what_is_missing_from_it() {
        let columns = [left("sku", |sku: &String| sku.clone())];
        let next = Some("abc".to_owned());
        let page = Page { next: next.clone(), ..Page::from_iter(["pen".to_owned()]) };
        let text = page.text("none", &columns, &View::FILE);
        assert!(text.contains("1 shown; the total was not counted"), "{text}");
        let unreachable =
            Unreachable { service: "bank".to_owned(), problem: "it does not answer".to_owned() };
        let page = Page {
            unreadable: vec!["7".to_owned()],
            unreachable: vec![unreachable],
            truncated: vec!["order".to_owned()],
            total: Some(1_234),
            unconsumed: Some(7),
            ..page
        };
        let text = page.text("none", &columns, &View::FILE);
        for part in [
            "pen",
            "2 of 1,234",
            "admin has yet to consume 7 messages",
            "damaged, and not shown: 7",
            "bank is missing: it does not answer",
            "there are more than listed: order",
            "--cursor abc",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(Page::from_iter([]).text("none", &columns, &View::FILE), "none");
    }
}
