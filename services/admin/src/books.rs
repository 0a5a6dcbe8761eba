//! Pure: what the last look at the books came to, whichever instance of admin took it.

use std::convert::Infallible;

use contract::overview::BooksLook;
use saga_core::decider::Decider;
use serde::{Deserialize, Serialize};

/// The id of the one row.
pub const THE_BOOKS: &str = "last";

/// The last look at the books; nothing until somebody has looked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Books(pub Option<BooksLook>);

impl Decider for Books {
    const KIND: &'static str = "books";
    /// A look, or that the last one is not to be gone by any more: both the command and the event.
    type Command = Option<BooksLook>;
    type Event = Option<BooksLook>;
    type Rejection = Infallible;

    fn decide(&self, look: &Option<BooksLook>) -> Result<Vec<Option<BooksLook>>, Infallible> {
        // What was wrong is so until a look can tell: one in which a service was away cannot.
        let was_wrong = self.0.as_ref().is_some_and(BooksLook::is_unbalanced);
        let cannot_tell = look.as_ref().is_some_and(|look| look.verdict == "IN_FLIGHT");
        Ok(if self.0 == *look || (was_wrong && cannot_tell) { vec![] } else { vec![look.clone()] })
    }

    fn evolve(&mut self, look: &Option<BooksLook>) {
        self.0.clone_from(look);
    }

    fn event_name(look: &Option<BooksLook>) -> &'static str {
        if look.is_some() { "Looked" } else { "Forgotten" }
    }
}
