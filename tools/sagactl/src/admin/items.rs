//! Shell: what admin answers, as people and programs get it.

use std::ops::ControlFlow;
use std::process::ExitCode;

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::listing::Form;
use cli::exit::{self, ItemError};
use cli::{View, print, print_error, print_json, view};

/// Prints an answer: as it is, in one line, or as `render` puts it for people.
pub fn show<T: DeserializeOwned>(
    answer: Value,
    form: Form,
    render: impl FnOnce(&T, &View) -> String,
) -> anyhow::Result<ExitCode> {
    if form.json {
        print_json(&answer);
    } else {
        print(&render(&read(answer)?, &view()));
    }
    Ok(ExitCode::SUCCESS)
}

/// An answer as what it means.
pub fn read<T: DeserializeOwned>(answer: Value) -> anyhow::Result<T> {
    serde_json::from_value(answer).context("admin answers otherwise than expected: is it of another version?")
}

/// What became of one thing: for programs, and for people.
pub struct Done {
    pub answer: Value,
    pub told: String,
}

/// Does something to one thing after another. What is refused is said, and the rest is done all the same; when
/// admin itself fails the rest is not tried.
pub async fn each(
    ids: Vec<impl ToString>,
    form: Form,
    act: impl AsyncFn(&str) -> anyhow::Result<Done>,
) -> anyhow::Result<ExitCode> {
    let mut several = Several::new(form);
    for id in ids {
        let id = id.to_string();
        if several.tell(&id, act(&id).await).is_break() {
            break;
        }
    }
    several.end()
}

/// What became of several things, which is told as it comes to be known; to programs in the end.
pub struct Several {
    form: Form,
    items: Vec<Value>,
    refused: Vec<Value>,
    code: Option<u8>,
    failed: Option<anyhow::Error>,
}

impl Several {
    pub const fn new(form: Form) -> Self {
        Self { form, items: vec![], refused: vec![], code: None, failed: None }
    }

    /// Tells what became of one; breaks when admin itself fails.
    pub fn tell(&mut self, id: &str, outcome: anyhow::Result<Done>) -> ControlFlow<()> {
        match outcome.with_context(|| id.to_owned()) {
            Ok(done) if self.form.json => self.items.push(done.answer),
            Ok(done) => print(&done.told),
            Err(error) if exit::code_of(&error) == exit::FAILED && !error.is::<ItemError>() => {
                self.failed = Some(error);
                return ControlFlow::Break(());
            }
            Err(error) => {
                let code = print_error(&error);
                self.rejected(id, &format!("{error:#}"), code);
            }
        }
        ControlFlow::Continue(())
    }

    /// Keeps for programs that one was refused. The first refusal says how the program ends, but what is not known in
    /// time says nothing where something else was refused.
    pub fn rejected(&mut self, id: &str, problem: &str, code: u8) {
        self.refused.push(json!({ "id": id, "problem": problem }));
        if self.code.is_none_or(|first| first == exit::FAILED) {
            self.code = Some(code);
        }
    }

    /// Ends the program, when everything is told.
    pub fn end(self) -> anyhow::Result<ExitCode> {
        if self.form.json {
            print_json(&json!({ "items": self.items, "next": null, "refused": self.refused }));
        }
        match self.failed {
            Some(error) => Err(error),
            None => Ok(self.code.map_or(ExitCode::SUCCESS, ExitCode::from)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_not_tried_only_when_admin_itself_fails() {
        let mut several = Several::new(Form { json: true });
        assert!(several.tell("a", Err(ItemError("under way".to_owned()).into())).is_continue());
        assert_eq!((several.refused.len(), several.code), (1, Some(exit::FAILED)));
        assert!(several.tell("b", Err(exit::rejected("it failed again"))).is_continue());
        assert!(
            several
                .tell("c", Err(exit::ExitError::new(exit::NOT_FOUND, "there is none").into()))
                .is_continue()
        );
        assert_eq!(
            (several.refused.len(), several.code),
            (3, Some(exit::REJECTED)),
            "what is known says more"
        );
        assert!(several.tell("d", Err(anyhow::anyhow!("nobody answers"))).is_break());
        assert_eq!(several.refused.len(), 3);
        assert!(several.end().is_err());
    }
}
