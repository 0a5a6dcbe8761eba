//! Shell: `sagactl token`: issuing, listing and revoking tokens.

use std::io::IsTerminal as _;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use admin_api::audit_log::ProcessChangeKind;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use saga_core::access::{IssueError, Issued, Role};
use serde_json::json;
use strum::VariantNames as _;

use crate::admin::Form;
use crate::args::duration;
use cli::exit::{self, NOT_FOUND};

use cli::table::{Column, left, right, table, time};
use cli::text::or_none;
use cli::{note, print, print_json, view};
use devstack::audit::{self, Audit, Operator};
use devstack::{System, tokens};

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Issue a token and print it once; only its digest is stored. Services accept it within a second
    Create(Create),
    /// List the tokens: name, role, expiry
    List {
        #[command(flatten)]
        tokens: TokensFile,
        #[command(flatten)]
        form: Form,
    },
    /// Revoke a token. Services reject it within a second
    Revoke {
        /// Name of the operator.
        name: String,
        #[command(flatten)]
        tokens: TokensFile,
    },
}

#[derive(Debug, Args)]
pub struct Create {
    /// Name of the operator, in the audit log.
    name: String,
    /// Role: viewer reads; operator also repairs; admin also overrides (edits, --force, breakers, faults, reconcile --accept).
    #[arg(long, value_parser = role())]
    role: Role,
    /// Validity, e.g. 90d. Default: until it is revoked.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    expires: Option<Duration>,
    /// Requests per second. Default: the setting http.rate of each service.
    #[arg(long, value_name = "N")]
    rate: Option<NonZeroU32>,
    #[command(flatten)]
    tokens: TokensFile,
}

#[derive(Debug, Args)]
pub struct TokensFile {
    /// File with the tokens of another system (its setting http.tokens). `create` creates a missing one. Changes of it are not
    /// in the audit log.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

fn role() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::VARIANTS).map(|name| name.parse().unwrap_or(Role::Viewer))
}

/// Runs a command on the tokens of the system in `folder`, or on the named file.
pub async fn run(command: TokenCommand, folder: &Path, operator: Operator) -> anyhow::Result<ExitCode> {
    match command {
        TokenCommand::Create(create) => {
            let expires = issue(&create, folder)?;
            let audit = Audit::of(operator, format!("token create --role {}", create.role)).expiring(expires);
            record(&audit, &create.tokens, folder, ProcessChangeKind::TokenCreate, &create.name).await?;
        }
        TokenCommand::List { tokens, form } => list(&tokens, form, folder)?,
        TokenCommand::Revoke { name, tokens } => {
            let file = tokens.path(folder)?;
            let unknown =
                || exit::ExitError::new(NOT_FOUND, format!("no token has the name {name:?}")).into();
            tokens::change(&file, false, |tokens| tokens.revoke(&name).ok_or_else(unknown))?;
            print(&format!("{name} is revoked"));
            let audit = Audit::of(operator, "token revoke");
            record(&audit, &tokens, folder, ProcessChangeKind::TokenRevoke, &name).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Records a change of the local system's tokens.
async fn record(
    audit: &Audit,
    tokens: &TokensFile,
    folder: &Path,
    change: ProcessChangeKind,
    name: &str,
) -> anyhow::Result<()> {
    if tokens.file.is_none() {
        let system = System::open(folder)?;
        audit.record_token(&system, change, name);
        audit::deliver(&system).await;
    }
    Ok(())
}

/// Issues and prints a token, and returns its expiry.
fn issue(create: &Create, folder: &Path) -> anyhow::Result<Option<Timestamp>> {
    let Create { name, role, expires, rate, tokens: file } = create;
    let until = |time: &Duration| {
        let time = SignedDuration::try_from(*time).ok();
        let until = time.and_then(|time| Timestamp::now().checked_add(time).ok());
        until.ok_or_else(|| exit::rejected("--expires is too long: leave it out for a token without expiry"))
    };
    let expires = expires.as_ref().map(until).transpose()?;
    let issued = tokens::change(&file.path(folder)?, file.file.is_some(), |tokens| {
        tokens::issue(tokens, name, *role, expires, *rate)
    });
    let token = issued.map_err(|error| match error.downcast::<IssueError>() {
        Ok(refusal) => exit::rejected(refusal.to_string()),
        Err(error) => error,
    })?;
    // The note goes to standard error, so that only the token gets into a file.
    print(token.secret());
    if std::io::stdout().is_terminal() {
        note(
            "the token is shown only once: store it in a file of mode 600, and name that with --token or SAGA_TOKEN",
        );
    }
    Ok(expires)
}

fn list(file: &TokensFile, form: Form, folder: &Path) -> anyhow::Result<()> {
    let tokens = tokens::read(&file.path(folder)?)?;
    if form.json {
        // Without the digests.
        let item = |issued: &Issued| {
            let Issued { name, role, created, expires, rate, .. } = issued;
            json!({ "name": name, "role": role, "created": created, "expires": expires, "rate": rate })
        };
        let items: Vec<_> = tokens.all().iter().map(item).collect();
        print_json(&json!({ "items": items, "next": null }));
    } else {
        print(&table(&COLUMNS, tokens.all(), &view()));
    }
    Ok(())
}

const COLUMNS: [Column<Issued>; 5] = [
    left("name", |issued| issued.name.clone()),
    left("role", |issued| issued.role.to_string()),
    time("created", |issued| Some(issued.created)),
    time("expires", |issued| issued.expires),
    right("per second", |issued| or_none(issued.rate.map(|rate| rate.to_string()))),
];

impl TokensFile {
    fn path(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let file = System::open(folder)?.tokens_file();
        match file.exists() {
            true => Ok(file),
            false => Err(exit::rejected(format!(
                "tokens are off in {}: turn them on with `sagactl up --tokens`, or name the file of another system with --file",
                folder.display()
            ))),
        }
    }
}
