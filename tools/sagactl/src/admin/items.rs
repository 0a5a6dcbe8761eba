//! Shell: a command on several items: the result of each, and one exit code.

use std::ops::ControlFlow;
use std::process::ExitCode;

use anyhow::Context as _;
use cli::exit::{self, ItemError};
use cli::{print, print_error, print_json};
use serde::Serialize;
use serde_json::{Value, json};

use super::response::Form;

/// Result for one item, as JSON and for people.
pub struct ItemOutcome {
    pub json: Value,
    pub text: String,
}

impl ItemOutcome {
    pub fn new(response: &impl Serialize, text: String) -> anyhow::Result<Self> {
        Ok(Self { json: serde_json::to_value(response)?, text })
    }
}

/// Acts on one item after another. An item that is rejected does not keep others from being tried; an admin that fails does.
pub async fn for_each(
    ids: Vec<impl ToString>,
    form: Form,
    act: impl AsyncFn(&str) -> anyhow::Result<ItemOutcome>,
) -> anyhow::Result<ExitCode> {
    let mut results = ItemResults::new(form);
    for id in ids {
        let id = id.to_string();
        if results.record(&id, act(&id).await).is_break() {
            break;
        }
    }
    results.finish()
}

/// Results for several items: text is printed at once, JSON at the end.
pub struct ItemResults {
    form: Form,
    items: Vec<Value>,
    rejected: Vec<Value>,
    code: Option<u8>,
    failure: Option<anyhow::Error>,
}

impl ItemResults {
    pub const fn new(form: Form) -> Self {
        Self { form, items: vec![], rejected: vec![], code: None, failure: None }
    }

    /// Records the result for an item. Breaks if admin fails.
    pub fn record(&mut self, id: &str, outcome: anyhow::Result<ItemOutcome>) -> ControlFlow<()> {
        match outcome.with_context(|| id.to_owned()) {
            Ok(outcome) if self.form.json => self.items.push(outcome.json),
            Ok(outcome) => print(&outcome.text),
            Err(error) if exit::code_of(&error) == exit::FAILED && !error.is::<ItemError>() => {
                self.failure = Some(error);
                return ControlFlow::Break(());
            }
            Err(error) => {
                let code = print_error(&error);
                self.reject(id, &format!("{error:#}"), code);
            }
        }
        ControlFlow::Continue(())
    }

    /// Records a rejection. The first one decides the exit code; a rejection precedes an unknown result.
    pub fn reject(&mut self, id: &str, problem: &str, code: u8) {
        self.rejected.push(json!({ "id": id, "problem": problem }));
        if self.code.is_none_or(|first| first == exit::FAILED) {
            self.code = Some(code);
        }
    }

    /// Prints the JSON, and returns the exit code.
    pub fn finish(self) -> anyhow::Result<ExitCode> {
        if self.form.json {
            print_json(&json!({ "items": self.items, "next": null, "rejected": self.rejected }));
        }
        match self.failure {
            Some(error) => Err(error),
            None => Ok(self.code.map_or(ExitCode::SUCCESS, ExitCode::from)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failure_of_admin_ends_the_command_early() {
        let mut results = ItemResults::new(Form { json: true });
        assert!(results.record("a", Err(ItemError("in flight".to_owned()).into())).is_continue());
        assert_eq!((results.rejected.len(), results.code), (1, Some(exit::FAILED)));
        assert!(results.record("b", Err(exit::rejected("it failed again"))).is_continue());
        let missing = exit::ExitError::new(exit::NOT_FOUND, "there is none");
        assert!(results.record("c", Err(missing.into())).is_continue());
        let recorded = (results.rejected.len(), results.code);
        assert_eq!(recorded, (3, Some(exit::REJECTED)), "a rejection precedes an unknown result");
        assert!(results.record("d", Err(anyhow::anyhow!("no answer"))).is_break());
        assert_eq!(results.rejected.len(), 3);
        assert!(results.finish().is_err());
    }
}
