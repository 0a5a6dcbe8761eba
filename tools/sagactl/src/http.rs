//! Shell: requests to the services, with errors of one line.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;

use crate::entry::Entry;

/// A local service that does not answer within this hangs.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct Http(reqwest::Client);

/// What a service said, with any status.
pub struct Answer {
    pub status: StatusCode,
    /// Null when it is no JSON.
    pub body: Value,
}

impl Answer {
    /// What a problem document says is wrong, field by field where it names them, or the status.
    pub fn complaint(&self) -> String {
        let errors = self.body.get("errors").and_then(Value::as_array);
        let text = |value: &Value, name| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let field = |error: &Value| Some(format!("{}: {}", text(error, "field")?, text(error, "detail")?));
        let fields: Vec<_> = errors.into_iter().flatten().filter_map(field).collect();
        match text(&self.body, "detail") {
            _ if !fields.is_empty() => format!("{}: {}", self.status, fields.join("; ")),
            Some(detail) => format!("{}: {detail}", self.status),
            None => self.status.to_string(),
        }
    }
}

impl Http {
    /// For what anybody may ask.
    pub fn new() -> anyhow::Result<Self> {
        Self::by(&Entry::default())
    }

    /// For what needs a token.
    pub fn by(entry: &Entry) -> anyhow::Result<Self> {
        // Nobody leads elsewhere, with a token or without.
        let mut client = reqwest::Client::builder().no_proxy().redirect(Policy::none()).timeout(TIMEOUT);
        if let Some(token) = &entry.token {
            let mut value = HeaderValue::try_from(format!("Bearer {}", token.secret()))?;
            value.set_sensitive(true);
            client = client.default_headers([(AUTHORIZATION, value)].into_iter().collect());
        }
        if let Some(pem) = &entry.authorities {
            let trusted = Certificate::from_pem_bundle(pem).unwrap_or_default();
            if trusted.is_empty() {
                bail!("the file of --ca (SAGA_CA) holds no certificates in PEM");
            }
            client = client.tls_certs_only(trusted);
        }
        Ok(Self(client.build().context("no HTTP client can be made")?))
    }

    pub async fn get(&self, url: &str) -> anyhow::Result<Answer> {
        answer(self.request(Method::GET, url), url).await
    }

    /// `GET` that may take longer than others.
    pub async fn get_within(&self, url: &str, limit: Duration) -> anyhow::Result<Answer> {
        answer(self.request(Method::GET, url).timeout(limit), url).await
    }

    pub async fn post(&self, url: &str, body: &Value) -> anyhow::Result<Answer> {
        answer(self.request(Method::POST, url).json(body), url).await
    }

    /// A request to be completed, and then sent with [`answer`] or [`begin`].
    pub fn request(&self, method: Method, url: &str) -> RequestBuilder {
        self.0.request(method, url)
    }
}

/// Sends a request and reads all of its answer.
pub async fn answer(request: RequestBuilder, url: &str) -> anyhow::Result<Answer> {
    read(begin(request, url).await?).await
}

/// Sends a request; of its answer only the head is read.
pub async fn begin(request: RequestBuilder, url: &str) -> anyhow::Result<Response> {
    request.send().await.map_err(|error| {
        if error.is_connect() {
            anyhow!("nobody answers at {url}: is the system running?")
        } else if error.is_timeout() {
            anyhow!("{url} did not answer in time")
        } else {
            anyhow::Error::new(error.without_url()).context(format!("request to {url}"))
        }
    })
}

/// Reads the rest of an answer.
pub async fn read(response: Response) -> anyhow::Result<Answer> {
    let (status, url) = (response.status(), response.url().clone());
    let bytes = response.bytes().await.map_err(reqwest::Error::without_url);
    let bytes = bytes.with_context(|| format!("answer of {url}"))?;
    Ok(Answer { status, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_complaint_names_the_fields() {
        let says = |body| Answer { status: StatusCode::UNPROCESSABLE_ENTITY, body }.complaint();
        let errors = json!([{"field": "reason", "detail": "is needed"}, {"field": "rate", "detail": "is 0"}]);
        let fields = json!({"detail": "invalid: reason, rate", "errors": errors});
        assert_eq!(says(fields), "422 Unprocessable Entity: reason: is needed; rate: is 0");
        assert_eq!(says(json!({"detail": "no"})), "422 Unprocessable Entity: no");
        assert_eq!(says(Value::Null), "422 Unprocessable Entity");
    }
}
