//! Shell: faults that are planted on purpose, to see that the system mends itself.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use shared::faults::{ActiveFault, FaultKind};

use super::admin::{Admin, Asked};
use super::{read, show};
use crate::args::delay_ms;
use crate::output::plain_table as table;
use crate::output::say;
use crate::output::text::{one_line, or_nothing};

/// What to do with planted faults; they are listed when nothing is said.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct FaultOptions {
    #[command(subcommand)]
    command: Option<FaultCommand>,
    /// The API's own JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum FaultCommand {
    /// List the faults that are planted
    List {
        /// The API's own JSON.
        #[arg(long)]
        json: bool,
    },
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

#[derive(Debug, Args)]
struct Injection {
    /// Where.
    service: String,
    /// What; sagactl faults kinds explains them.
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
    delay: Option<u64>,
    /// Makes the dice of this service repeat themselves.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl Injection {
    fn body(self) -> Value {
        let mut body = json!({ "service": self.service, "kind": self.kind });
        let members = [
            ("step", self.step.map(Value::from)),
            ("probability", self.probability.map(Value::from)),
            ("next", self.next.map(Value::from)),
            ("delay_ms", self.delay.map(Value::from)),
            ("seed", self.seed.map(Value::from)),
        ];
        for (name, value) in members {
            if let Some(value) = value {
                body[name] = value;
            }
        }
        body
    }
}

/// `sagactl faults`.
pub async fn run(
    admin: impl FnOnce() -> anyhow::Result<Admin>,
    options: FaultOptions,
) -> anyhow::Result<ExitCode> {
    match options.command {
        None => listing(&admin()?, options.json).await,
        Some(FaultCommand::List { json }) => listing(&admin()?, json).await,
        Some(FaultCommand::Kinds) => {
            say(&kinds());
            Ok(ExitCode::SUCCESS)
        }
        Some(FaultCommand::Inject(injection)) => {
            let planted: Planted = read(admin()?.post(&["faults"], &injection.body()).await?)?;
            let (service, id) = (&planted.service, planted.fault.id);
            let kind = name(planted.fault.kind);
            say(&format!("planted {kind} in {service}; undo it with: sagactl faults clear {service} {id}"));
            Ok(ExitCode::SUCCESS)
        }
        Some(FaultCommand::Clear { service: Some(service), id: Some(id) }) => {
            admin()?.tell(Method::DELETE, &["faults", &service, &id.to_string()], &json!({})).await?;
            say(&format!("cleared {id} at {service}"));
            Ok(ExitCode::SUCCESS)
        }
        Some(FaultCommand::Clear { .. }) => clear_all(&admin()?).await,
    }
}

async fn listing(admin: &Admin, json: bool) -> anyhow::Result<ExitCode> {
    show(admin.ask(&["faults"], &Asked::default()).await?, json, list)
}

async fn clear_all(admin: &Admin) -> anyhow::Result<ExitCode> {
    let cleared: Cleared = read(admin.tell(Method::DELETE, &["faults"], &json!({})).await?)?;
    say(&format!("cleared {}", cleared.cleared));
    if cleared.unreachable.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    anyhow::bail!(
        "not asked, for they do not answer: {}; clear again when they do",
        cleared.unreachable.join(", ")
    )
}

#[derive(Debug, Deserialize)]
struct Cleared {
    cleared: u64,
    #[serde(default)]
    unreachable: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Active {
    faults: Vec<Planted>,
    #[serde(default)]
    unreachable: Vec<String>,
    #[serde(default)]
    disabled: Vec<String>,
    #[serde(default)]
    seeds: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
struct Planted {
    service: String,
    #[serde(flatten)]
    fault: ActiveFault,
}

fn list(active: &Active) -> String {
    let row = |Planted { service, fault }: &Planted| {
        [
            service.clone(),
            fault.id.to_string(),
            name(fault.kind),
            or_nothing(fault.step.as_ref()),
            format!("{} %", fault.probability),
            fault.next.map_or_else(|| "until cleared".to_owned(), |next| format!("next {next}")),
            or_nothing(fault.delay_ms.map(|delay| format!("{delay} ms"))),
            fault.hits.to_string(),
        ]
    };
    let header = ["service", "id", "kind", "step", "how often", "how long", "delay", "hits"];
    let mut text = if active.faults.is_empty() {
        "no faults are planted".to_owned()
    } else {
        table(header, active.faults.iter().map(row), &[1, 4, 6, 7])
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

/// As it is written on the command line.
fn name(kind: FaultKind) -> String {
    serde_json::to_value(kind).map(|name| one_line(&name)).unwrap_or_default()
}

fn kinds() -> String {
    let of_a_service = FaultKind::OF_A_SERVICE.map(|kind| ("a service", kind));
    let of_the_bank = FaultKind::OF_THE_BANK.map(|kind| ("the bank", kind));
    let all = of_a_service.into_iter().chain(of_the_bank);
    let rows = all.map(|(place, kind)| [name(kind), place.to_owned(), what_happens(kind).to_owned()]);
    table(["kind", "where", "what happens"], rows, &[])
}

const fn what_happens(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::FailTransiently => "a try of the step fails, and may work later; --step",
        FaultKind::FailPermanently => {
            "a try of the step fails for good: its message becomes a dead letter; --step"
        }
        FaultKind::Delay => "a try of the step takes --delay longer; --step",
        FaultKind::PublishTwice => "a message reaches the broker twice, and the broker does not notice",
        FaultKind::PublishGarbage => "something that is no message is published beside a real one",
        FaultKind::CrashBeforeAck => "the process dies after a commit, before it acknowledges",
        FaultKind::CrashAfterPublish => "the process dies after publishing, before it notes that",
        FaultKind::Pause => "the step takes no messages; --step",
        FaultKind::BankError => "it answers 503 and does nothing",
        FaultKind::BankLatency => "it answers --delay later",
        FaultKind::BankHang => "it never answers",
        FaultKind::BankDecline => "it declines the charge",
        FaultKind::BankLoseAnswer => "it does what it is asked, and answers 500",
        FaultKind::BankRefuseRefund => "it refuses to give money back",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    #[test]
    fn planted_faults_are_a_table() {
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
