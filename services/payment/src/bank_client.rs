//! Shell: the calls to the bank.

use std::sync::Arc;
use std::time::Duration;

use contract::payment_id;
use futures::future::BoxFuture;
use reqwest::{Client, Response, StatusCode};
use saga_core::waiting::Task;
use saga_engine::host::http::Problem;
use saga_engine::host::settings::Settings;
use saga_engine::runtime::tasks::{CallFailed, TaskHandler};
use serde_json::{Value, json};

use crate::PaymentSettings;
use crate::policy::{BankAnswer, BankCall, BankTask};

/// What is called: the name of its breaker.
pub const DEPENDENCY: &str = "bank";

/// Calls the bank.
pub struct BankClient {
    http: Client,
    base: String,
}

impl BankClient {
    /// A client of the bank that the settings name.
    ///
    /// # Errors
    /// When the address is none.
    pub fn of(settings: &Settings<PaymentSettings>) -> anyhow::Result<Arc<dyn TaskHandler>> {
        let base = settings.service.bank.trim_end_matches('/').to_owned();
        reqwest::Url::parse(&base)
            .map_err(|error| anyhow::anyhow!("settings: service.bank is {base:?}: {error}"))?;
        let http = Client::builder()
            .pool_max_idle_per_host(settings.task.concurrency)
            .pool_idle_timeout(Duration::from_secs(30))
            .tcp_nodelay(true)
            .build()?;
        Ok(Arc::new(Self { http, base }))
    }

    async fn ask(&self, task: &Task) -> Result<Value, CallFailed> {
        let BankTask { order, call } = serde_json::from_str(&task.payload).map_err(|error| CallFailed {
            context: "a task that is none".to_owned(),
            is_final: true,
            source: Some(error.into()),
        })?;
        // The payment's id is the key: even two tasks for one order would be one charge.
        let charge = payment_id(order);
        let request = match call {
            BankCall::Charge(context) => {
                let body = json!({
                    "amount": context.total, "token": context.token, "reference": order.to_string(),
                });
                let request = self.http.post(format!("{}/v1/charges", self.base)).json(&body);
                request.header("Idempotency-Key", charge.to_string())
            }
            BankCall::Refund => self.http.post(format!("{}/v1/charges/{charge}/refund", self.base)),
            BankCall::Reverse => self.http.post(format!("{}/v1/charges/{charge}/reverse", self.base)),
        };
        let response = request.send().await.map_err(|error| failed("the bank does not answer", error))?;
        let answer: BankAnswer = checked(response).await?;
        serde_json::to_value(answer).map_err(|error| CallFailed {
            context: "an answer without JSON".to_owned(),
            is_final: true,
            source: Some(error.into()),
        })
    }
}

impl TaskHandler for BankClient {
    fn dependency(&self) -> &'static str {
        DEPENDENCY
    }

    fn call<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<Value, CallFailed>> {
        Box::pin(self.ask(task))
    }
}

async fn checked(response: Response) -> Result<BankAnswer, CallFailed> {
    match response.status() {
        StatusCode::OK | StatusCode::CREATED => {
            response.json().await.map_err(|error| failed("the bank's answer cannot be read", error))
        }
        status => Err(CallFailed {
            is_final: is_final(status),
            context: complaint(status, response).await,
            source: None,
        }),
    }
}

/// Whether the bank would answer the same however often it is asked. RFC 9110 §15.5 blames the request for all of
/// 4xx; these three are about the moment.
fn is_final(status: StatusCode) -> bool {
    let passes = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
    status.is_client_error() && !passes.contains(&status)
}

/// What the bank's problem document says, in one line.
async fn complaint(status: StatusCode, response: Response) -> String {
    match response.json::<Problem>().await {
        Ok(problem) => format!("the bank answered {status}: {}", problem.detail),
        Err(_) => format!("the bank answered {status}"),
    }
}

fn failed(context: &str, error: reqwest::Error) -> CallFailed {
    // The URL is in the log of the task already, and may carry what should not be logged.
    let source = Some(Box::new(error.without_url()) as _);
    CallFailed { context: context.to_owned(), is_final: false, source }
}
