//! Pure: what is asked for, in which form, and how a list of it is shown: every list in the same shape.

use std::fmt::Write as _;

use admin_api::text::{counted, grouped};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use cli::{Column, View, table};

/// For whom an answer is printed.
#[derive(Debug, Clone, Copy, Args)]
pub struct Form {
    /// One JSON object; of a list: its items, and next, which --cursor takes.
    #[arg(long)]
    pub json: bool,
}

/// A word for things that are listed when nothing is said, with the options of the list.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct OrList<C: Subcommand, L: Args = Form> {
    #[command(subcommand)]
    pub command: Option<C>,
    #[command(flatten)]
    pub list: L,
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

/// Where an answer has the items of a list.
#[derive(Debug, Clone, Copy)]
pub enum Items {
    /// In its member of this name, beside which others may stand.
    In(&'static str),
    /// In the members of this name of what each service answered.
    OfEach(&'static str),
}

impl Items {
    /// The list, in the shape that all lists have here.
    pub fn fields(self, answer: Value) -> Value {
        let mut list = match (self, answer) {
            (Self::In(name), Value::Object(mut members)) => {
                let items = members.remove(name).unwrap_or_else(|| json!([]));
                members.insert("items".to_owned(), items);
                members
            }
            (Self::OfEach(name), Value::Array(services)) => of_each(name, services),
            // Somebody else's answer: whoever reads it will say so.
            (_, other) => return other,
        };
        list.entry("next").or_insert(Value::Null);
        if let Some(Value::Array(silent)) = list.get_mut("unreachable") {
            silent.iter_mut().filter(|service| service.is_string()).for_each(|service| {
                *service = json!({ "service": service, "problem": "it does not answer" });
            });
        }
        Value::Object(list)
    }
}

fn of_each(name: &str, services: Vec<Value>) -> Map<String, Value> {
    let (mut items, mut unreachable, mut cut) = (Vec::new(), Vec::new(), Vec::new());
    for mut of in services {
        let service = of["service"].take();
        if let Value::Array(own) = of[name].take() {
            items.extend(own.into_iter().map(|mut item| {
                item["service"] = service.clone();
                item
            }));
        }
        if of["more"] == true {
            cut.push(service.clone());
        }
        if let problem @ Value::String(_) = of["problem"].take() {
            unreachable.push(json!({ "service": service, "problem": problem }));
        }
    }
    let mut list = Map::new();
    list.insert("items".to_owned(), items.into());
    list.insert("unreachable".to_owned(), unreachable.into());
    list.insert("cut".to_owned(), cut.into());
    list
}

/// A list, or a page of one.
#[derive(Debug, Deserialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Where the next page begins.
    #[serde(default)]
    pub next: Option<String>,
    /// What is damaged and cannot be shown.
    #[serde(default)]
    unreadable: Vec<String>,
    /// Services whose items are missing.
    #[serde(default)]
    unreachable: Vec<Silent>,
    /// Services that have more than they tell at once.
    #[serde(default)]
    cut: Vec<String>,
    /// How many there are on all pages, when that was counted.
    #[serde(default)]
    total: Option<u64>,
    /// Messages that what is shown is behind by, when the broker said so.
    #[serde(default)]
    unconsumed: Option<u64>,
}

/// A service that did not answer, and why.
#[derive(Debug, Deserialize)]
pub struct Silent {
    pub service: String,
    problem: String,
}

impl<T> Page<T> {
    /// A page of these.
    #[cfg(test)]
    pub const fn of(items: Vec<T>) -> Self {
        Self {
            items,
            next: None,
            unreadable: vec![],
            unreachable: vec![],
            cut: vec![],
            total: None,
            unconsumed: None,
        }
    }

    /// A table, or `nothing`; then what is missing from it, and where the next page begins.
    pub fn shown(&self, nothing: &str, columns: &[Column<T>], view: &View) -> String {
        let mut text =
            if self.items.is_empty() { nothing.to_owned() } else { table(columns, &self.items, view) };
        if let Some(count) = self.count() {
            let _ = write!(text, "\n{count}");
        }
        if let Some(behind) = self.unconsumed.filter(|behind| *behind > 0) {
            let _ = write!(
                text,
                "\nadmin has still to hear {}: there may be more",
                counted(behind, "message", "messages")
            );
        }
        if !self.unreadable.is_empty() {
            let _ = write!(text, "\ndamaged, and not shown: {}", self.unreadable.join(", "));
        }
        for Silent { service, problem } in &self.unreachable {
            let _ = write!(text, "\n{service} cannot be asked: {problem}");
        }
        if !self.cut.is_empty() {
            let _ = write!(text, "\nmore wait than are shown: {}", self.cut.join(", "));
        }
        if let Some(cursor) = &self.next {
            let _ = write!(text, "\nmore with --cursor {cursor}");
        }
        text
    }

    /// How many of how many are shown, where that is not what anybody sees: `50 of 1,234`.
    fn count(&self) -> Option<String> {
        let shown = self.items.len() + self.unreadable.len();
        match self.total {
            Some(0) => None,
            Some(total) => Some(format!("{} of {}", grouped(shown as u64), grouped(total))),
            None if self.next.is_some() => {
                Some(format!("{} shown; how many there are was not counted", grouped(shown as u64)))
            }
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cli::left;

    #[test]
    fn every_list_has_items_and_next() {
        let page = json!({"sagas": [1, 2], "next": "abc", "unreadable": ["x"]});
        let wanted = json!({"items": [1, 2], "next": "abc", "unreadable": ["x"]});
        assert_eq!(Items::In("sagas").fields(page), wanted);
        let last = json!({"faults": [], "unreachable": ["bank"]});
        let wanted = json!({
            "items": [], "next": null, "unreachable": [{"service": "bank", "problem": "it does not answer"}],
        });
        assert_eq!(Items::In("faults").fields(last), wanted);
    }

    #[test]
    fn what_services_answered_one_by_one_is_one_list() {
        let services = json!([
            {"service": "order", "breakers": [{"name": "a"}, {"name": "b"}], "more": true},
            {"service": "payment", "breakers": [], "problem": "payment does not answer"},
        ]);
        let wanted = json!({
            "items": [{"name": "a", "service": "order"}, {"name": "b", "service": "order"}], "next": null,
            "unreachable": [{"service": "payment", "problem": "payment does not answer"}], "cut": ["order"],
        });
        assert_eq!(Items::OfEach("breakers").fields(services), wanted);
    }

    #[test]
    fn a_page_says_what_is_missing_from_it() {
        let page: Page<String> = serde_json::from_value(json!({
            "items": ["pen"], "next": "abc", "unreadable": ["7"],
            "unreachable": [{"service": "bank", "problem": "it does not answer"}], "cut": ["order"],
            "total": 1_234, "unconsumed": 7,
        }))
        .expect("a page");
        let columns = [left("sku", |sku: &String| sku.clone())];
        let shown = page.shown("none", &columns, &View::FILE);
        for said in [
            "pen",
            "damaged, and not shown: 7",
            "bank cannot be asked: it does",
            "more wait than are shown: order",
            "--cursor abc",
            "2 of 1,234",
            "still to hear 7 messages",
        ] {
            assert!(shown.contains(said), "{shown}");
        }
        let page: Page<String> =
            serde_json::from_value(json!({"items": ["pen"], "next": "abc"})).expect("a page");
        assert!(
            page.shown("none", &columns, &View::FILE).contains("1 shown; how many there are was not counted")
        );
        assert_eq!(Page::of(vec![]).shown("none", &columns, &View::FILE), "none");
    }
}
