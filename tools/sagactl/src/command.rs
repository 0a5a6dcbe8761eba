//! Shell: the command line: what people can ask of this program.

use std::path::{Path, PathBuf};

use chaos::ChaosOptions;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use client::access::Named;
use devstack::folder::DEFAULT_FOLDER;
use devstack::{Member, System};
use loadgen::LoadOptions;
use reqwest::Url;
use strum::VariantNames as _;

use crate::admin::{Form, address};
use crate::args::{self, operator_name};
use crate::local::LocalCommand;
use crate::operator::OperatorCommand;
use crate::output::{Color, exit};
use crate::reconciliation::ReconciliationOptions;
use crate::token::TokenCommand;
use crate::top::TopOptions;

/// One rule, which admin goes by too. Paragraphs are one line here: whoever prints them knows how wide the terminal is.
const REASONS: &str = "Reasons:
--reason says why, for the audit log. It is needed by what gives something up (discard, settle, cancel, audit \
--accept), forces or holds something (--force, edit, saga extend, unsettle, breakers open and close), or changes many \
messages at once (replay or restore --fingerprint, redrive, outbox retry without SEQ, outbox republish); everything \
else takes one.

Lists:
Every list can be printed with --json: one object with its items, and next, which --cursor takes, or null.";

/// The whole of it.
#[derive(Debug, Parser)]
#[command(
    name = "sagactl",
    version,
    about = "Starts, stops, watches, loads and audits a local order saga, and mends what got stuck",
    after_help = format!("{REASONS}\n\n{}", exit::HELP)
)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command can be told.
// The variables are read elsewhere, as one that is empty counts as not set, and it must be known who was named here.
#[derive(Debug, Args)]
pub struct Common {
    /// Folder with the data of the local system [env: SAGA_DATA] [default: .saga].
    #[arg(long, global = true, value_name = "DIR", value_parser = args::folder, help_heading = SYSTEM)]
    pub data: Option<PathBuf>,
    /// Address of another admin than the local system's; then no data folder is needed [env: SAGA_ADMIN, unless --data is
    /// given].
    #[arg(long, global = true, value_name = "URL", value_parser = address, help_heading = SYSTEM)]
    pub admin: Option<Url>,
    /// Who does this, for the audit log [env: SAGA_OPERATOR] [default: $USER]; with `log`: whose entries.
    #[arg(long, global = true, value_name = "NAME", value_parser = operator_name, help_heading = SYSTEM)]
    pub operator: Option<String>,
    /// A token to get in with, or a file of mode 600 that holds one [env: SAGA_TOKEN] [default: the local system's own].
    #[arg(long, global = true, value_name = "TOKEN|FILE", help_heading = SYSTEM)]
    pub token: Option<Named>,
    /// PEM file with the authorities that are trusted to name that admin (https), and no others [env: SAGA_CA].
    #[arg(long, global = true, value_name = "FILE", help_heading = SYSTEM)]
    pub ca: Option<PathBuf>,
    /// Tables with all their columns, however narrow the terminal is, and times in full.
    #[arg(long, global = true, help_heading = OUTPUT)]
    pub wide: bool,
    /// When to colour; auto: on a terminal, unless NO_COLOR is set.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_default_value = true, value_parser = color(), help_heading = OUTPUT)]
    pub color: Color,
}

/// Headings of the help.
const SYSTEM: &str = "Which system, and who asks";
const OUTPUT: &str = "How it is printed";

fn color() -> impl TypedValueParser<Value = Color> {
    PossibleValuesParser::new(Color::VARIANTS).map(|name| name.parse().unwrap_or_default())
}

/// What to do, in the order of the help.
#[derive(Debug, Subcommand)]
pub enum Command {
    #[command(flatten)]
    Local(LocalCommand),
    /// Show in one look how everything is: processes, services, sagas, dead letters, breakers, the books. Exit code 0
    /// when nobody is needed, 5 when somebody is
    Status(Form),
    /// Say of each thing that is wrong what it means, and which commands go on from there. The same exit codes
    Doctor(Form),
    /// Show it live: whether somebody is needed, sagas and how fast they go, services and processes, outboxes, breakers,
    /// dead letters, the books. New every second, also while admin is away; q, Esc or Ctrl-C ends it
    Top(TopOptions),
    /// Ask whether stock, money and messages agree. Exit code 0 when they do, 2 when not, 6 when it cannot be told yet
    Audit(ReconciliationOptions),
    /// Send orders at a fixed rate, measure how long each takes to its end, and reconcile the ledgers
    Load(LoadOptions),
    /// Kill, pause and cut off a system of its own at random while customers order, and see that nothing is lost. Exit
    /// code 0 when nothing was lost, doubled or left undone, 1 when something was
    Chaos(ChaosOptions),
    /// Tokens: who may ask admin for what. Issue one, list them, revoke one
    #[command(subcommand)]
    Token(TokenCommand),
    #[command(flatten)]
    Operate(OperatorCommand),
    /// Print what a shell needs to complete this program's commands, e.g. sagactl completions bash
    Completions {
        /// The shell that is to complete.
        shell: Shell,
    },
    /// Write the manual pages into a folder, one for each command
    Man {
        /// The folder, which is made when it is not there.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

impl Command {
    /// Whether it is about this machine alone, and asks no admin that could be elsewhere.
    pub const fn is_local(&self) -> bool {
        match self {
            Self::Local(_)
            | Self::Load(_)
            | Self::Chaos(_)
            | Self::Token(_)
            | Self::Completions { .. }
            | Self::Man { .. } => true,
            Self::Status(_) | Self::Doctor(_) | Self::Top(_) | Self::Audit(_) | Self::Operate(_) => false,
        }
    }
}

/// Which system is meant.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    /// The folder of the local one.
    pub folder: PathBuf,
    /// The admin of another one.
    pub admin: Option<Url>,
}

/// The system that was named, else that of `$SAGA_ADMIN`, else that of `$SAGA_DATA`. A variable that is empty counts as
/// not set.
pub fn place(
    folder: Option<PathBuf>,
    admin: Option<Url>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Place, String> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    let elsewhere =
        || set("SAGA_ADMIN").map(|text| address(&text).map_err(|why| format!("SAGA_ADMIN: {why}")));
    let admin = match admin {
        Some(named) => Some(named),
        // A folder that was named is meant more than a variable.
        None if folder.is_some() => None,
        None => elsewhere().transpose()?,
    };
    let folder = folder.or_else(|| set("SAGA_DATA").map(PathBuf::from));
    Ok(Place { folder: folder.unwrap_or_else(|| DEFAULT_FOLDER.into()), admin })
}

/// The address of the admin that is meant: the one that is named, or the local system's.
pub fn admin_of(named: Option<Url>, folder: &Path) -> anyhow::Result<Url> {
    if let Some(named) = named {
        return Ok(named);
    }
    let system = System::to_ask(folder)?;
    address(&system.url_of(Member::ADMIN)).map_err(exit::refuse)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parses(line: &str) -> bool {
        Arguments::try_parse_from(std::iter::once("sagactl").chain(line.split(' '))).is_ok()
    }

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn commands_that_make_sense_are_taken() {
        let id = "01890000-0000-7000-8000-000000000001";
        let good = [
            "dlq list --status pending,replaying --since 10m --limit 5 --json",
            "dlq groups --service payment",
            &format!("dlq replay {id} {id}"),
            &format!("dlq replay {id} --force --reason lost"),
            "dlq replay --fingerprint abc --reason mended",
            &format!("dlq edit {id} --reason typo --new-data {{}}"),
            &format!("dlq edit {id} --reason typo"),
            &format!("dlq note {id} asked"),
            "dlq note --step payment-processing asked",
            &format!("dlq replay {id} --wait=1m"),
            "dlq discard --step payment-processing --since 10m --reason gone",
            &format!("saga extend {id} --for 10m --reason patient"),
            "saga extend --fingerprint abc --for 10m --reason patient",
            &format!("saga settle {id} {id} --reason cheque"),
            &format!("saga unsettle {id} --reason bounced"),
            &format!("payment settle {id} --reason cheque --json"),
            &format!("dlq settle {id} --reason cheque"),
            "dlq settle --step payment-refund --reason cheque",
            "dlq unsettle --fingerprint abc --reason bounced",
            "dlq redrive --fingerprint abc --canary 3 --rate 10 --reason mended --detach",
            "dlq redrive --fingerprint abc --preview",
            &format!("redrive follow {id} --operator ada"),
            "saga list --status in_progress --overdue --stuck-at payment-processing",
            "audit --wait 5s --json",
            "audit --accept stock-forecast --reason new",
            "breakers",
            "breakers --json",
            "breakers open payment/bank --reason maintenance",
            "breakers reset payment/bank",
            "faults",
            "faults list --json",
            "faults inject payment delay --step payment-processing --delay 500ms --probability 50",
            "faults clear",
            "faults clear payment 7",
            "outbox retry order 7",
            "outbox retry order --reason mended",
            "outbox republish --since 2h --reason disk",
            "outbox republish order --since 2026-01-31T12:00:00Z --reason disk",
            "outbox list --json",
            "push",
            "push list --json",
            "push test --wait 5s --reason new",
            "log list --action dlq.replay",
            "dlq list --status all --wide --color never",
            "faults clear payment",
            "completions zsh",
            "chaos --seed 7 --for 10m --rate 50 --json",
            "token create ada --role operator --expires 90d",
            "token create ada --role viewer --file /tokens.json --rate 10",
            "token list --json",
            "token revoke ada",
            "status --token /my.token",
            "log --operator ada --action dlq.replay --admin http://host:1",
        ];
        for line in good {
            assert!(parses(line), "{line}");
        }
    }

    #[test]
    fn commands_that_make_no_sense_are_refused() {
        let id = "01890000-0000-7000-8000-000000000001";
        let bad = [
            "dlq list --status LOST",
            "dlq replay 7",
            &format!("dlq replay {id} --force"),
            &format!("saga extend {id} --for 10m"),
            &format!("saga extend {id} --reason x"),
            "saga settle --reason x",
            &format!("saga settle {id}"),
            &format!("saga unsettle {id}"),
            &format!("payment unsettle {id}"),
            &format!("dlq settle {id}"),
            &format!("dlq edit {id} --new-data {{}}"),
            &format!("dlq edit {id} --reason x --new-data {{"),
            &format!("dlq edit {id} --reason x --new-data 1 --payload 2"),
            "dlq discard",
            "dlq redrive --fingerprint abc",
            "audit --accept stock-forecast",
            "audit --reason new",
            "breakers open payment --reason x",
            "chaos --for 1s",
            "chaos --rate 0",
            "breakers open payment/bank",
            "faults inject payment",
            "faults inject payment delay --delay 1h",
            "saga list --status LOST",
            "saga list --stuck-at nope",
            "outbox retry order",
            "outbox republish --since 2h",
            "dlq list --color blue",
            "token create ada",
            "token create ada --role king",
            &format!("dlq discard {id}"),
            &format!("redrive cancel {id}"),
            "log --operator jörg",
            "breakers --admin localhost:8080",
        ];
        for line in bad {
            assert!(!parses(line), "{line}");
        }
    }

    #[test]
    fn a_variable_that_is_empty_counts_as_not_set() {
        let of = |set: &[(&str, &str)]| {
            let find =
                |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            place(None, None, find).map(|place| (place.folder, place.admin.map(|admin| admin.to_string())))
        };
        let nothing = Ok((DEFAULT_FOLDER.into(), None));
        assert_eq!(of(&[]), nothing);
        assert_eq!(of(&[("SAGA_DATA", ""), ("SAGA_ADMIN", "")]), nothing);
        let set = [("SAGA_DATA", "/data"), ("SAGA_ADMIN", "http://host:1")];
        assert_eq!(of(&set), Ok(("/data".into(), Some("http://host:1/".to_owned()))));
        assert!(of(&[("SAGA_ADMIN", "host:1")]).expect_err("no address").starts_with("SAGA_ADMIN: "));
        let named = Url::parse("http://other:2").ok();
        let place = place(Some("here".into()), named.clone(), |name| Some(format!("not {name}")));
        assert_eq!(place, Ok(Place { folder: "here".into(), admin: named }));
    }

    #[test]
    fn a_folder_that_was_named_is_meant_more_than_the_admin_of_a_variable() {
        for elsewhere in ["http://prod:1", "no address"] {
            let place = place(Some("here".into()), None, |_| Some(elsewhere.to_owned()));
            assert_eq!(place, Ok(Place { folder: "here".into(), admin: None }));
        }
    }
}
