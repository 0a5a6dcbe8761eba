//! Shell: requests to the services, with errors of one line.

use std::time::Duration;

use anyhow::{Context as _, bail};
use reqwest::{Method, StatusCode};
use serde_json::Value;

/// A local service that does not answer within this is in trouble.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An HTTP client.
#[derive(Clone)]
pub struct Http(reqwest::Client);

/// An answer.
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its body; null when it is no JSON.
    pub body: Value,
}

impl Answer {
    /// What a problem document says is wrong, or the status.
    pub fn complaint(&self) -> String {
        match self.body.get("detail").and_then(Value::as_str) {
            Some(detail) => format!("{}: {detail}", self.status),
            None => self.status.to_string(),
        }
    }
}

impl Http {
    /// A client.
    pub fn new() -> anyhow::Result<Self> {
        let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build();
        Ok(Self(client.context("no HTTP client can be made")?))
    }

    /// `GET`, however it ends.
    pub async fn get(&self, url: &str) -> anyhow::Result<Answer> {
        self.send(self.0.request(Method::GET, url), url).await
    }

    /// `GET` that may take longer than others.
    pub async fn get_within(&self, url: &str, limit: Duration) -> anyhow::Result<Answer> {
        self.send(self.0.request(Method::GET, url).timeout(limit), url).await
    }

    /// `POST`, however it ends.
    pub async fn post(&self, url: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send(self.0.request(Method::POST, url).json(body), url).await
    }

    async fn send(&self, request: reqwest::RequestBuilder, url: &str) -> anyhow::Result<Answer> {
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) if error.is_connect() => {
                bail!("nobody answers at {url}: is the system running?")
            }
            Err(error) if error.is_timeout() => bail!("{url} did not answer in time"),
            Err(error) => {
                return Err(error.without_url()).with_context(|| format!("request to {url}"));
            }
        };
        let status = response.status();
        let bytes = response.bytes().await.with_context(|| format!("answer of {url}"))?;
        Ok(Answer { status, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) })
    }
}
