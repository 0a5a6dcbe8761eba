//! Shell: the command line of sagactl.

use std::path::{Path, PathBuf};

use chaos::ChaosOptions;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use client::access::TokenArgument;
use devstack::data_dir::DEFAULT_DATA_DIR;
use devstack::{Component, System};
use loadgen::LoadOptions;
use reqwest::Url;
use strum::VariantNames as _;

use crate::admin::{Form, address};
use crate::args::{self, operator_name};
use crate::local::LocalCommand;
use crate::operator::OperatorCommand;
use crate::reconcile::ReconcileOptions;
use crate::token::TokenCommand;
use crate::top::TopOptions;
use cli::{Color, exit};

/// The rule that admin enforces. Paragraphs are single lines: clap wraps them at the width of the terminal.
const REASONS: &str = "Reasons:
--reason is written to the audit log. It is required by commands that give something up (discard, resolve, redrive cancel, reconcile --accept), override something (--force, edit, saga extend, withdraw-resolution, breakers open and close), or change many messages \
at once (replay or restore --fingerprint, redrive, outbox retry without SEQ, outbox republish). Others accept one.

Lists:
--json prints a list as one object: items, and next, the value for --cursor or null.";

#[derive(Debug, Parser)]
#[command(
    name = "sagactl",
    version,
    about = "Operates an order saga: shows its state, repairs what is stuck, reconciles; runs local systems and load",
    after_help = format!("{REASONS}\n\n{}", exit::HELP)
)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
// Environment variables are not read by clap: an empty one counts as not set.
#[derive(Debug, Args)]
pub struct Common {
    /// Data folder of the local system [env: SAGA_DATA] [default: .saga].
    #[arg(long, global = true, value_name = "DIR", value_parser = args::folder, help_heading = SYSTEM)]
    pub data: Option<PathBuf>,
    /// Address of a remote admin; no data folder is needed then [env: SAGA_ADMIN, unless --data is given].
    #[arg(long, global = true, value_name = "URL", value_parser = address, help_heading = SYSTEM)]
    pub admin: Option<Url>,
    /// Operator name in the audit log [env: SAGA_OPERATOR] [default: $USER].
    #[arg(long, global = true, value_name = "NAME", value_parser = operator_name, help_heading = SYSTEM)]
    pub operator: Option<String>,
    /// Token for admin, or a file of mode 600 that holds one [env: SAGA_TOKEN] [default: that of the local system].
    #[arg(long, global = true, value_name = "TOKEN|FILE", help_heading = SYSTEM)]
    pub token: Option<TokenArgument>,
    /// PEM file with the only certificate authorities to trust for admin (https) [env: SAGA_CA].
    #[arg(long, global = true, value_name = "FILE", help_heading = SYSTEM)]
    pub ca: Option<PathBuf>,
    /// Show all columns of tables and full timestamps, even on a narrow terminal.
    #[arg(long, global = true, help_heading = OUTPUT)]
    pub wide: bool,
    /// Colours: auto (on a terminal, unless NO_COLOR is set), always, never.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_default_value = true, value_parser = color(), help_heading = OUTPUT)]
    pub color: Color,
}

const SYSTEM: &str = "System and operator";
const OUTPUT: &str = "Output";

fn color() -> impl TypedValueParser<Value = Color> {
    PossibleValuesParser::new(Color::VARIANTS).map(|name| name.parse().unwrap_or_default())
}

/// Subcommands in the order of the help.
#[derive(Debug, Subcommand)]
pub enum Command {
    #[command(flatten)]
    Local(LocalCommand),
    /// Show the state of everything: processes, services, sagas, dead letters, breakers, reconciliation. Exit code 0 if no
    /// human is needed, 5 if one is
    Status(Form),
    /// Explain each problem and suggest commands. Exit codes as those of status
    Doctor(Form),
    /// Show the state live: problems, saga rate, services, processes, outboxes, breakers, dead letters, reconciliation.
    /// Refreshes every second, even without admin; q, Esc or Ctrl-C ends it
    Top(TopOptions),
    /// Reconcile stock, money and messages. Exit code 0 if they agree, 2 if not, 6 if there is no verdict yet
    Reconcile(ReconcileOptions),
    /// Send orders at a fixed rate, measure their latency from start to end, and reconcile
    Load(LoadOptions),
    /// Disrupt a temporary system at random while customers order: kill, pause, cut connections, fill disks. Exit code 0
    /// if nothing was lost, duplicated or left unfinished, else 1
    Chaos(ChaosOptions),
    /// Manage tokens for admin: issue, list, revoke
    #[command(subcommand)]
    Token(TokenCommand),
    #[command(flatten)]
    Operate(OperatorCommand),
    /// Print a completion script, e.g. sagactl completions bash
    Completions {
        /// Shell for which to print it.
        shell: Shell,
    },
    /// Write the manual pages, one for each command
    Man {
        /// Folder, created if missing.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

impl Command {
    /// True if it needs no admin, and so cannot use a remote one.
    pub const fn is_local(&self) -> bool {
        match self {
            Self::Local(_)
            | Self::Load(_)
            | Self::Chaos(_)
            | Self::Token(_)
            | Self::Completions { .. }
            | Self::Man { .. } => true,
            Self::Status(_) | Self::Doctor(_) | Self::Top(_) | Self::Reconcile(_) | Self::Operate(_) => false,
        }
    }
}

/// System that the options select.
#[derive(Debug, PartialEq, Eq)]
pub struct Selection {
    /// Data folder of the local system.
    pub folder: PathBuf,
    /// Remote admin, if one is selected.
    pub admin: Option<Url>,
}

/// Selects the system by options, else by `$SAGA_ADMIN`, else by `$SAGA_DATA`. An empty variable counts as not set.
pub fn selection(
    folder: Option<PathBuf>,
    admin: Option<Url>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Selection, String> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    let remote = || set("SAGA_ADMIN").map(|text| address(&text).map_err(|why| format!("SAGA_ADMIN: {why}")));
    let admin = match admin {
        Some(named) => Some(named),
        // An option precedes a variable.
        None if folder.is_some() => None,
        None => remote().transpose()?,
    };
    let folder = folder.or_else(|| set("SAGA_DATA").map(PathBuf::from));
    Ok(Selection { folder: folder.unwrap_or_else(|| DEFAULT_DATA_DIR.into()), admin })
}

/// Returns the address of the remote admin, if any, else that of the local system.
pub fn admin_of(remote: Option<Url>, folder: &Path) -> anyhow::Result<Url> {
    if let Some(remote) = remote {
        return Ok(remote);
    }
    let system = System::open_or_suggest_admin(folder)?;
    address(&system.url_of(Component::ADMIN)).map_err(exit::rejected)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parses(line: &str) -> bool {
        Arguments::try_parse_from(std::iter::once("sagactl").chain(line.split(' '))).is_ok()
    }

    #[test]
    fn command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn valid_commands_are_accepted() {
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
            &format!("saga resolve {id} {id} --reason cheque"),
            &format!("saga withdraw-resolution {id} --reason bounced"),
            &format!("payment show {id}"),
            &format!("payment resolve {id} --reason cheque --json"),
            &format!("dlq resolve {id} --reason cheque"),
            "dlq resolve --step payment-refund --reason cheque",
            "dlq withdraw-resolution --fingerprint abc --reason bounced",
            "dlq redrive --fingerprint abc --canary 3 --rate 10 --reason mended --detach",
            "dlq redrive --fingerprint abc --preview",
            &format!("redrive follow {id} --operator ada"),
            "saga list --status in_progress --overdue --stuck-at payment-processing",
            "reconcile --wait 5s --json",
            "reconcile --full",
            "reconcile --accept stock-forecast --reason new",
            "breakers",
            "breakers --json",
            "breakers open payment/bank --reason maintenance",
            "breakers reset payment/bank",
            "faults",
            "faults list --json",
            "faults inject payment delay --step payment-processing --delay 500ms --probability 50",
            "faults inject payment pause --step payment-processing --for 30s",
            "faults clear",
            "faults clear payment 7",
            "outbox retry order 7",
            "outbox retry order --reason mended",
            "outbox republish --since 2h --reason disk",
            "outbox republish order --since 2026-01-31T12:00:00Z --reason disk",
            "outbox list --json",
            "notifications",
            "notifications list --json",
            "notifications test --wait 5s --reason new",
            "notifications acknowledge breaker_open:payment/bank --for 30m --reason calling",
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
            "log --by ada --action dlq.replay --since 2h --until 10m --text bank --admin http://host:1",
        ];
        for line in good {
            assert!(parses(line), "{line}");
        }
    }

    #[test]
    fn invalid_commands_are_rejected() {
        let id = "01890000-0000-7000-8000-000000000001";
        let bad = [
            "dlq list --status LOST",
            "dlq replay 7",
            &format!("dlq replay {id} --force"),
            &format!("saga extend {id} --for 10m"),
            &format!("saga extend {id} --reason x"),
            "saga resolve --reason x",
            &format!("saga resolve {id}"),
            &format!("saga withdraw-resolution {id}"),
            &format!("payment withdraw-resolution {id}"),
            &format!("dlq resolve {id}"),
            &format!("dlq edit {id} --new-data {{}}"),
            &format!("dlq edit {id} --reason x --new-data {{"),
            &format!("dlq edit {id} --reason x --new-data 1 --payload 2"),
            "dlq discard",
            "dlq redrive --fingerprint abc",
            "reconcile --accept stock-forecast",
            "reconcile --reason new",
            "reconcile --full --accept stock-forecast --reason new",
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
            "log --since yesterday",
            "dlq list --operator jörg",
            "breakers --admin localhost:8080",
        ];
        for line in bad {
            assert!(!parses(line), "{line}");
        }
    }

    #[test]
    fn empty_variable_counts_as_not_set() {
        let of = |set: &[(&str, &str)]| {
            let find =
                |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            selection(None, None, find)
                .map(|selected| (selected.folder, selected.admin.map(|admin| admin.to_string())))
        };
        let nothing = Ok((DEFAULT_DATA_DIR.into(), None));
        assert_eq!(of(&[]), nothing);
        assert_eq!(of(&[("SAGA_DATA", ""), ("SAGA_ADMIN", "")]), nothing);
        let set = [("SAGA_DATA", "/data"), ("SAGA_ADMIN", "http://host:1")];
        assert_eq!(of(&set), Ok(("/data".into(), Some("http://host:1/".to_owned()))));
        assert!(of(&[("SAGA_ADMIN", "host:1")]).expect_err("no address").starts_with("SAGA_ADMIN: "));
        let named = Url::parse("http://other:2").ok();
        let selected = selection(Some("here".into()), named.clone(), |name| Some(format!("not {name}")));
        assert_eq!(selected, Ok(Selection { folder: "here".into(), admin: named }));
    }

    #[test]
    fn data_option_precedes_admin_variable() {
        for remote in ["http://prod:1", "no address"] {
            let selected = selection(Some("here".into()), None, |_| Some(remote.to_owned()));
            assert_eq!(selected, Ok(Selection { folder: "here".into(), admin: None }));
        }
    }
}
