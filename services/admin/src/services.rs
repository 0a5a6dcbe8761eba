//! Shell: admin's calls to the other services.

use std::time::Duration;

use reqwest::Client;
use serde::de::DeserializeOwned;
use shared::books::Page;
use shared::http::Problem;

use crate::AdminSettings;

/// How long one answer may take; a full check of a large database is the longest.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

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
        let base = self.all().into_iter().find(|(name, _)| *name == service).map(|(_, base)| base);
        let Some(base) = base else {
            return Err(Problem::not_found(format_args!("service {service}")));
        };
        let unreachable = |error: reqwest::Error| {
            Problem::unavailable(format!("{service} does not answer: {}", error.without_url()), 1)
        };
        let url = format!("{}{path}", base.trim_end_matches('/'));
        let response = self.http.get(url).send().await.map_err(unreachable)?;
        response.error_for_status().map_err(unreachable)?.json().await.map_err(unreachable)
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
