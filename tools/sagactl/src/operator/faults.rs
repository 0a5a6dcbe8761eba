//! Shell: faults that are injected on purpose, to see that the system mends itself.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use reqwest::Method;
use saga_core::fault::FaultKind;
use saga_engine::runtime::faults::ActiveFault;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::admin::{Admin, Form, OrList, read};
use crate::args::delay_ms;
use crate::output::text::{one_line, or_nothing};
use crate::output::{Column, left, right, say, table};

/// What operators do with faults.
#[derive(Debug, Subcommand)]
pub enum FaultCommand {
    /// List the faults that are planted
    List(Form),
    /// Plant one; it stays until it is used up or cleared
    Inject(Injection),
    /// Clear one, or all everywhere
    Clear {
        /// Which service; without it, everything is cleared everywhere.
        #[arg(requires = "id")]
        service: Option<String>,
        /// Which of its faults.
        id: Option<u64>,
    },
    /// Explain the kinds of faults
    Kinds,
}

/// What to inject: the request as it is sent.
#[derive(Debug, Args, Serialize)]
pub struct Injection {
    /// Service that it happens to.
    service: String,
    /// What happens; sagactl faults kinds explains them.
    kind: String,
    /// Only at this step.
    #[arg(long)]
    step: Option<String>,
    /// In this many percent of the cases (100 when not given).
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    probability: Option<u8>,
    /// Only the next N times.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    next: Option<u32>,
    /// How long, e.g. 500ms.
    #[arg(long, value_parser = delay_ms)]
    #[serde(rename = "delay_ms")]
    delay: Option<u64>,
    /// Makes the dice of this service repeat themselves.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// `sagactl faults`. The kinds are known without admin.
pub async fn run(
    admin: impl FnOnce() -> anyhow::Result<Admin>,
    OrList { command, form }: OrList<FaultCommand>,
) -> anyhow::Result<ExitCode> {
    match command.unwrap_or(FaultCommand::List(form)) {
        FaultCommand::List(form) => return admin()?.show(&["faults"], &(), form, list).await,
        FaultCommand::Kinds => say(&kinds()),
        FaultCommand::Inject(injection) => {
            let InjectedFault { service, fault } = read(admin()?.post(&["faults"], &injection).await?)?;
            let ActiveFault { kind, id, .. } = fault;
            say(&format!("planted {kind} in {service}; undo it with: sagactl faults clear {service} {id}"));
        }
        FaultCommand::Clear { service: Some(service), id: Some(id) } => {
            admin()?.tell(Method::DELETE, &["faults", &service, &id.to_string()], &json!({})).await?;
            say(&format!("cleared {id} at {service}"));
        }
        FaultCommand::Clear { .. } => clear_all(&admin()?).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn clear_all(admin: &Admin) -> anyhow::Result<()> {
    let Cleared { cleared, unreachable } = read(admin.tell(Method::DELETE, &["faults"], &json!({})).await?)?;
    say(&format!("cleared {cleared}"));
    if !unreachable.is_empty() {
        let names = unreachable.join(", ");
        anyhow::bail!("not asked, for they do not answer: {names}; clear again when they do");
    }
    Ok(())
}

#[derive(Debug, Deserialize)]
struct Cleared {
    cleared: u64,
    #[serde(default)]
    unreachable: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Active {
    faults: Vec<InjectedFault>,
    #[serde(default)]
    unreachable: Vec<String>,
    #[serde(default)]
    disabled: Vec<String>,
    #[serde(default)]
    seeds: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
struct InjectedFault {
    service: String,
    #[serde(flatten)]
    fault: ActiveFault,
}

const COLUMNS: [Column<InjectedFault>; 8] = [
    left("service", |of| of.service.clone()),
    right("id", |of| of.fault.id.to_string()),
    left("kind", |of| one_line(&of.fault.kind.as_str().into())),
    left("step", |of| or_nothing(of.fault.step.as_ref())),
    right("how often", |of| format!("{} %", of.fault.probability)),
    left("how long", |of| {
        of.fault.next.map_or_else(|| "until cleared".to_owned(), |next| format!("next {next}"))
    }),
    right("delay", |of| or_nothing(of.fault.delay_ms.map(|delay| format!("{delay} ms")))),
    right("hits", |of| of.fault.hits.to_string()),
];

fn list(active: &Active) -> String {
    let mut text = if active.faults.is_empty() {
        "no faults are planted".to_owned()
    } else {
        table(&COLUMNS, &active.faults)
    };
    let seeds = active.seeds.iter().map(|(service, seed)| format!("{service} {seed}")).collect::<Vec<_>>();
    let lines = [
        ("seeds", seeds.join(" · ")),
        ("none can be planted (faults.enabled=false)", active.disabled.join(", ")),
        ("no answer from", active.unreachable.join(", ")),
    ];
    for (what, whose) in lines.into_iter().filter(|(_, whose)| !whose.is_empty()) {
        text.push_str(&format!("\n{what}: {whose}"));
    }
    text
}

fn kinds() -> String {
    let columns: [Column<(&str, FaultKind)>; 3] = [
        left("kind", |(_, kind)| kind.name.to_owned()),
        left("where", |(place, _)| (*place).to_owned()),
        left("what happens", |(_, kind)| kind.effect.to_owned()),
    ];
    let of_a_service = FaultKind::OF_A_SERVICE.map(|kind| ("a service", kind));
    let of_the_bank = contract::bank::FAULTS.map(|kind| ("the bank", kind));
    table(&columns, &[&of_a_service[..], &of_the_bank].concat())
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    #[test]
    fn injected_faults_are_a_table() {
        let active = from_value(json!({
            "faults": [
                {"service": "payment", "id": 1, "kind": "fail_permanently", "step": "payment-processing",
                 "probability": 100, "next": 1, "hits": 0},
                {"service": "bank", "id": 2, "kind": "bank_latency", "probability": 50, "delay_ms": 500, "hits": 7},
            ],
            "unreachable": ["inventory"], "disabled": ["order"], "seeds": {"payment": 42, "bank": 0},
        }));
        insta::assert_snapshot!("faults", list(&active.expect("faults")));
        insta::assert_snapshot!("fault_kinds", kinds());
    }
}
