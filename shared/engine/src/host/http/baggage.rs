//! Shell: correlation id of a saga in the header `baggage` (W3C Baggage), so that spans of the called service have it.

use axum::http::{HeaderMap, HeaderValue};
use uuid::Uuid;

/// Header that carries the correlation id.
pub(super) const BAGGAGE: &str = "baggage";
const KEY: &str = "saga.correlation_id";

/// Returns the value of the header.
pub(super) fn header_of(correlation_id: Uuid) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("{KEY}={correlation_id}")).ok()
}

/// Finds the correlation id among the members of the header.
pub(super) fn correlation_id_in(headers: &HeaderMap) -> Option<Uuid> {
    let members = headers.get_all(BAGGAGE).into_iter().filter_map(|value| value.to_str().ok());
    members.flat_map(|value| value.split(',')).find_map(|member| {
        let (key, value) = member.split(';').next()?.split_once('=')?;
        (key.trim() == KEY).then(|| value.trim().parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlation_id_is_found_among_other_members() {
        let id = Uuid::from_u128(7);
        let found = |value: HeaderValue| {
            correlation_id_in(&HeaderMap::from_iter([(BAGGAGE.parse().expect("a name"), value)]))
        };
        assert_eq!(found(header_of(id).expect("a header")), Some(id));
        let among = format!("user=ada, {KEY} = {id};ttl=1 ,x=y");
        assert_eq!(found(HeaderValue::from_str(&among).expect("a header")), Some(id));
        assert_eq!(found(HeaderValue::from_static("user=ada,saga.correlation_id=none")), None);
    }
}
