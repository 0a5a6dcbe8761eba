//! Shell: checks `/openapi.json` of a running program against its routes.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value};

use super::program::Running;
use crate::host::http::COMMON_ERRORS;

/// Checks the description of a running program: references, unique operation ids, error responses, and methods.
///
/// # Panics
/// With a list of all problems.
#[track_caller]
pub fn assert_describes(program: &Running) {
    let api = program.get("/openapi.json").body;
    let mut problems = Vec::new();
    references(&api, &api, &mut problems);
    let mut ids = BTreeSet::new();
    for (path, operations) in api["paths"].as_object().into_iter().flatten() {
        for (method, operation) in operations.as_object().into_iter().flatten() {
            let name = format!("{method} {path}");
            let id = operation["operationId"].as_str().unwrap_or_default();
            if id.is_empty() || !ids.insert(id) {
                problems.push(format!("{name} has no unique id, but {id:?}"));
            }
            if operation["summary"].as_str().is_none_or(str::is_empty) {
                problems.push(format!("{name} has no summary"));
            }
            answers(&name, &operation["responses"], &mut problems);
        }
        methods(program, path, operations, &mut problems);
    }
    if ids.is_empty() {
        problems.push("no operation is described".to_owned());
    }
    assert_eq!(problems, [""; 0]);
}

fn references(api: &Value, part: &Value, problems: &mut Vec<String>) {
    match part {
        Value::Object(members) => {
            let path = members.get("$ref").and_then(Value::as_str);
            if let Some(path) = path.filter(|path| api.pointer(path.trim_start_matches('#')).is_none()) {
                problems.push(format!("reference {path} does not exist"));
            }
            members.values().for_each(|member| references(api, member, problems));
        }
        Value::Array(items) => items.iter().for_each(|item| references(api, item, problems)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn answers(name: &str, responses: &Value, problems: &mut Vec<String>) {
    for (status, reason) in COMMON_ERRORS {
        if responses.get(status.as_str()).is_none() {
            problems.push(format!("{name} does not describe {status}: {reason}"));
        }
    }
    for (status, response) in responses.as_object().into_iter().flatten() {
        let forms: Vec<_> = response["content"].as_object().into_iter().flat_map(Map::keys).collect();
        if status.starts_with(['4', '5']) && forms != ["application/problem+json"] {
            problems.push(format!("{name} answers {status} as {forms:?}"));
        }
        if response["description"].as_str().is_none_or(str::is_empty) {
            problems.push(format!("{name} does not say what {status} means"));
        }
    }
}

/// Compares the described methods with the `Allow` header of a 405 response.
fn methods(program: &Running, path: &str, operations: &Value, problems: &mut Vec<String>) {
    const PATIENCE: Duration = Duration::from_secs(20);
    let mut address = path.to_owned();
    while let Some((start, rest)) = address.split_once('{') {
        let rest = rest.split_once('}').map_or("", |(_, rest)| rest);
        address = format!("{start}x{rest}");
    }
    let head =
        program.send("OPTIONS", &address, &[], "", PATIENCE).map_or(String::new(), |answer| answer.head);
    let allow = head.lines().find_map(|line| line.strip_prefix("allow: ")).unwrap_or_default();
    let known: BTreeSet<_> =
        allow.split(',').filter(|method| *method != "HEAD").map(str::to_lowercase).collect();
    let described: BTreeSet<_> = operations.as_object().into_iter().flat_map(Map::keys).cloned().collect();
    if known != described {
        problems.push(format!("{path} is described with {described:?}, and allows {known:?}"));
    }
}
