//! Shell: faults that are injected on purpose, to see that the system mends itself.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use reqwest::Method;
use saga_core::fault::FaultKind;
use saga_engine::runtime::injected_faults::ActiveFault;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::admin::{Admin, Form, Items, OrList, Page, read, show};
use crate::args::delay_ms;
use cli::text::{one_line, or_none};
use cli::{Column, View, left, removable, right, truncatable};

/// What operators do with faults.
#[derive(Debug, Subcommand)]
pub enum FaultCommand {
    /// List the faults that are planted
    List(Form),
    /// Plant one; it stays until it is used up or cleared
    Inject(Injection),
    /// Clear one, all of a service, or all everywhere
    Clear(Clearing),
    /// Explain the kinds of faults
    Kinds(Form),
}

/// What to clear.
#[derive(Debug, Args)]
pub struct Clearing {
    /// Which service's; without it, everything is cleared everywhere.
    service: Option<String>,
    /// Which of its faults; without it, all of them.
    #[arg(requires = "service")]
    id: Option<u64>,
    /// Why, for the audit log.
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    form: Form,
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
    /// Only the next N times, counted by each replica.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    next: Option<u32>,
    /// How long, e.g. 500ms.
    #[arg(long, value_parser = delay_ms)]
    #[serde(rename = "delay_ms")]
    delay: Option<u64>,
    /// Makes the dice of this service repeat themselves.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Why, for the audit log.
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    #[serde(skip)]
    form: Form,
}

/// `sagactl faults`. The kinds are known without admin.
pub async fn run(
    admin: impl FnOnce() -> anyhow::Result<Admin>,
    OrList { command, list }: OrList<FaultCommand>,
) -> anyhow::Result<ExitCode> {
    match command.unwrap_or(FaultCommand::List(list)) {
        FaultCommand::List(form) => admin()?.list(&["faults"], &(), Items::In("faults"), form, shown).await,
        FaultCommand::Kinds(form) => {
            show(kinds(), form, |page: &Page<Kind>, view| page.shown("no kinds", &KINDS, view))
        }
        FaultCommand::Inject(injection) => {
            let answer = admin()?.post(&["faults"], &injection).await?;
            show(answer, injection.form, |InjectedFault { service, fault }: &InjectedFault, _| {
                let ActiveFault { kind, id, .. } = fault;
                format!("planted {kind} in {service}; undo it with: sagactl faults clear {service} {id}")
            })
        }
        FaultCommand::Clear(clearing) => clear(&admin()?, clearing).await,
    }
}

async fn clear(admin: &Admin, clearing: Clearing) -> anyhow::Result<ExitCode> {
    let Clearing { service, id, reason, form } = clearing;
    let id = id.map(|id| id.to_string());
    let path: Vec<_> = ["faults"].into_iter().chain(service.as_deref()).chain(id.as_deref()).collect();
    let answer = admin.tell(Method::DELETE, &path, &json!({ "reason": reason })).await?;
    let Cleared { cleared, unreachable } = read(answer.clone())?;
    let shown = show(answer, form, |_: &Value, _| match (&service, &id) {
        (Some(service), Some(id)) => format!("cleared {id} at {service}"),
        (Some(service), None) => format!("cleared {cleared} at {service}"),
        (None, _) => format!("cleared {cleared}"),
    })?;
    if unreachable.is_empty() {
        return Ok(shown);
    }
    let names = unreachable.join(", ");
    anyhow::bail!("not asked, for they do not answer: {names}; clear again when they do")
}

#[derive(Debug, Deserialize)]
struct Cleared {
    cleared: u64,
    #[serde(default)]
    unreachable: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Active {
    #[serde(flatten)]
    page: Page<InjectedFault>,
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
    left("step", |of| or_none(of.fault.step.as_ref())),
    removable(2, right("how often", |of| format!("{} %", of.fault.probability))),
    left("how long", |of| {
        of.fault.next.map_or_else(|| "until cleared".to_owned(), |next| format!("next {next}"))
    }),
    right("delay", |of| or_none(of.fault.delay_ms.map(|delay| format!("{delay} ms")))),
    removable(1, right("hits", |of| of.fault.hits.to_string())),
];

fn shown(active: &Active, view: &View) -> String {
    let mut text = active.page.shown("no faults are planted", &COLUMNS, view);
    let seeds = active.seeds.iter().map(|(service, seed)| format!("{service} {seed}")).collect::<Vec<_>>();
    let lines = [
        ("seeds", seeds.join(" · ")),
        ("none can be planted (faults.enabled=false)", active.disabled.join(", ")),
    ];
    for (what, whose) in lines.into_iter().filter(|(_, whose)| !whose.is_empty()) {
        text.push_str(&format!("\n{what}: {whose}"));
    }
    text
}

#[derive(Debug, Deserialize)]
struct Kind {
    kind: String,
    #[serde(rename = "where")]
    place: String,
    effect: String,
}

const KINDS: [Column<Kind>; 3] = [
    left("kind", |kind| kind.kind.clone()),
    left("where", |kind| kind.place.clone()),
    truncatable(left("what happens", |kind| kind.effect.clone())),
];

/// The kinds there are, as a list.
fn kinds() -> Value {
    let told =
        |place| move |kind: FaultKind| json!({ "kind": kind.name, "where": place, "effect": kind.effect });
    let of_a_service = FaultKind::OF_A_SERVICE.into_iter().map(told("a service"));
    let of_the_bank = contract::bank::FAULTS.into_iter().map(told("the bank"));
    json!({ "items": of_a_service.chain(of_the_bank).collect::<Vec<_>>(), "next": null })
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    #[test]
    fn injected_faults_are_a_table() {
        let active = json!({
            "faults": [
                {"service": "payment", "id": 1, "kind": "fail_permanently", "step": "payment-processing",
                 "probability": 100, "next": 1, "hits": 0},
                {"service": "bank", "id": 2, "kind": "bank_latency", "probability": 50, "delay_ms": 500, "hits": 7},
            ],
            "unreachable": ["inventory"], "disabled": ["order"], "seeds": {"payment": 42, "bank": 0},
        });
        let active = from_value(Items::In("faults").fields(active)).expect("faults");
        insta::assert_snapshot!("faults", shown(&active, &View::FILE));
        let kinds: Page<Kind> = from_value(kinds()).expect("kinds");
        insta::assert_snapshot!("fault_kinds", kinds.shown("none", &KINDS, &View::FILE));
    }
}
