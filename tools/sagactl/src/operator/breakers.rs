//! Shell: `sagactl breakers`: circuit breakers of all services.

use std::process::ExitCode;
use std::str::FromStr;

use admin_api::breakers::{ChangeBreaker, ServiceBreakers};
use clap::{Args, Subcommand};
use cli::table::{Column, left, removable, right, time, truncatable};
use cli::text::{one_line, or_none};
use cli::view::View;
use saga_core::breaker::{BreakerAction, BreakerView, State};
use serde::Serialize;
use serde_json::json;

use crate::admin::{Admin, Form, OrList, Page, Unreachable, show};
use crate::args;

#[derive(Debug, Subcommand)]
pub enum BreakerCommand {
    /// List the breakers of all services
    List(Form),
    /// Force a breaker open: calls are rejected until it is closed or reset
    Open(ForceOptions),
    /// Force a breaker closed: calls are admitted until it is opened or reset
    Close(ForceOptions),
    /// Return a breaker to automatic operation, closed and with an empty window
    Reset {
        /// Breaker, as sagactl breakers lists it.
        #[arg(value_name = "SERVICE/NAME")]
        breaker: BreakerName,
        /// Reason, for the audit log.
        #[arg(long, value_parser = args::reason)]
        reason: Option<String>,
        #[command(flatten)]
        form: Form,
    },
}

#[derive(Debug, Args)]
pub struct ForceOptions {
    /// Breaker, as sagactl breakers lists it.
    #[arg(value_name = "SERVICE/NAME")]
    breaker: BreakerName,
    /// Reason, for the audit log.
    #[arg(long, value_parser = args::reason)]
    reason: String,
    #[command(flatten)]
    form: Form,
}

/// Name of a breaker: `SERVICE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerName {
    service: String,
    name: String,
}

impl FromStr for BreakerName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((service, name)) if !service.is_empty() && !name.is_empty() => {
                Ok(Self { service: service.to_owned(), name: name.to_owned() })
            }
            Some(_) | None => Err("write it as sagactl breakers lists it: SERVICE/NAME"),
        }
    }
}

pub async fn run(
    admin: &Admin,
    OrList { command, list }: OrList<BreakerCommand>,
) -> anyhow::Result<ExitCode> {
    let (breaker, action, reason, form) = match command.unwrap_or(BreakerCommand::List(list)) {
        BreakerCommand::List(form) => {
            return show(&page(admin.get(&["breakers"], &()).await?), form, text);
        }
        BreakerCommand::Open(ForceOptions { breaker, reason, form }) => {
            (breaker, BreakerAction::Open, Some(reason), form)
        }
        BreakerCommand::Close(ForceOptions { breaker, reason, form }) => {
            (breaker, BreakerAction::Closed, Some(reason), form)
        }
        BreakerCommand::Reset { breaker, reason, form } => (breaker, BreakerAction::Reset, reason, form),
    };
    let BreakerName { service, name } = breaker;
    let changed: BreakerView =
        admin.post(&["breakers", &service, &name], &ChangeBreaker { action, reason }).await?;
    show(&changed, form, |changed, _| format!("{service}/{} is {}", changed.name, state_name(changed.state)))
}

/// Name of a state, as the API has it.
pub fn state_name(state: State) -> String {
    one_line(&json!(state))
}

/// A breaker with its service.
#[derive(Debug, Serialize)]
struct ServiceBreaker {
    service: String,
    #[serde(flatten)]
    breaker: BreakerView,
}

fn page(services: Vec<ServiceBreakers>) -> Page<ServiceBreaker> {
    let (mut items, mut unreachable) = (vec![], vec![]);
    for ServiceBreakers { service, problem, breakers } in services {
        let of_service = breakers.into_iter();
        items.extend(of_service.map(|breaker| ServiceBreaker { service: service.clone(), breaker }));
        unreachable.extend(problem.map(|problem| Unreachable { service, problem }));
    }
    Page { unreachable, ..Page::from_iter(items) }
}

const COLUMNS: [Column<ServiceBreaker>; 10] = [
    left("breaker", |row| format!("{}/{}", row.service, row.breaker.name)),
    left("state", |row| state_name(row.breaker.state)),
    removable(0, left("instance", |row| row.breaker.instance.clone())),
    removable(3, right("calls", |row| row.breaker.calls.to_string())),
    removable(5, right("failed", |row| share(row.breaker.failures, row.breaker.failure_rate))),
    removable(2, right("slow", |row| share(row.breaker.slow, row.breaker.slow_rate))),
    removable(4, right("rejected", |row| row.breaker.rejected.to_string())),
    removable(6, time("open until", |row| row.breaker.open_until)),
    removable(1, time("last change", |row| row.breaker.transitions.last().map(|last| last.at))),
    removable(
        7,
        truncatable(left("cause", |row| or_none(row.breaker.transitions.last().map(|last| &last.why)))),
    ),
];

fn text(page: &Page<ServiceBreaker>, view: &View) -> String {
    page.text("no breakers", &COLUMNS, view)
}

fn share(count: u64, percent: Option<u8>) -> String {
    format!("{count} ({})", or_none(percent.map(|percent| format!("{percent} %"))))
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn breaker_name_has_service_and_name() {
        let name: BreakerName = "payment/call/bank".parse().expect("a name");
        assert_eq!((name.service.as_str(), name.name.as_str()), ("payment", "call/bank"));
        assert!(["payment", "/bank", "payment/", ""].iter().all(|bad| bad.parse::<BreakerName>().is_err()));
    }

    #[test]
    fn breakers_are_a_table_that_names_unreachable_services() {
        let (policy, recorded) = (json!({}), json!({"successes": 4, "failures": 6, "ignored": 0}));
        let services = json!([
            {"service": "payment", "breakers": [
                {"name": "bank", "instance": "payment-2", "state": "OPEN", "calls": 10, "failures": 6, "slow": 0,
                 "failure_rate": 60, "slow_rate": 0, "rejected": 4, "recorded": recorded, "policy": policy,
                 "open_until": "2026-11-20T14:18:46Z",
                 "transitions": [{"at": "2026-11-20T14:18:36Z", "from": "CLOSED", "to": "OPEN",
                                  "why": "6 of 10 calls failed"}]},
                {"name": "payment-processing", "instance": "payment-2", "state": "CLOSED", "calls": 1, "failures": 0,
                 "slow": 0, "failure_rate": null, "slow_rate": null, "rejected": 0, "recorded": recorded,
                 "policy": policy, "open_until": null, "transitions": []},
            ]},
            {"service": "inventory", "problem": "inventory does not answer", "breakers": []},
        ]);
        let services = from_value(services).expect("breakers");
        insta::assert_snapshot!("breakers", text(&page(services), &View::FILE));
    }
}
