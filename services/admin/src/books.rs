//! Pure: what the last look at the books came to, whichever instance of admin took it.

use std::convert::Infallible;

use contract::overview::{BooksLook, Verdict};
use saga_core::decider::{Decider, RetentionPolicy};
use serde::{Deserialize, Serialize};

/// The id of the one row.
pub const THE_BOOKS: &str = "last";

/// The last look at the books; nothing until somebody has looked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Books {
    /// What it came to.
    pub look: Option<BooksLook>,
    /// How often what was known was forgotten, as earlier builds did not count it.
    pub forgotten: u64,
}

/// What may be asked of the books.
#[derive(Debug, Clone)]
pub enum BooksCommand {
    /// Something was settled: what the last look came to is no longer what one would come to now.
    Forget,
    /// Somebody has looked.
    Look {
        /// What it came to.
        look: BooksLook,
        /// [`Books::forgotten`] when the look began: it knows nothing of what was settled since.
        forgotten: u64,
    },
}

/// What happened to the books.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum BooksEvent {
    /// What was known was forgotten so often.
    Forgotten {
        /// This time included.
        forgotten: u64,
    },
    /// Somebody has looked; or, of earlier builds, what was known was forgotten.
    Looked(Option<BooksLook>),
}

/// Earlier builds kept the look alone.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Stored {
    Counted { look: Option<BooksLook>, forgotten: u64 },
    Look(Option<BooksLook>),
}

impl From<Stored> for Books {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::Counted { look, forgotten } => Self { look, forgotten },
            Stored::Look(look) => Self { look, forgotten: 0 },
        }
    }
}

impl From<Books> for Stored {
    fn from(Books { look, forgotten }: Books) -> Self {
        if forgotten == 0 { Self::Look(look) } else { Self::Counted { look, forgotten } }
    }
}

impl Decider for Books {
    const KIND: &'static str = "books";
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeEvents;
    type Command = BooksCommand;
    type Event = BooksEvent;
    type Rejection = Infallible;

    fn decide(&self, command: &BooksCommand) -> Result<Vec<BooksEvent>, Infallible> {
        Ok(match command {
            // Though nothing is known: somebody may be looking.
            BooksCommand::Forget => vec![BooksEvent::Forgotten { forgotten: self.forgotten + 1 }],
            BooksCommand::Look { look, forgotten } => {
                // What was wrong is so until a look can tell: one in which a service was away cannot.
                let was_wrong = self.look.as_ref().is_some_and(BooksLook::is_unbalanced);
                let tells = !(was_wrong && look.verdict == Verdict::InFlight);
                let is_news = tells && *forgotten == self.forgotten && self.look.as_ref() != Some(look);
                is_news.then(|| BooksEvent::Looked(Some(look.clone()))).into_iter().collect()
            }
        })
    }

    fn evolve(&mut self, event: &BooksEvent) {
        match event {
            BooksEvent::Forgotten { forgotten } => *self = Self { look: None, forgotten: *forgotten },
            BooksEvent::Looked(look) => self.look.clone_from(look),
        }
    }

    fn event_name(event: &BooksEvent) -> &'static str {
        match event {
            BooksEvent::Looked(Some(_)) => "Looked",
            BooksEvent::Looked(None) | BooksEvent::Forgotten { .. } => "Forgotten",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn look(verdict: Verdict) -> BooksLook {
        BooksLook { verdict, at: jiff::Timestamp::UNIX_EPOCH, discrepancies: 0 }
    }

    fn asked(books: &mut Books, command: &BooksCommand) {
        let Ok(events) = books.decide(command);
        events.iter().for_each(|event| books.evolve(event));
    }

    #[test]
    fn a_look_that_began_before_something_was_settled_is_not_kept() {
        let mut books = Books::default();
        let look = |verdict, forgotten| BooksCommand::Look { look: self::look(verdict), forgotten };
        asked(&mut books, &look(Verdict::Unbalanced, 0));
        asked(&mut books, &BooksCommand::Forget);
        asked(&mut books, &look(Verdict::Unbalanced, 0));
        assert_eq!(books, Books { look: None, forgotten: 1 });
        asked(&mut books, &look(Verdict::Balanced, 1));
        assert_eq!(books.look, Some(self::look(Verdict::Balanced)));
    }

    /// Rows of earlier builds are read, and written as they were: an audit compares them with their history.
    #[test]
    fn books_are_kept_as_earlier_builds_did_until_something_is_forgotten_again() {
        let looked = r#"{"verdict":"BALANCED","at":"1970-01-01T00:00:00Z","discrepancies":0}"#;
        let mut books = Books::default();
        for text in [looked, "null", looked] {
            books.evolve(&serde_json::from_str(text).expect("an event"));
            assert_eq!(serde_json::to_string(&books).expect("JSON"), text);
            assert_eq!(serde_json::from_str::<Books>(text).expect("books"), books);
        }
        asked(&mut books, &BooksCommand::Forget);
        let text = serde_json::to_string(&books).expect("JSON");
        assert_eq!(text, r#"{"look":null,"forgotten":1}"#);
        assert_eq!(serde_json::from_str::<Books>(&text).expect("books"), books);
    }
}
