//! Shell: requests to admin in an operator's name; what it answers becomes an exit code.

use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::answer;
use super::listing::{Form, Items};
use cli::View;
use cli::exit::{self, ExitError};
use cli::text::short;
use client::access::Access;
use client::http::{self, Answer, Http};

/// Admin asks other services in turn, and a thousand dead letters take their time.
const PATIENCE: Duration = Duration::from_secs(30);
/// A stream of events is opened anew after this at the latest.
const LONGEST_STREAM: Duration = Duration::from_hours(1);

/// Admin's metrics are a few kilobytes.
const MOST_METRICS_BYTES: usize = 4 * 1024 * 1024;

/// What is shown of a complaint.
const LONGEST_COMPLAINT: usize = 1_000;

/// Admin, and who asks it.
pub struct Admin {
    http: Http,
    base: Url,
    operator: Option<String>,
}

impl Admin {
    pub fn at(base: Url, access: &Access, operator: Option<String>) -> anyhow::Result<Self> {
        Ok(Self { http: Http::with_access(access)?, base, operator })
    }

    pub async fn ask(&self, path: &[&str], query: &impl Serialize) -> anyhow::Result<Value> {
        let url = self.url(path);
        let request = self.request(Method::GET, &url).query(query);
        settled(http::fetch(request, url.as_str()).await?, &url)
    }

    /// The same of what answers soon: who does not is taken for silent.
    pub async fn ask_soon(&self, path: &[&str], within: Duration) -> anyhow::Result<Value> {
        let url = self.url(path);
        let request = self.request(Method::GET, &url).timeout(within);
        settled(http::fetch(request, url.as_str()).await?, &url)
    }

    /// What admin measures, in the text format of Prometheus; only the beginning when there is far too much of it.
    pub async fn metrics_soon(&self, within: Duration) -> anyhow::Result<String> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("metrics");
        }
        let request = self.request(Method::GET, &url).timeout(within);
        let mut response = http::send(request, url.as_str()).await?;
        if !response.status().is_success() {
            bail!("{url} answers {}", response.status());
        }
        let mut text = Vec::new();
        while text.len() < MOST_METRICS_BYTES
            && let Some(chunk) = response.chunk().await?
        {
            text.extend_from_slice(&chunk);
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// `GET`, whose answer is printed: as it came, or as `render` puts it for people.
    pub async fn show<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &impl Serialize,
        form: Form,
        render: impl FnOnce(&T, &View) -> String,
    ) -> anyhow::Result<ExitCode> {
        answer::show(self.ask(path, query).await?, form, render)
    }

    /// `GET` of a list, which is printed in the shape that all lists have, or as `render` puts it for people.
    pub async fn list<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &impl Serialize,
        items: Items,
        form: Form,
        render: impl FnOnce(&T, &View) -> String,
    ) -> anyhow::Result<ExitCode> {
        answer::show(items.fields(self.ask(path, query).await?), form, render)
    }

    /// A request that changes something. Of the body only what was [said] is sent.
    pub async fn tell(&self, method: Method, path: &[&str], body: &impl Serialize) -> anyhow::Result<Value> {
        let url = self.url(path);
        let request = self.request(method, &url).json(&said(body)?);
        settled(http::fetch(request, url.as_str()).await?, &url)
    }

    pub async fn post(&self, path: &[&str], body: &impl Serialize) -> anyhow::Result<Value> {
        self.tell(Method::POST, path, body).await
    }

    /// `GET` of a stream of events, whose head has come.
    pub async fn listen(&self, path: &[&str]) -> anyhow::Result<Response> {
        let url = self.url(path);
        let request = self.request(Method::GET, &url).timeout(LONGEST_STREAM);
        let response = http::send(request.header("Accept", "text/event-stream"), url.as_str()).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        match settled(http::read(response).await?, &url) {
            Err(error) => Err(error),
            Ok(_) => bail!("{url} answers without events"),
        }
    }

    fn request(&self, method: Method, url: &Url) -> RequestBuilder {
        let request = self.http.request(method, url.as_str()).timeout(PATIENCE);
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

/// Reads where an admin is.
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

/// An object without the members that are null: nobody said anything about them.
pub fn said(object: &impl Serialize) -> anyhow::Result<Value> {
    let mut object = serde_json::to_value(object)?;
    if let Value::Object(members) = &mut object {
        members.retain(|_, member| !member.is_null());
    }
    Ok(object)
}

/// What was answered, or an error that ends the program with the code that its status means.
fn settled(answer: Answer, url: &Url) -> anyhow::Result<Value> {
    if answer.body.is_null() && answer.status.as_u16() < 500 {
        bail!("{url} answers {} and no JSON: is that an admin? see --admin", answer.status);
    }
    if answer.status.is_success() {
        return Ok(answer.body);
    }
    let complaint = short(&answer.error_text(), LONGEST_COMPLAINT);
    // A service says so of what another one has.
    if answer.status == StatusCode::NOT_FOUND && complaint.contains("there is no route ") {
        let here = url.origin().ascii_serialization();
        let text = format!("{here} is no admin, or one of another version ({complaint}): see --admin");
        return Err(ExitError::new(exit::NOT_FOUND, text).into());
    }
    let text = format!("{complaint}{}", hint(answer.status, &answer.body));
    Err(ExitError::new(code_for(answer.status), text).into())
}

const fn code_for(status: StatusCode) -> u8 {
    match status {
        StatusCode::NOT_FOUND => exit::NOT_FOUND,
        // Nothing is wrong with the request: it may be sent again.
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => exit::FAILED,
        _ if status.as_u16() < 500 => exit::REJECTED,
        _ => exit::FAILED,
    }
}

/// Which option of this program mends what the API complains of, where it is called differently there.
fn hint(status: StatusCode, problem: &Value) -> &'static str {
    if status == StatusCode::UNAUTHORIZED {
        return " (name a token with --token or SAGA_TOKEN; sagactl token create issues one)";
    }
    match problem.pointer("/errors/0/field").and_then(Value::as_str) {
        Some("reason") => " (say why with --reason)",
        Some("X-Operator") => " (say who you are with --operator)",
        Some("kind") => " (sagactl faults kinds lists them)",
        Some("delay_ms") => " (say how long with --delay)",
        Some(_) | None => "",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_cannot_leave_their_place_in_the_path() {
        let base = address("http://host:1/behind/a/proxy/").expect("an address");
        let admin = Admin::at(base, &Access::default(), None).expect("an admin");
        let url = admin.url(&["breakers", "payment", "bank/../x?y"]);
        assert_eq!(url.as_str(), "http://host:1/behind/a/proxy/api/admin/breakers/payment/bank%2F..%2Fx%3Fy");
        assert!(address("host:8080").is_err() && address("8080").is_err());
    }

    #[test]
    fn every_status_has_its_exit_code() {
        let url = Url::parse("http://h").expect("a URL");
        let code = |status: u16, body: Value| {
            let status = StatusCode::from_u16(status).expect("a status");
            settled(Answer { status, body }, &url).map_or_else(|error| exit::code_of(&error), |_| 0)
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
        // Somebody else's page.
        assert_eq!([code(404, Value::Null), code(200, Value::Null), code(502, Value::Null)], [1; 3]);
    }

    #[test]
    fn another_service_is_no_admin() {
        let url = Url::parse("http://host:8081/api/admin/overview").expect("a URL");
        let said = |detail: &str| {
            let answer = Answer { status: StatusCode::NOT_FOUND, body: json!({"detail": detail}) };
            settled(answer, &url).expect_err("it is not there").to_string()
        };
        let other = said("there is no route /api/admin/overview");
        assert!(other.starts_with("http://host:8081 is no admin"), "{other}");
        assert!(other.ends_with(": see --admin"), "{other}");
        assert_eq!(said("there is no saga 7"), "404 Not Found: there is no saga 7");
    }

    #[test]
    fn a_complaint_says_which_option_helps() {
        let url = Url::parse("http://h").expect("a URL");
        let body = json!({"errors": [{"field": "reason", "detail": "is required"}]});
        let refused = settled(Answer { status: StatusCode::UNPROCESSABLE_ENTITY, body }, &url);
        let text = format!("{:#}", refused.expect_err("refused"));
        assert_eq!(text, "422 Unprocessable Entity: reason: is required (say why with --reason)");
    }
}
