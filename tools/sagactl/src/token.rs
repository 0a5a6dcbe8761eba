//! Shell: `sagactl token`: who may ask admin for what: issue a token, list them, take one back.

use std::io::IsTerminal as _;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use saga_core::access::{Issued, Refusal, Role};
use serde_json::json;
use strum::VariantNames as _;

use crate::admin::Form;
use crate::args::duration;
use crate::output::exit::{self, UNKNOWN};
use crate::output::text::or_nothing;
use crate::output::{Column, left, note, right, say, say_json, table, view, when};
use devstack::{System, tokens};

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Issue a token and print it, this once: only its digest is kept. Services take it within a second
    Create(Create),
    /// List the tokens: whose each is, what it may do, until when
    List {
        #[command(flatten)]
        place: TokensFile,
        #[command(flatten)]
        form: Form,
    },
    /// Take a token back. Services refuse it within a second
    Revoke {
        /// Whose it is.
        name: String,
        #[command(flatten)]
        place: TokensFile,
    },
}

/// Which token to issue.
#[derive(Debug, Args)]
pub struct Create {
    /// Whose it is: the operator, in the audit log.
    name: String,
    /// viewer looks, operator mends as well, admin overrules as well (edits, --force, breakers, faults, audit --accept).
    #[arg(long, value_parser = role())]
    role: Role,
    /// For how long it holds, e.g. 90d; without it, until it is revoked.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    expires: Option<Duration>,
    /// Requests in a second, where that is not what the services say (http.rate).
    #[arg(long, value_name = "N")]
    rate: Option<NonZeroU32>,
    #[command(flatten)]
    place: TokensFile,
}

/// Which file has the tokens.
#[derive(Debug, Args)]
pub struct TokensFile {
    /// File with the tokens of another system, as its services have it as http.tokens; create makes it.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

fn role() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::VARIANTS).map(|name| name.parse().unwrap_or(Role::Viewer))
}

/// Does it with the tokens of the system in `folder`, or of the file that was named.
pub fn run(command: TokenCommand, folder: &Path) -> anyhow::Result<ExitCode> {
    match command {
        TokenCommand::Create(create) => issue(&create, folder)?,
        TokenCommand::List { place, form } => list(&place, form, folder)?,
        TokenCommand::Revoke { name, place } => {
            let file = place.of(folder)?;
            let unknown =
                || exit::Refusal::new(UNKNOWN, format!("there is no token of the name {name:?}")).into();
            tokens::change(&file, false, |tokens| tokens.revoke(&name).ok_or_else(unknown))?;
            say(&format!("{name} is revoked"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn issue(create: &Create, folder: &Path) -> anyhow::Result<()> {
    let Create { name, role, expires, rate, place } = create;
    let until = |time: &Duration| {
        let time = SignedDuration::try_from(*time).ok();
        let until = time.and_then(|time| Timestamp::now().checked_add(time).ok());
        until.ok_or_else(|| exit::refuse("--expires is beyond what a calendar has: leave it out"))
    };
    let expires = expires.as_ref().map(until).transpose()?;
    let issued = tokens::change(&place.of(folder)?, place.file.is_some(), |tokens| {
        tokens::issue(tokens, name, *role, expires, *rate)
    });
    let token = issued.map_err(|error| match error.downcast::<Refusal>() {
        Ok(refusal) => exit::refuse(refusal.to_string()),
        Err(error) => error,
    })?;
    // The one place where it is printed. What is said beside does not get into a file that it is written to.
    say(token.secret());
    if std::io::stdout().is_terminal() {
        note("this is shown once: keep it in a file of mode 600, and name that with --token or SAGA_TOKEN");
    }
    Ok(())
}

fn list(place: &TokensFile, form: Form, folder: &Path) -> anyhow::Result<()> {
    let tokens = tokens::read(&place.of(folder)?)?;
    if form.json {
        // Digests are nobody's business.
        let item = |issued: &Issued| {
            let Issued { name, role, created, expires, rate, .. } = issued;
            json!({ "name": name, "role": role, "created": created, "expires": expires, "rate": rate })
        };
        let items: Vec<_> = tokens.all().iter().map(item).collect();
        say_json(&json!({ "items": items, "next": null }));
    } else {
        say(&table(&COLUMNS, tokens.all(), &view()));
    }
    Ok(())
}

const COLUMNS: [Column<Issued>; 5] = [
    left("name", |issued| issued.name.clone()),
    left("role", |issued| issued.role.to_string()),
    when("created", |issued| Some(issued.created)),
    when("expires", |issued| issued.expires),
    right("per second", |issued| or_nothing(issued.rate.map(|rate| rate.to_string()))),
];

impl TokensFile {
    fn of(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let file = System::open(folder)?.tokens_file();
        match file.exists() {
            true => Ok(file),
            false => Err(anyhow!(
                "tokens are off in {}: `sagactl up --tokens` turns them on; or name the file of another system with --file",
                folder.display()
            )),
        }
    }
}
