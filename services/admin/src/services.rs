//! Shell: admin's calls to the other services.

use std::time::Duration;

use reqwest::{Client, Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use shared::books::Page;
use shared::engine::error_chain;
use shared::http::Problem;

use crate::AdminSettings;

/// How long one answer may take; a full check of a large database is the longest.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// How long an operator, or a redrive, waits for a service that may be away.
const SOON: Duration = Duration::from_secs(3);

/// The other services.
#[derive(Clone)]
pub(crate) struct Services {
    http: Client,
    settings: AdminSettings,
}

impl Services {
    pub(crate) fn of(settings: &AdminSettings) -> Self {
        let http = Client::builder().timeout(ANSWER_WITHIN).build().unwrap_or_default();
        Self { http, settings: settings.clone() }
    }

    /// (name, address) of each, the bank last.
    pub(crate) fn all(&self) -> [(&'static str, &str); 4] {
        let settings = &self.settings;
        [
            ("order", &settings.order),
            ("inventory", &settings.inventory),
            ("payment", &settings.payment),
            ("bank", &settings.bank),
        ]
    }

    /// What `service` answers at `path`.
    ///
    /// # Errors
    /// 503 that names the service.
    pub(crate) async fn get<T: DeserializeOwned>(&self, service: &str, path: &str) -> Result<T, Problem> {
        let unreachable = |error| does_not_answer(service, error);
        let response = self.http.get(self.url(service, path)?).send().await.map_err(unreachable)?;
        response.error_for_status().map_err(unreachable)?.json().await.map_err(unreachable)
    }

    /// What `service` answers at `path` soon.
    ///
    /// # Errors
    /// As [`Services::get`].
    pub(crate) async fn get_soon<T: DeserializeOwned>(
        &self,
        service: &str,
        path: &str,
    ) -> Result<T, Problem> {
        read(service, self.ask(Method::GET, service, path, None).await?).await
    }

    /// What `service` answers to a wish.
    ///
    /// # Errors
    /// The service's own problem when it refuses; 503 that names it when it does not answer.
    pub(crate) async fn tell<T: DeserializeOwned>(
        &self,
        method: Method,
        service: &str,
        path: &str,
        body: Option<serde_json::Value>,
    ) -> Result<T, Problem> {
        read(service, self.ask(method, service, path, body.as_ref()).await?).await
    }

    /// As [`Services::tell`], of a service that has nothing to say beyond that it is done.
    ///
    /// # Errors
    /// As [`Services::tell`].
    pub(crate) async fn tell_only(&self, method: Method, service: &str, path: &str) -> Result<(), Problem> {
        self.ask(method, service, path, None).await.map(drop)
    }

    async fn ask(
        &self,
        method: Method,
        service: &str,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<Response, Problem> {
        let mut request = self.http.request(method, self.url(service, path)?).timeout(SOON);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(|error| does_not_answer(service, error))?;
        let status = response.status();
        if status.is_client_error() {
            return Err(refusal(service, status, response).await);
        }
        response.error_for_status().map_err(|error| does_not_answer(service, error))
    }

    fn url(&self, service: &str, path: &str) -> Result<String, Problem> {
        let base = self.all().into_iter().find(|(name, _)| *name == service).map(|(_, base)| base);
        let base = base.ok_or_else(|| Problem::not_found(format_args!("service {service}")))?;
        Ok(format!("{}{path}", base.trim_end_matches('/')))
    }

    /// Hands every entry of a service's books to `each`, page by page.
    ///
    /// # Errors
    /// As [`Services::get`].
    pub(crate) async fn each_entry<T: DeserializeOwned>(
        &self,
        service: &str,
        path: &str,
        mut each: impl FnMut(T),
    ) -> Result<(), Problem> {
        let mut after = None::<String>;
        loop {
            let query = after.map(|after| format!("?after={after}")).unwrap_or_default();
            let page: Page<T> = self.get(service, &format!("{path}{query}")).await?;
            page.entries.into_iter().for_each(&mut each);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }
}

async fn read<T: DeserializeOwned>(service: &str, response: Response) -> Result<T, Problem> {
    response.json().await.map_err(|error| does_not_answer(service, error))
}

/// What a service refuses, it refuses for reasons of its own: they reach the operator as they are.
async fn refusal(service: &str, status: StatusCode, response: Response) -> Problem {
    match response.json::<Problem>().await {
        Ok(problem) => problem,
        Err(_) => Problem::new(status, format!("{service} refuses and does not say why")),
    }
}

fn does_not_answer(service: &str, error: reqwest::Error) -> Problem {
    Problem::unavailable(format!("{service} does not answer: {}", error_chain(&error.without_url())), 1)
}
