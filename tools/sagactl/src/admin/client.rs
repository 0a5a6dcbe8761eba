//! Shell: HTTP client of admin's API; the status of a response decides the exit code.

use std::fmt::Display;
use std::sync::Once;
use std::time::Duration;

use anyhow::{Context as _, bail};
use cli::exit::{self, ExitError};
use cli::note;
use cli::text::short;
use client::access::Access;
use client::http::{self, Answer, Http};
use devstack::audit::{ANONYMOUS_WARNING, overridden_warning};
use reqwest::{Method, RequestBuilder, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::args::OperatorName;

/// Time limit of a request. Admin calls other services, and changes up to a thousand dead letters.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size of admin's metrics, which are a few kilobytes.
const MAX_METRICS_BYTES: usize = 4 * 1024 * 1024;

const MAX_ERROR_CHARS: usize = 1_000;

pub struct Admin {
    http: Http,
    base: Url,
    operator: Option<String>,
    /// Warning of the first change, if nobody will know its author, or if the token overrides the name.
    warning: Option<String>,
    warned: Once,
}

impl Admin {
    pub fn new(base: Url, access: &Access, operator: Option<OperatorName>) -> anyhow::Result<Self> {
        let warning = match (&access.token, &operator) {
            (None, None) => Some(ANONYMOUS_WARNING.to_owned()),
            (Some(_), Some(OperatorName { name, is_given: true })) => Some(overridden_warning(name)),
            (Some(_), None) | (_, Some(_)) => None,
        };
        let operator = operator.map(|operator| operator.name);
        Ok(Self { http: Http::with_access(access)?, base, operator, warning, warned: Once::new() })
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &impl Serialize) -> anyhow::Result<T> {
        let url = self.url(path);
        fetch(self.request(Method::GET, &url).query(query), &url).await
    }

    /// Sends a `GET` with a time limit of its own.
    pub async fn get_within<T: DeserializeOwned>(&self, path: &[&str], limit: Duration) -> anyhow::Result<T> {
        let url = self.url(path);
        fetch(self.request(Method::GET, &url).timeout(limit), &url).await
    }

    pub async fn post<T: DeserializeOwned>(&self, path: &[&str], body: &impl Serialize) -> anyhow::Result<T> {
        let url = self.url(path);
        fetch(self.request(Method::POST, &url).json(body), &url).await
    }

    pub async fn delete<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        let url = self.url(path);
        fetch(self.request(Method::DELETE, &url).json(body), &url).await
    }

    /// Reads admin's metrics in the text format of Prometheus, up to a maximum size.
    pub async fn metrics(&self, limit: Duration) -> anyhow::Result<String> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("metrics");
        }
        let request = self.request(Method::GET, &url).timeout(limit);
        let mut response = http::send(request, url.as_str()).await?;
        if !response.status().is_success() {
            bail!("{url} answers {}", response.status());
        }
        let mut text = Vec::new();
        while text.len() < MAX_METRICS_BYTES
            && let Some(chunk) = response.chunk().await?
        {
            text.extend_from_slice(&chunk);
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn request(&self, method: Method, url: &Url) -> RequestBuilder {
        if method != Method::GET {
            self.warned.call_once(|| self.warning.iter().for_each(|warning| note(warning)));
        }
        let request = self.http.request(method, url.as_str()).timeout(TIMEOUT);
        match &self.operator {
            Some(operator) => request.header("X-Operator", operator),
            None => request,
        }
    }

    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "admin"]).extend(path);
        }
        url
    }
}

async fn fetch<T: DeserializeOwned>(request: RequestBuilder, url: &Url) -> anyhow::Result<T> {
    let body = body_of(http::fetch(request, url.as_str()).await?, url)?;
    serde_json::from_value(body)
        .with_context(|| format!("unexpected response of {url}: is admin of the same version as sagactl?"))
}

/// Parses the address of an admin.
pub fn address(text: &str) -> Result<Url, String> {
    let bad = |why: &dyn Display| {
        format!("{text:?} is no address of an admin ({why}): write it like http://HOST:8080")
    };
    let url = Url::parse(text).map_err(|error| bad(&error))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        scheme => Err(bad(&format_args!("{scheme} is neither http nor https"))),
    }
}

/// Returns the body of a successful response, else an error with the exit code of its status.
fn body_of(answer: Answer, url: &Url) -> anyhow::Result<Value> {
    if answer.body.is_null() && answer.status.as_u16() < 500 {
        bail!("{url} answers {} and no JSON: is that an admin? see --admin", answer.status);
    }
    if answer.status.is_success() {
        return Ok(answer.body);
    }
    let error = short(&answer.error_text(), MAX_ERROR_CHARS);
    // Another service than admin answered.
    if answer.status == StatusCode::NOT_FOUND && error.contains("there is no route ") {
        let here = url.origin().ascii_serialization();
        let text = format!("{here} is no admin, or one of another version ({error}): see --admin");
        return Err(ExitError::new(exit::NOT_FOUND, text).into());
    }
    let text = format!("{error}{}", hint(answer.status, &answer.body));
    Err(ExitError::new(code_for(answer.status), text).into())
}

const fn code_for(status: StatusCode) -> u8 {
    match status {
        StatusCode::NOT_FOUND => exit::NOT_FOUND,
        // The same request may succeed later.
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => exit::FAILED,
        _ if status.as_u16() < 500 => exit::REJECTED,
        _ => exit::FAILED,
    }
}

/// Names the option for an invalid field, if the option has another name than the field.
fn hint(status: StatusCode, problem: &Value) -> &'static str {
    if status == StatusCode::UNAUTHORIZED {
        return " (name a token with --token or SAGA_TOKEN; sagactl token create issues one)";
    }
    match problem.pointer("/errors/0/field").and_then(Value::as_str) {
        Some("reason") => " (add --reason)",
        Some("X-Operator") => " (add --operator)",
        Some("kind") => " (sagactl faults kinds lists them)",
        Some("seconds") => " (the time of --for, 24h at most)",
        Some("delay_ms") => " (add --delay)",
        Some(_) | None => "",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_cannot_escape_their_path_segment() {
        let base = address("http://host:1/behind/a/proxy/").expect("an address");
        let admin = Admin::new(base, &Access::default(), None).expect("an admin");
        let url = admin.url(&["breakers", "payment", "bank/../x?y"]);
        assert_eq!(url.as_str(), "http://host:1/behind/a/proxy/api/admin/breakers/payment/bank%2F..%2Fx%3Fy");
        assert!(address("host:8080").is_err() && address("8080").is_err());
    }

    #[test]
    fn each_status_has_its_exit_code() {
        let url = Url::parse("http://h").expect("a URL");
        let code = |status: u16, body: Value| {
            let status = StatusCode::from_u16(status).expect("a status");
            body_of(Answer { status, body }, &url).map_or_else(|error| exit::code_of(&error), |_| 0)
        };
        let cases = [
            (200, 0),
            (202, 0),
            (400, 2),
            (403, 2),
            (404, 4),
            (409, 2),
            (422, 2),
            (429, 1),
            (500, 1),
            (503, 1),
        ];
        for (status, wanted) in cases {
            assert_eq!(code(status, json!({"detail": "x"})), wanted, "{status}");
        }
        // Another program's page.
        assert_eq!([code(404, Value::Null), code(200, Value::Null), code(502, Value::Null)], [1; 3]);
    }

    #[test]
    fn another_service_is_recognised_as_no_admin() {
        let url = Url::parse("http://host:8081/api/admin/overview").expect("a URL");
        let error_of = |detail: &str| {
            let answer = Answer { status: StatusCode::NOT_FOUND, body: json!({"detail": detail}) };
            body_of(answer, &url).expect_err("not found").to_string()
        };
        let other = error_of("there is no route /api/admin/overview");
        assert!(other.starts_with("http://host:8081 is no admin"), "{other}");
        assert!(other.ends_with(": see --admin"), "{other}");
        assert_eq!(error_of("there is no saga 7"), "404 Not Found: there is no saga 7");
    }

    #[test]
    fn rejected_field_names_its_option() {
        let url = Url::parse("http://h").expect("a URL");
        let body = json!({"errors": [{"field": "reason", "detail": "is required"}]});
        let rejected = body_of(Answer { status: StatusCode::UNPROCESSABLE_ENTITY, body }, &url);
        let text = format!("{:#}", rejected.expect_err("rejected"));
        assert_eq!(text, "422 Unprocessable Entity: reason: is required (add --reason)");
    }
}
