//! Shell: the client of the bank.

use std::sync::Arc;
use std::time::Duration;

use contract::bank::{LEDGER_ID, LedgerCheck, LedgerRejection, UNKNOWN_CHARGE};
use futures::future::BoxFuture;
use jiff::Timestamp;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use saga_core::waiting::Task;
use saga_engine::host::http::{HttpClient, Problem, external_client_builder, is_passing, retry_after};
use saga_engine::host::settings::Settings;
use saga_engine::runtime::task_runner::{CallFailed, TaskHandler};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::PaymentSettings;
use crate::bank_ledger::{introduction, with_ledger};
use crate::bank_task::{BankAnswer, BankCall, BankTask};

/// Name of the dependency and of its circuit breaker.
pub const DEPENDENCY: &str = "bank";

/// Time limit of the question for the ledger. Somebody waits for the whole overview.
const LEDGER_CHECK_TIMEOUT: Duration = Duration::from_secs(1);

pub struct BankClient {
    http: Client,
    outgoing: HttpClient,
    base: String,
}

impl BankClient {
    /// Creates the task handler for the configured bank.
    ///
    /// # Errors
    ///
    /// If the address or the authorities are invalid.
    pub fn of(settings: &Settings<PaymentSettings>) -> anyhow::Result<Arc<dyn TaskHandler>> {
        Ok(Arc::new(Self::new(settings)?))
    }

    /// Creates a client for the configured bank.
    ///
    /// # Errors
    ///
    /// If the address or the authorities are invalid.
    pub fn new(settings: &Settings<PaymentSettings>) -> anyhow::Result<Self> {
        let base = settings.service.bank.trim_end_matches('/').to_owned();
        reqwest::Url::parse(&base)
            .map_err(|error| anyhow::anyhow!("settings: service.bank is {base:?}: {error}"))?;
        let http = external_client_builder(&settings.http)
            .pool_max_idle_per_host(settings.task_settings(DEPENDENCY).concurrency)
            .tcp_nodelay(true);
        let outgoing = HttpClient::new(&settings.http)?;
        Ok(Self { http: outgoing.trusting(http)?.build()?, outgoing, base })
    }

    async fn ask(&self, task: &Task) -> Result<Value, CallFailed> {
        let bank_task: BankTask = serde_json::from_str(&task.payload)
            .map_err(|error| CallFailed::permanent("a task that is none").caused_by(error))?;
        // The payment id is the key, so even two tasks for one order are one charge.
        let BankTask { order, payment: charge, ledger, call } = bank_task;
        let Some(ledger) = ledger else { return self.introduce().await };
        let (request, route) = match call {
            BankCall::Charge { context, .. } => {
                let body = json!({
                    "amount": context.total, "token": context.token, "reference": order.to_string(),
                });
                let request = self.http.post(format!("{}/v1/charges", self.base)).json(&body);
                (request.header("Idempotency-Key", charge.to_string()), "/v1/charges")
            }
            BankCall::Refund => self.of_charge(charge, "refund", "/v1/charges/{key}/refund"),
            BankCall::Reverse => self.of_charge(charge, "reverse", "/v1/charges/{key}/reverse"),
            BankCall::Close => self.of_charge(charge, "close", "/v1/charges/{key}/close"),
        };
        let response = self.sent(request.header(LEDGER_ID, ledger.to_string()), route).await?;
        let by = ledger_in(&response);
        let answer: BankAnswer = checked(response).await?;
        let answer = serde_json::to_value(answer)
            .map_err(|error| CallFailed::permanent("an answer without JSON").caused_by(error))?;
        Ok(with_ledger(answer, by))
    }

    fn of_charge(&self, charge: Uuid, verb: &str, route: &'static str) -> (RequestBuilder, &'static str) {
        (self.http.post(format!("{}/v1/charges/{charge}/{verb}", self.base)), route)
    }

    /// Asks for the ledger. Nothing is charged before its id is stored.
    async fn introduce(&self) -> Result<Value, CallFailed> {
        let response = self.sent(self.http.get(format!("{}/v1/ledger", self.base)), "/v1/ledger").await?;
        let Ledger { id } = checked(response).await?;
        Ok(introduction(id))
    }

    /// Asks the bank whether it has this ledger. Charges nothing.
    ///
    /// # Errors
    ///
    /// If the bank does not answer that.
    pub async fn check_ledger(&self, named: Uuid) -> Result<LedgerCheck, CallFailed> {
        let request = self.http.get(format!("{}/v1/ledger", self.base)).timeout(LEDGER_CHECK_TIMEOUT);
        let response = self.sent(request.header(LEDGER_ID, named.to_string()), "/v1/ledger").await?;
        let by = ledger_in(&response);
        if response.status() != StatusCode::MISDIRECTED_REQUEST {
            return checked::<Ledger>(response)
                .await
                .map(|_| LedgerCheck { named: Some(named), rejected: None });
        }
        let why = complaint(response.status(), response.json().await.ok());
        Ok(LedgerCheck { named: Some(named), rejected: Some(LedgerRejection { by, why }) })
    }

    async fn sent(&self, request: RequestBuilder, route: &'static str) -> Result<Response, CallFailed> {
        let sent = self.outgoing.send(request, Some(route)).await;
        sent.map_err(|error| failed("the bank does not answer", error))
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

/// Ledger of the bank, as it introduces itself.
#[derive(Deserialize)]
struct Ledger {
    id: Uuid,
}

/// Ledger that an answer of the bank names.
fn ledger_in(response: &Response) -> Option<Uuid> {
    response.headers().get(LEDGER_ID).and_then(|id| id.to_str().ok()?.parse().ok())
}

async fn checked<T: DeserializeOwned>(response: Response) -> Result<T, CallFailed> {
    match response.status() {
        StatusCode::OK | StatusCode::CREATED => {
            response.json().await.map_err(|error| failed("the bank's answer cannot be read", error))
        }
        status => {
            let retry_after = retry_after(status, response.headers(), Timestamp::now());
            let problem = response.json::<Problem>().await.ok();
            let is_unknown = problem.as_ref().is_some_and(|problem| problem.kind == UNKNOWN_CHARGE);
            let is_final = is_unknown || is_final(status);
            Err(CallFailed { is_final, retry_after, context: complaint(status, problem), source: None })
        }
    }
}

/// True if a repeated call would get the same answer, as far as the status tells. RFC 9110 §15.5 attributes all 4xx to the request. Some
/// are temporary, others concern the connection: a changed key, a proxy without the route. They affect every
/// call alike, so they are retried and count for the breaker.
fn is_final(status: StatusCode) -> bool {
    const UNREACHABLE: [StatusCode; 6] = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::NOT_FOUND,
        StatusCode::METHOD_NOT_ALLOWED,
        StatusCode::PROXY_AUTHENTICATION_REQUIRED,
        StatusCode::MISDIRECTED_REQUEST,
    ];
    status.is_client_error() && !is_passing(status) && !UNREACHABLE.contains(&status)
}

/// Describes a failed call in one line, with the detail of the problem document.
fn complaint(status: StatusCode, problem: Option<Problem>) -> String {
    match problem {
        Some(problem) => format!("the bank answered {status}: {}", problem.detail),
        None => format!("the bank answered {status}"),
    }
}

fn failed(context: &str, error: reqwest::Error) -> CallFailed {
    // The task's log line has the URL already, and it may contain secrets.
    CallFailed::transient(context).caused_by(error.without_url())
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::to_bytes;
    use axum::extract::Request;
    use axum::http::StatusCode as Status;
    use contract::money::{Currency, Money};
    use contract::order::PaymentContext;
    use contract::payment_id;
    use jiff::Timestamp;
    use saga_engine::host::http::client_builder;
    use tokio::net::TcpListener;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;

    const ORDER: Uuid = Uuid::from_u128(1);
    const LEDGER: Uuid = Uuid::from_u128(2);

    /// Received request: route, idempotency key, body.
    type Asked = (String, Option<String>, Value);

    /// Starts a bank that gives the same answer to everything.
    async fn bank(status: u16, answer: Value) -> (BankClient, UnboundedReceiver<Asked>) {
        let (to, asked) = unbounded_channel();
        let answering = move |request: Request| {
            let (to, answer) = (to.clone(), answer.clone());
            async move {
                let at = format!("{} {}", request.method(), request.uri());
                let key = request.headers().get("Idempotency-Key").and_then(|key| key.to_str().ok());
                let key = key.map(str::to_owned);
                let body = to_bytes(request.into_body(), 10_000).await.expect("a short body");
                to.send((at, key, serde_json::from_slice(&body).unwrap_or_default())).expect("a listener");
                (Status::from_u16(status).expect("a status"), axum::Json(answer))
            }
        };
        (client_of(Router::new().fallback(answering)).await, asked)
    }

    /// Starts a bank with these routes.
    async fn client_of(bank: Router) -> BankClient {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let base = format!("http://{}", listener.local_addr().expect("its address"));
        tokio::spawn(async move { axum::serve(listener, bank).await });
        let (http, outgoing) = (client_builder().build().expect("a client"), HttpClient::default());
        BankClient { http, outgoing, base }
    }

    fn task(call: BankCall) -> Task {
        let task = BankTask { order: ORDER, payment: payment_id(ORDER), ledger: Some(LEDGER), call };
        let payload = serde_json::to_string(&task).expect("JSON");
        let (id, kind, created_at) = (Uuid::from_u128(7), "charge".to_owned(), Timestamp::UNIX_EPOCH);
        Task {
            trace: None,
            id,
            kind,
            correlation_id: ORDER,
            payload,
            attempts: 0,
            claim: 0,
            created_at,
            dead_letter: None,
        }
    }

    /// Guarantee 4: every call names the charge by the payment's id, whichever task makes it.
    #[tokio::test]
    async fn each_call_is_sent_to_its_route_under_the_payment_id() {
        let (client, mut asked) = bank(200, json!({"outcome": "undone"})).await;
        let (customer, total) = ("ada".to_owned(), Money::new(3_300, Currency::EUR));
        let id = payment_id(ORDER);
        let context = PaymentContext { customer, total, token: "tok_ok".to_owned(), id };
        let charge = json!({"amount": total, "token": "tok_ok", "reference": ORDER.to_string()});
        let key = Some(id.to_string());
        let wanted = BankCall::Charge { context, deadline: Timestamp::MAX, may_be_sent: false };
        for (call, at, key, body) in [
            (wanted, "POST /v1/charges".to_owned(), key, charge),
            (BankCall::Refund, format!("POST /v1/charges/{id}/refund"), None, Value::Null),
            (BankCall::Reverse, format!("POST /v1/charges/{id}/reverse"), None, Value::Null),
            (BankCall::Close, format!("POST /v1/charges/{id}/close"), None, Value::Null),
        ] {
            client.call(&task(call)).await.expect("an answer");
            assert_eq!(asked.recv().await, Some((at, key, body)));
        }
    }

    /// Only an error of the request itself is final.
    #[tokio::test]
    async fn only_request_errors_of_bank_are_final() {
        for (status, is_final) in [
            (400, true),
            (402, true),
            (409, true),
            (410, true),
            (422, true),
            // Errors of the key, the proxy or the address, not of the request.
            (401, false),
            (403, false),
            (404, false),
            (405, false),
            (407, false),
            (421, false),
            (408, false),
            (425, false),
            (429, false),
            (500, false),
            (503, false),
        ] {
            let (client, _asked) = bank(status, json!({"detail": "no"})).await;
            let failed = client.call(&task(BankCall::Refund)).await.expect_err("no answer");
            assert_eq!(failed.is_final, is_final, "{status}: {failed}");
        }
        let (client, _asked) = bank(200, json!({"outcome": "who knows"})).await;
        let failed = client.call(&task(BankCall::Refund)).await.expect_err("no answer that can be read");
        assert!(!failed.is_final, "{failed}");
    }

    /// A proxy that lost the route answers 404 too, and that passes.
    #[tokio::test]
    async fn charge_unknown_to_the_bank_is_final() {
        let unknown = json!({
            "type": UNKNOWN_CHARGE, "title": "Not Found", "status": 404, "detail": "there is no such charge",
        });
        let (client, _asked) = bank(404, unknown).await;
        let failed = client.call(&task(BankCall::Refund)).await.expect_err("no answer");
        assert!(failed.is_final, "{failed}");
    }

    #[tokio::test]
    async fn bank_that_asks_for_a_pause_is_understood() {
        let asked = [("retry-after", "30")];
        for (status, expected) in [(429, Some(30)), (503, Some(30)), (500, None), (409, None)] {
            let answering = move || async move { (Status::from_u16(status).expect("a status"), asked) };
            let client = client_of(Router::new().fallback(answering)).await;
            let failed = client.call(&task(BankCall::Refund)).await.expect_err("no answer");
            assert_eq!(failed.retry_after.map(|time| time.as_secs()), expected, "{status}");
        }
    }

    /// An operator reads it in the dead letter.
    #[tokio::test]
    async fn failed_call_reports_problem_detail_of_bank() {
        let problem =
            json!({"type": "about:blank", "title": "Conflict", "status": 409, "detail": "key reused"});
        for (answer, complaint) in [
            (problem, "the bank answered 409 Conflict: key reused"),
            (json!({"detail": "no problem document"}), "the bank answered 409 Conflict"),
        ] {
            let (client, _asked) = bank(409, answer).await;
            let failed = client.call(&task(BankCall::Refund)).await.expect_err("no answer");
            assert_eq!(failed.context, complaint);
        }
    }
}
