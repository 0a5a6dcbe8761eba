//! Shell: the `Idempotency-Key` header (IETF draft-ietf-httpapi-idempotency-key-header).

use axum::http::HeaderMap;
use saga_core::input::RequestKey;
use sha2::{Digest, Sha256};
use utoipa::IntoParams;

use super::problem::Problem;

/// Maximum length of a key: enough for any UUID or hash, and cheap to store.
const LONGEST_KEY: usize = 200;

/// Header `Idempotency-Key`, for the descriptions of routes.
#[derive(IntoParams)]
#[into_params(names("Idempotency-Key"), parameter_in = Header)]
pub struct IdempotencyKey(
    /// A repetition under the same key gets the same answer. Another request under the key is rejected with 422.
    #[param(required = false, min_length = 1, max_length = 200, pattern = "^[!-~]([ -~]*[!-~])?$")]
    pub String,
);

/// Reads the request's key within `scope` (the route), if it has one.
///
/// # Errors
/// 422 for a key that is empty, too long or not visible ASCII.
pub fn request_key(headers: &HeaderMap, scope: &str, body: &[u8]) -> Result<Option<RequestKey>, Problem> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let key = value.to_str().unwrap_or_default().trim();
    if key.is_empty() || key.len() > LONGEST_KEY {
        let detail = format!("must be 1 to {LONGEST_KEY} visible ASCII characters");
        return Err(Problem::field("Idempotency-Key", detail));
    }
    let digest = Sha256::digest(body);
    let fingerprint = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Some(RequestKey { key: format!("{scope} {key}"), fingerprint }))
}
