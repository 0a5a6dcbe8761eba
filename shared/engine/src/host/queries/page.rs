//! Shell: pages of a ledger between services, as JSON or as MessagePack, which costs both sides less.

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

use crate::host::http::Problem;

/// Media type of MessagePack with named members, so that builds may differ in their members.
pub const MESSAGE_PACK: &str = "application/msgpack";
const JSON: &str = "application/json";

/// Typical size of an encoded entry.
const ENTRY_BYTES: usize = 512;

/// Page of ledger entries, sorted by key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Page<T> {
    /// Entries of the readable rows, in the order of their keys; at most [`MAX_ENTRIES`](super::MAX_ENTRIES).
    pub entries: Vec<T>,
    /// Start of the next page; `None` on the last page.
    pub next: Option<String>,
    /// Damaged rows, as `kind/id`. A damaged row hides no other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// Saga id below which finished rows may have been purged, and are missing here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purged_before: Option<Uuid>,
    /// Verification of this page's rows against their events; `None` where it was not verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folds: Option<Folds>,
}

/// Verification of the rows of a page against the folds of their events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folds {
    /// Kind of the verified rows.
    pub kind: String,
    /// Number of rows that were verified.
    pub rows: u64,
    /// Rows that differ from the fold of their events, as `kind/id`; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differing: Vec<String>,
}

impl<T> Page<T> {
    /// Makes a page of rows of a kind, each with its id, and its entry if the row is readable.
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
        Self { entries, next, unreadable, purged_before: None, folds: None }
    }

    /// Encodes the page as an HTTP answer.
    ///
    /// # Errors
    /// When an entry cannot be encoded.
    pub fn encode(&self, encoding: Encoding) -> Result<Response, Problem>
    where
        T: Serialize,
    {
        let mut body = Vec::with_capacity(self.entries.len() * ENTRY_BYTES);
        let media_type = match encoding {
            Encoding::Json => {
                serde_json::to_writer(&mut body, self).map_err(|error| Problem::internal(&error))?;
                JSON
            }
            Encoding::MessagePack => {
                rmp_serde::encode::write_named(&mut body, self).map_err(|error| Problem::internal(&error))?;
                MESSAGE_PACK
            }
        };
        Ok(([(CONTENT_TYPE, media_type)], body).into_response())
    }

    /// Decodes a page by the content type of its answer.
    ///
    /// # Errors
    /// When the body is no such page.
    pub fn decode(headers: &HeaderMap, body: &[u8]) -> Result<Self, Box<dyn Error + Send + Sync>>
    where
        T: DeserializeOwned,
    {
        match headers.get(CONTENT_TYPE).is_some_and(|media_type| media_type == MESSAGE_PACK) {
            true => Ok(rmp_serde::from_slice(body)?),
            false => Ok(serde_json::from_slice(body)?),
        }
    }
}

/// Encoding of a page, which the client chooses by `Accept`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// JSON, unless the client accepts MessagePack.
    Json,
    /// MessagePack, of the media type [`MESSAGE_PACK`].
    MessagePack,
}

impl<S: Sync> FromRequestParts<S> for Encoding {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let accepts_message_pack = parts.headers.get(ACCEPT).is_some_and(|accepted| accepted == MESSAGE_PACK);
        Ok(if accepts_message_pack { Self::MessagePack } else { Self::Json })
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

    /// Entry of another build, with other members.
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
            purged_before: Some(Uuid::max()),
            folds: Some(folds),
        }
    }

    async fn sent<T: Serialize>(page: &Page<T>, encoding: Encoding) -> (HeaderMap, Vec<u8>) {
        let (parts, body) = page.encode(encoding).expect("an answer").into_parts();
        (parts.headers, to_bytes(body, usize::MAX).await.expect("a body").to_vec())
    }

    #[tokio::test]
    async fn page_arrives_unchanged_in_either_encoding() {
        let sent_page = page(Entry { id: Uuid::max(), name: "a\"ä".to_owned(), count: Some(3) });
        for encoding in [Encoding::Json, Encoding::MessagePack] {
            let (headers, body) = sent(&sent_page, encoding).await;
            let read = Page::<Entry>::decode(&headers, &body).expect("a page");
            assert_eq!(json!(read), json!(sent_page), "{encoding:?}");
            assert!(Page::<Entry>::decode(&headers, &body[1..]).is_err(), "{encoding:?}");
        }
    }

    #[tokio::test]
    async fn members_unknown_or_missing_in_another_build_are_ignored() {
        let newer = page(Newer { color: "red", name: "b", parts: vec![Some(1), None], id: Uuid::nil() });
        for encoding in [Encoding::Json, Encoding::MessagePack] {
            let (headers, body) = sent(&newer, encoding).await;
            let read = Page::<Entry>::decode(&headers, &body).expect("a page");
            let entry = Entry { id: Uuid::nil(), name: "b".to_owned(), count: None };
            assert_eq!((read.entries, read.next), (vec![entry], Some("1".to_owned())), "{encoding:?}");
        }
    }

    #[tokio::test]
    async fn message_pack_is_sent_only_to_clients_that_accept_it() {
        for (accepted, encoding) in [
            (None, Encoding::Json),
            (Some("*/*"), Encoding::Json),
            (Some(JSON), Encoding::Json),
            (Some(MESSAGE_PACK), Encoding::MessagePack),
        ] {
            let request = accepted.map_or(Request::builder(), |it| Request::builder().header(ACCEPT, it));
            let (mut parts, ()) = request.body(()).expect("a request").into_parts();
            assert_eq!(Encoding::from_request_parts(&mut parts, &()).await, Ok(encoding), "{accepted:?}");
        }
    }
}
