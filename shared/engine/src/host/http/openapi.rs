//! Shell: OpenAPI document of a service's routes.
//!
//! A route describes only its own parameters and answers. Answers that every route shares come from the origin guard,
//! the limits and the panic handler; they are added here.

use axum::http::StatusCode;
use serde_json::{Map, Value, json};
use utoipa::{PartialSchema as _, ToSchema as _};

use super::authorization::Authorization;
use super::origin_guard::COMMON_ERRORS;
use super::problem::{FieldError, Problem};
use super::schemas::{never_null, spell_out};

/// General notes at the top of the document.
const BESIDE: &str = "Every error is a problem document (RFC 9457). A method that a path does not know is answered \
    with 405 and `Allow`, a path that is not here with 404; `HEAD` is taken wherever `GET` is. Integers \
    are written without a fraction: `1`, not `1.0`.\n\n\
    Not described here, since they are not for clients: `/livez`, `/readyz` and `/metrics`, which tell those who run \
    this service how it is, and `/internal/`, by which admin and the services speak with each other and which changes \
    with them.";

/// Default descriptions of problems by status.
const MEANINGS: [(StatusCode, &str); 2] = [
    (StatusCode::NOT_FOUND, "what the path names is not there"),
    (StatusCode::CONFLICT, "it makes sense, but not as things stand"),
];

const UNREADABLE: &str = "its path, its parameters or its body cannot be read";

const INVALID: &str = "something in it is not what it must be; `errors` names it";

/// Description of 500, for panics and failing stores.
const BROKEN: (StatusCode, &str) =
    (StatusCode::INTERNAL_SERVER_ERROR, "something broke here; the log of this service says what");

/// Descriptions of the answers of guarded routes.
const OF_TOKENS: [(StatusCode, &str); 3] = [
    (StatusCode::UNAUTHORIZED, "it carries no token, or one that is unknown or expired"),
    (StatusCode::FORBIDDEN, "the role of its token is too small; the answer names the one that is needed"),
    (
        StatusCode::TOO_MANY_REQUESTS,
        "its token asks more often than `http.rate` allows; try again after Retry-After",
    ),
];

/// Name of the security scheme.
const SCHEME: &str = "token";

/// Completes the document with the answers that every route shares.
pub(super) fn completed(api: &utoipa::openapi::OpenApi, authorization: &Authorization) -> Value {
    let mut api = json!(api);
    let about = &mut api["info"]["description"];
    *about = json!(format!("{}\n\n{BESIDE}", about.as_str().unwrap_or_default()));
    for (name, schema) in [(Problem::name(), Problem::schema()), (FieldError::name(), FieldError::schema())] {
        api["components"]["schemas"][name.as_ref()] = json!(schema);
    }
    spell_out(&mut api);
    never_null(&mut api);
    takes_tokens(&mut api, authorization);
    for operation in operations(&mut api) {
        may_be_absent(operation);
        let takes_something = operation.get("requestBody").is_some() || operation.get("parameters").is_some();
        let responses = &mut operation["responses"];
        if takes_something {
            add_reason(responses, StatusCode::BAD_REQUEST, UNREADABLE);
            add_reason(responses, StatusCode::UNPROCESSABLE_ENTITY, INVALID);
        }
        for (status, reason) in COMMON_ERRORS.iter().chain([&BROKEN]) {
            add_reason(responses, *status, reason);
        }
        if let Some(responses) = responses.as_object_mut() {
            responses.iter_mut().for_each(|(status, response)| describe(status, response));
        }
    }
    api
}

/// Adds the security scheme and its answers to guarded routes. While authorization is off, a token is optional.
fn takes_tokens(api: &mut Value, authorization: &Authorization) {
    let paths = api["paths"].as_object_mut().into_iter().flatten();
    let mut takes_some = false;
    for (path, operations) in paths {
        for (method, operation) in operations.as_object_mut().into_iter().flatten() {
            if operation.get("responses").is_none() || !authorization.is_guarded(&method.to_uppercase(), path)
            {
                continue;
            }
            takes_some = true;
            let with = json!({ SCHEME: [] });
            operation["security"] = if authorization.is_on() { json!([with]) } else { json!([with, {}]) };
            for (status, reason) in OF_TOKENS {
                add_reason(&mut operation["responses"], status, reason);
            }
        }
    }
    if takes_some {
        api["components"]["securitySchemes"][SCHEME] = json!({
            "type": "http", "scheme": "bearer",
            "description": "A token of `sagactl token create`: `saga_` and 43 characters.",
        });
    }
}

fn operations(api: &mut Value) -> impl Iterator<Item = &mut Value> {
    let paths = api["paths"].as_object_mut().into_iter().flat_map(Map::values_mut);
    let operations = paths.filter_map(Value::as_object_mut).flat_map(Map::values_mut);
    operations.filter(|operation| operation.get("responses").is_some())
}

/// Removes `null` from the schema of an optional body.
fn may_be_absent(operation: &mut Value) {
    let body = operation
        .get_mut("requestBody")
        .and_then(|body| body.pointer_mut("/content/application~1json/schema"));
    let Some(schema) = body else { return };
    let choices = schema.get("oneOf").and_then(Value::as_array).into_iter().flatten();
    if let Some(given) =
        choices.clone().find(|choice| choice.get("$ref").is_some()).filter(|_| choices.count() == 2)
    {
        *schema = given.clone();
    }
}

fn add_reason(responses: &mut Value, status: StatusCode, reason: &str) {
    let description = &mut responses[status.as_str()]["description"];
    let own = description.as_str().filter(|own| !own.is_empty());
    *description = json!(own.map_or_else(|| reason.to_owned(), |own| format!("{own}; or {reason}")));
}

/// Adds the media type and a description to a response.
fn describe(status: &str, response: &mut Value) {
    let Ok(status) = status.parse::<StatusCode>() else { return };
    let is_problem = status.is_client_error() || status.is_server_error();
    if response["description"].as_str().is_none_or(str::is_empty) {
        let meaning = MEANINGS.iter().find(|(of, _)| is_problem && *of == status).map(|(_, text)| *text);
        response["description"] = json!(meaning.or(status.canonical_reason()).unwrap_or_default());
    }
    if is_problem {
        let schema = json!({ "$ref": format!("#/components/schemas/{}", Problem::name()) });
        response["content"] = json!({ "application/problem+json": { "schema": schema } });
    }
    if status == StatusCode::UNAUTHORIZED {
        let description = "`Bearer`, and what is wrong with the token (RFC 6750)";
        response["headers"]["WWW-Authenticate"] =
            json!({ "description": description, "schema": { "type": "string" } });
    }
    if [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS].contains(&status) {
        let schema = json!({ "type": "integer", "minimum": 0 });
        let description = "seconds after which trying again makes sense";
        response["headers"]["Retry-After"] = json!({ "description": description, "schema": schema });
    }
}
