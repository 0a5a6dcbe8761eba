//! Pure: an outgoing HTTP request and its response, for the span of the client.

use std::borrow::Cow;

use super::span_attribute::{Attribute, named};

/// Outgoing HTTP request, with the status or the error of its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpExchange {
    /// HTTP method of the request.
    pub method: &'static str,
    /// URL of the request, without user and query, which may hold secrets and names.
    pub url: String,
    /// Host in the URL.
    pub address: String,
    /// Port in the URL, or that of its scheme.
    pub port: Option<u16>,
    /// Path with placeholders in place of ids, if the client knows it.
    pub template: Option<&'static str>,
    /// HTTP status code of the response, if there was one.
    pub status: Option<u16>,
    /// Class of the error that prevented a response, such as `timeout`.
    pub error: Option<&'static str>,
}

impl HttpExchange {
    /// Class of the error with which the request ended, as in `error.type`; `None` if it succeeded.
    #[must_use]
    pub fn error_type(&self) -> Option<Cow<'static, str>> {
        match self.status {
            Some(400..) => self.status.map(|status| status.to_string().into()),
            Some(_) => None,
            None => Some(self.error.unwrap_or("timeout").into()),
        }
    }

    pub(super) fn name(&self) -> Cow<'static, str> {
        match self.template {
            Some(template) => format!("{} {template}", named(self.method)).into(),
            None => named(self.method).into(),
        }
    }

    pub(super) fn attributes(&self) -> Vec<Attribute> {
        let mut attributes = vec![
            ("http.request.method", self.method.into()),
            ("url.full", self.url.clone().into()),
            ("server.address", self.address.clone().into()),
        ];
        attributes.extend(self.port.map(|port| ("server.port", port.into())));
        attributes.extend(self.template.map(|template| ("url.template", template.into())));
        attributes.extend(self.status.map(|status| ("http.response.status_code", status.into())));
        attributes
    }
}

#[cfg(test)]
mod tests {
    use super::super::span_attribute::AttributeValue;
    use super::*;

    fn exchange(status: Option<u16>, error: Option<&'static str>) -> HttpExchange {
        HttpExchange {
            method: "POST",
            url: "http://bank:8084/v1/charges/7/refund".to_owned(),
            address: "bank".to_owned(),
            port: Some(8084),
            template: Some("/v1/charges/{id}/refund"),
            status,
            error,
        }
    }

    #[test]
    fn attributes_of_a_request_have_method_address_and_status() {
        let exchange = exchange(Some(409), None);
        assert_eq!(exchange.name(), "POST /v1/charges/{id}/refund");
        let text = |value: &str| AttributeValue::from(value.to_owned());
        assert_eq!(
            exchange.attributes(),
            [
                ("http.request.method", text("POST")),
                ("url.full", text("http://bank:8084/v1/charges/7/refund")),
                ("server.address", text("bank")),
                ("server.port", AttributeValue::Number(8084)),
                ("url.template", text("/v1/charges/{id}/refund")),
                ("http.response.status_code", AttributeValue::Number(409)),
            ]
        );
    }

    #[test]
    fn error_type_is_the_status_or_the_error_before_one() {
        for (status, error, expected) in [
            (Some(200), None, None),
            (Some(409), None, Some("409")),
            (Some(503), None, Some("503")),
            (None, Some("connect"), Some("connect")),
            (None, None, Some("timeout")),
        ] {
            assert_eq!(exchange(status, error).error_type().as_deref(), expected);
        }
    }
}
