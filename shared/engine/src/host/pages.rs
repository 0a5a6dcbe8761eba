//! Shell: pages of a ledger, as one service sends them to another: as JSON, or packed for whoever says that it reads that,
//! which is less work for both.

use std::convert::Infallible;
use std::error::Error;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::http::Problem;

/// The media type of a packed page: MessagePack in which members have their names, as builds differ in what they have.
pub const PACKED: &str = "application/msgpack";
const JSON: &str = "application/json";

/// What an entry takes, more or less.
const ENTRY_BYTES: usize = 512;

/// A page of entries, sorted by key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Page<T> {
    /// One for each row that can be read, in the order of their keys; at most
    /// [`ENTRIES_PAGE`](super::reading::ENTRIES_PAGE).
    pub entries: Vec<T>,
    /// Where the next page starts; `None` on the last.
    pub next: Option<String>,
    /// Rows that cannot be read, as `kind/id`: one that is damaged hides no other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// Finished rows of sagas with lower ids may have left, and are missing here; of no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_before: Option<Uuid>,
    /// What came of holding every row of this page against its events, and every history against its row; `None` where
    /// that was not done. Where every page has it, no row of the kind need be checked once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folds: Option<Folds>,
}

/// What came of holding the rows of a page against their events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folds {
    /// The kind of the rows.
    pub kind: String,
    /// Rows looked at.
    pub rows: u64,
    /// Rows that differ from the fold of their events, as `kind/id`; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differing: Vec<String>,
}

impl<T> Page<T> {
    /// A page of these rows of a kind: the id of each, and its entry if it can be read.
    pub(super) fn of(
        kind: &str,
        rows: impl IntoIterator<Item = (String, Option<T>)>,
        next: Option<String>,
    ) -> Self {
        let (mut entries, mut unreadable) = (Vec::new(), Vec::new());
        for (id, entry) in rows {
            match entry {
                Some(entry) => entries.push(entry),
                None => unreadable.push(format!("{kind}/{id}")),
            }
        }
        Self { entries, next, unreadable, left_before: None, folds: None }
    }

    /// The answer that is this page, in a form that was asked for.
    ///
    /// # Errors
    /// When an entry has no such form.
    pub fn written(&self, encoding: Encoding) -> Result<Response, Problem>
    where
        T: Serialize,
    {
        let mut body = Vec::with_capacity(self.entries.len() * ENTRY_BYTES);
        let media_type = match encoding {
            Encoding::Json => {
                serde_json::to_writer(&mut body, self).map_err(|error| Problem::internal(&error))?;
                JSON
            }
            Encoding::Packed => {
                rmp_serde::encode::write_named(&mut body, self).map_err(|error| Problem::internal(&error))?;
                PACKED
            }
        };
        Ok(([(CONTENT_TYPE, media_type)], body).into_response())
    }

    /// The page that was answered, in the form that these headers name.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(headers: &HeaderMap, body: &[u8]) -> Result<Self, Box<dyn Error + Send + Sync>>
    where
        T: DeserializeOwned,
    {
        match headers.get(CONTENT_TYPE).is_some_and(|media_type| media_type == PACKED) {
            true => Ok(rmp_serde::from_slice(body)?),
            false => Ok(serde_json::from_slice(body)?),
        }
    }
}

/// How a page is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// As JSON: whoever asks for nothing gets that.
    Json,
    /// As [`PACKED`].
    Packed,
}

impl<S: Sync> FromRequestParts<S> for Encoding {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let is_asked_for = parts.headers.get(ACCEPT).is_some_and(|accepted| accepted == PACKED);
        Ok(if is_asked_for { Self::Packed } else { Self::Json })
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use axum::http::Request;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Entry {
        id: Uuid,
        name: String,
        #[serde(default)]
        count: Option<u64>,
    }

    /// What another build has in an entry.
    #[derive(Debug, Serialize)]
    struct Newer {
        color: &'static str,
        name: &'static str,
        parts: Vec<Option<i64>>,
        id: Uuid,
    }

    fn page<T>(entry: T) -> Page<T> {
        let folds = Folds { kind: "thing".to_owned(), rows: 1, differing: vec!["thing/1".to_owned()] };
        let next = Some("1".to_owned());
        Page {
            entries: vec![entry],
            next,
            unreadable: vec![],
            left_before: Some(Uuid::max()),
            folds: Some(folds),
        }
    }

    async fn sent<T: Serialize>(page: &Page<T>, encoding: Encoding) -> (HeaderMap, Vec<u8>) {
        let (parts, body) = page.written(encoding).expect("an answer").into_parts();
        (parts.headers, to_bytes(body, usize::MAX).await.expect("a body").to_vec())
    }

    #[tokio::test]
    async fn a_page_arrives_as_it_was_sent_in_either_encoding() {
        let sent_page = page(Entry { id: Uuid::max(), name: "a\"ä".to_owned(), count: Some(3) });
        for encoding in [Encoding::Json, Encoding::Packed] {
            let (headers, body) = sent(&sent_page, encoding).await;
            let read = Page::<Entry>::read(&headers, &body).expect("a page");
            assert_eq!(json!(read), json!(sent_page), "{encoding:?}");
            assert!(Page::<Entry>::read(&headers, &body[1..]).is_err(), "{encoding:?}");
        }
    }

    #[tokio::test]
    async fn what_another_build_adds_or_leaves_out_is_no_obstacle() {
        let newer = page(Newer { color: "red", name: "b", parts: vec![Some(1), None], id: Uuid::nil() });
        for encoding in [Encoding::Json, Encoding::Packed] {
            let (headers, body) = sent(&newer, encoding).await;
            let read = Page::<Entry>::read(&headers, &body).expect("a page");
            let entry = Entry { id: Uuid::nil(), name: "b".to_owned(), count: None };
            assert_eq!((read.entries, read.next), (vec![entry], Some("1".to_owned())), "{encoding:?}");
        }
    }

    /// Earlier builds ask for nothing.
    #[tokio::test]
    async fn only_who_says_that_it_reads_packed_pages_gets_them() {
        for (accepted, encoding) in [
            (None, Encoding::Json),
            (Some("*/*"), Encoding::Json),
            (Some(JSON), Encoding::Json),
            (Some(PACKED), Encoding::Packed),
        ] {
            let request = accepted.map_or(Request::builder(), |it| Request::builder().header(ACCEPT, it));
            let (mut parts, ()) = request.body(()).expect("a request").into_parts();
            assert_eq!(Encoding::from_request_parts(&mut parts, &()).await, Ok(encoding), "{accepted:?}");
        }
    }
}
