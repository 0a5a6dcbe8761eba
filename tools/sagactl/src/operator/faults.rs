//! Shell: `sagactl faults`: injected faults.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use admin_api::actor::Reason;
use admin_api::faults::{AllFaults, ClearedFaults, InjectFault, ServiceFault};
use admin_api::text::counted;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use cli::table::{Column, left, removable, right, time, truncatable};
use cli::text::or_none;
use cli::view::View;
use contract::topology::PARTICIPANTS;
use saga_core::fault::FaultKind;
use serde::Serialize;

use crate::admin::{Admin, Form, OrList, Page, Unreachable, show};
use crate::args::{self, delay_ms, seconds};

#[derive(Debug, Subcommand)]
pub enum FaultCommand {
    /// List active faults
    List(Form),
    /// Inject a fault, which stays active until its number of occasions is reached, its time is over, or it is cleared
    Inject(InjectOptions),
    /// Clear one fault, all of a service, or all
    Clear {
        /// Service whose faults to clear; without it, all faults of all services.
        #[arg(value_parser = PossibleValuesParser::new(service_names()))]
        service: Option<String>,
        /// Number of the fault; without it, all of the service.
        #[arg(requires = "service")]
        id: Option<u64>,
        /// Reason, for the audit log.
        #[arg(long, value_parser = args::reason)]
        reason: Option<String>,
        #[command(flatten)]
        form: Form,
    },
    /// Explain the kinds of faults
    Kinds(Form),
}

#[derive(Debug, Args)]
pub struct InjectOptions {
    /// Service that the fault strikes.
    #[arg(value_parser = PossibleValuesParser::new(service_names()))]
    service: String,
    /// Kind of fault; sagactl faults kinds explains them.
    #[arg(value_parser = PossibleValuesParser::new(kind_names()), hide_possible_values = true)]
    kind: String,
    /// Only at this step.
    #[arg(long)]
    step: Option<String>,
    /// Percentage of occasions [default: 100].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    probability: Option<u8>,
    /// Only on the next N occasions, counted by each replica; of crash, across restarts.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    next: Option<u32>,
    /// Time after which it ends, e.g. 30s; at most 24h.
    #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
    for_seconds: Option<u32>,
    /// Delay, e.g. 500ms.
    #[arg(long, value_parser = delay_ms)]
    delay: Option<u64>,
    /// Seed of the service's random numbers, for repeatable faults.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Reason, for the audit log.
    #[arg(long, value_parser = args::reason)]
    reason: Option<String>,
    #[command(flatten)]
    form: Form,
}

/// Runs a command. `kinds` needs no admin.
pub async fn run(
    admin: impl FnOnce() -> anyhow::Result<Admin>,
    OrList { command, list }: OrList<FaultCommand>,
) -> anyhow::Result<ExitCode> {
    match command.unwrap_or(FaultCommand::List(list)) {
        FaultCommand::List(form) => {
            show(&FaultList::from(admin()?.get::<AllFaults>(&["faults"], &()).await?), form, text)
        }
        FaultCommand::Kinds(form) => show(&kinds(), form, |page, view| page.text("no kinds", &KINDS, view)),
        FaultCommand::Inject(options) => inject(&admin()?, options).await,
        FaultCommand::Clear { service, id, reason, form } => {
            clear(&admin()?, service, id, &Reason { reason }, form).await
        }
    }
}

async fn inject(admin: &Admin, options: InjectOptions) -> anyhow::Result<ExitCode> {
    let InjectOptions { service, kind, step, probability, next, for_seconds, delay, seed, reason, form } =
        options;
    let request =
        InjectFault { service, kind, step, probability, next, for_seconds, delay_ms: delay, seed, reason };
    let injected: ServiceFault = admin.post(&["faults"], &request).await?;
    show(&injected, form, |ServiceFault { service, fault }, _| {
        let (kind, id) = (&fault.kind, fault.id);
        format!("injected {kind} in {service}; clear it with: sagactl faults clear {service} {id}")
    })
}

async fn clear(
    admin: &Admin,
    service: Option<String>,
    id: Option<u64>,
    reason: &Reason,
    form: Form,
) -> anyhow::Result<ExitCode> {
    let id = id.map(|id| id.to_string());
    let path: Vec<_> = ["faults"].into_iter().chain(service.as_deref()).chain(id.as_deref()).collect();
    let result: ClearedFaults = admin.delete(&path, reason).await?;
    let code = show(&result, form, |ClearedFaults { cleared, .. }, _| match (&service, &id) {
        (Some(service), Some(id)) => format!("cleared fault {id} of {service}"),
        (Some(service), None) => {
            format!("cleared {} of {service}", counted(*cleared, "fault", "faults"))
        }
        (None, _) => format!("cleared {}", counted(*cleared, "fault", "faults")),
    })?;
    if result.unreachable.is_empty() {
        return Ok(code);
    }
    let services = result.unreachable.join(", ");
    anyhow::bail!("no answer from {services}: their faults stay active; clear again once they answer")
}

/// List of active faults.
#[derive(Debug, Serialize)]
struct FaultList {
    #[serde(flatten)]
    page: Page<ServiceFault>,
    disabled: Vec<String>,
    seeds: BTreeMap<String, u64>,
}

impl From<AllFaults> for FaultList {
    fn from(AllFaults { faults, unreachable, disabled, seeds }: AllFaults) -> Self {
        let unreachable = unreachable.into_iter();
        let unreachable =
            unreachable.map(|service| Unreachable { service, problem: "it does not answer".to_owned() });
        let page = Page { unreachable: unreachable.collect(), ..Page::from_iter(faults) };
        Self { page, disabled, seeds }
    }
}

const COLUMNS: [Column<ServiceFault>; 9] = [
    left("service", |row| row.service.clone()),
    right("id", |row| row.fault.id.to_string()),
    left("kind", |row| row.fault.kind.clone()),
    left("step", |row| or_none(row.fault.step.as_ref())),
    removable(2, right("probability", |row| format!("{} %", row.fault.probability))),
    left("active", |row| match (row.fault.next, row.fault.until) {
        (Some(next), _) => format!("next {next}"),
        (None, Some(_)) => "until its end".to_owned(),
        (None, None) => "until cleared".to_owned(),
    }),
    removable(3, time("until", |row| row.fault.until)),
    right("delay", |row| or_none(row.fault.delay_ms.map(|delay| format!("{delay} ms")))),
    removable(1, right("hits", |row| row.fault.hits.to_string())),
];

fn text(list: &FaultList, view: &View) -> String {
    let mut text = list.page.text("no active faults", &COLUMNS, view);
    let seeds: Vec<_> = list.seeds.iter().map(|(service, seed)| format!("{service} {seed}")).collect();
    if !seeds.is_empty() {
        let _ = write!(text, "\nseeds: {}", seeds.join(" · "));
    }
    if !list.disabled.is_empty() {
        let _ = write!(text, "\nfaults disabled (faults.enabled=false): {}", list.disabled.join(", "));
    }
    text
}

#[derive(Debug, Serialize)]
struct Kind {
    kind: &'static str,
    #[serde(rename = "where")]
    target: &'static str,
    effect: &'static str,
}

const KINDS: [Column<Kind>; 3] = [
    left("kind", |kind| kind.kind.to_owned()),
    left("target", |kind| kind.target.to_owned()),
    truncatable(left("effect", |kind| kind.effect.to_owned())),
];

fn service_names() -> impl Iterator<Item = &'static str> {
    PARTICIPANTS.iter().map(|participant| participant.name)
}

fn kind_names() -> impl Iterator<Item = &'static str> {
    FaultKind::OF_A_SERVICE.into_iter().chain(contract::bank::FAULTS).map(|kind| kind.name)
}

fn kinds() -> Page<Kind> {
    let of = |target| move |kind: FaultKind| Kind { kind: kind.name, target, effect: kind.effect };
    let of_services = FaultKind::OF_A_SERVICE.into_iter().map(of("a service"));
    of_services.chain(contract::bank::FAULTS.into_iter().map(of("the bank"))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn faults_and_kinds_are_tables() {
        let faults: AllFaults = from_value(json!({
            "faults": [
                {"service": "payment", "id": 1, "kind": "fail_permanently", "step": "payment-processing",
                 "probability": 100, "next": 1, "hits": 0},
                {"service": "bank", "id": 2, "kind": "bank_latency", "probability": 50, "delay_ms": 500, "hits": 7},
            ],
            "unreachable": ["inventory"], "disabled": ["order"], "seeds": {"payment": 42, "bank": 0},
        }))
        .expect("faults");
        insta::assert_snapshot!("faults", text(&faults.into(), &View::FILE));
        insta::assert_snapshot!("fault_kinds", kinds().text("none", &KINDS, &View::FILE));
    }
}
