//! Shell: edit of a message, in an editor or from the command line, and its replay.

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use admin_api::dead_letters::{DeadLetterDetail, EditDeadLetter, EditedDeadLetter, EditedMember};
use anyhow::{Context as _, bail};
use clap::Args;
use cli::exit::{self, ExitError, rejected};
use cli::text::printable;
use serde_json::Value;
use uuid::Uuid;

use crate::admin::{Admin, Form, show};
use crate::args;

/// Options of an edit. Without `--new-data`, `--payload` and `--file` an editor opens.
#[derive(Debug, Args)]
pub struct EditOptions {
    /// Id of the dead letter. Without --new-data, --payload and --file, an editor opens its data.
    #[arg(value_parser = args::id)]
    id: Uuid,
    /// New data of the message. A card token that is *** stays what it was.
    #[arg(long, value_name = "JSON", value_parser = args::json, conflicts_with_all = ["payload", "file"])]
    new_data: Option<Value>,
    /// New envelope.
    #[arg(long, value_name = "JSON", value_parser = args::json, conflicts_with = "file")]
    payload: Option<Value>,
    /// File with the new data; - for standard input.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Reason, for the audit log; optional with --preview.
    #[arg(long, required_unless_present = "preview", value_parser = args::reason)]
    reason: Option<String>,
    /// Show the changes, and replay nothing.
    #[arg(long)]
    preview: bool,
    /// Replay even after three failed replays, or while a replay may be lost.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    form: Form,
}

pub async fn run(admin: &Admin, options: EditOptions) -> anyhow::Result<ExitCode> {
    let EditOptions { id, new_data, payload, file, reason, preview, force, form } = options;
    let request = EditDeadLetter { reason, preview, force, payload, ..EditDeadLetter::default() };
    let edited = match (new_data, file) {
        (Some(data), _) => send(admin, id, &EditDeadLetter { data: Some(data), ..request }).await,
        (None, Some(path)) => {
            send(admin, id, &EditDeadLetter { data: Some(from_file(&path)?), ..request }).await
        }
        (None, None) if request.payload.is_some() => send(admin, id, &request).await,
        (None, None) => edit_by_hand(admin, id, request).await,
    };
    show(&edited?, form, |EditedDeadLetter { dead_letter, changes }, _| {
        let nothing_sent = if preview { ", and nothing was replayed" } else { "" };
        let status = dead_letter.status.as_str();
        format!("{}\n{} is {status}{nothing_sent}", changes_text(changes), dead_letter.id)
    })
}

/// Shows changed members as `diff` does.
fn changes_text(changes: &[EditedMember]) -> String {
    if changes.is_empty() {
        return "the message is unchanged, except for its id".to_owned();
    }
    let line = |sign: &str, value: &Option<Value>| {
        value.as_ref().map(|value| format!("  {sign} {}", printable(&value.to_string())))
    };
    let lines = changes.iter().flat_map(|EditedMember { path, before, after }| {
        let path = if path.is_empty() { "whole message" } else { path };
        // A changed card token is *** before and after.
        let values = if before.is_some() && before == after {
            [Some("  (changed)".to_owned()), None]
        } else {
            [line("-", before), line("+", after)]
        };
        std::iter::once(printable(path)).chain(values.into_iter().flatten())
    });
    lines.collect::<Vec<_>>().join("\n")
}

async fn send(admin: &Admin, id: Uuid, request: &EditDeadLetter) -> anyhow::Result<EditedDeadLetter> {
    let edited = admin.post(&["dlq", &id.to_string(), "edit"], request).await;
    edited.with_context(|| format!("{id}: not edited"))
}

/// Opens an editor on the data. If the edit is rejected, its file is kept.
async fn edit_by_hand(
    admin: &Admin,
    id: Uuid,
    mut request: EditDeadLetter,
) -> anyhow::Result<EditedDeadLetter> {
    if !std::io::stdin().is_terminal() {
        return Err(rejected("an editor needs a terminal: use --new-data, --payload or --file"));
    }
    let dead_letter: DeadLetterDetail = admin.get(&["dlq", &id.to_string()], &()).await?;
    let data = dead_letter.payload.get("data");
    let data = data.context("this message has no data to edit: replace its envelope with --payload")?;
    // Another operator's change in the meantime is not overwritten.
    request.version = Some(dead_letter.item.version);
    let before = serde_json::to_string_pretty(data)?;
    let file = tempfile::Builder::new().prefix("dead-letter-").suffix(".json").tempfile()?;
    std::fs::write(file.path(), format!("{before}\n"))?;
    run_editor(file.path())?;
    let after = std::fs::read_to_string(file.path()).context("the edited file cannot be read")?;
    if after.trim_end() == before {
        return Err(rejected("nothing was changed, and nothing is sent"));
    }
    let sent = match args::json(&after) {
        Ok(edited) => send(admin, id, &EditDeadLetter { data: Some(edited), ..request }).await,
        Err(why) => Err(rejected(why)),
    };
    let Err(error) = sent else { return sent };
    let (_, path) = file.keep()?;
    let text =
        format!("{error:#}; your edit is kept: correct it, and send it with --file {}", path.display());
    Err(ExitError::new(exit::code_of(&error), text).into())
}

fn run_editor(path: &Path) -> anyhow::Result<()> {
    let named = ["VISUAL", "EDITOR"].into_iter().filter_map(|name| std::env::var(name).ok());
    let editor =
        named.into_iter().find(|editor| !editor.trim().is_empty()).unwrap_or_else(|| "vi".to_owned());
    // In a shell, as it may have options: "code --wait".
    let status = Command::new("sh").args(["-c", &format!("{editor} \"$1\""), "sh"]).arg(path).status();
    let status = status.with_context(|| format!("the editor {editor:?} cannot be started: set EDITOR"))?;
    if !status.success() {
        bail!("the editor {editor:?} failed ({status}), and nothing is sent: set EDITOR to another one");
    }
    Ok(())
}

fn from_file(path: &Path) -> anyhow::Result<Value> {
    let mut text = String::new();
    let reading = if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(path).map(|read| text = read)
    };
    reading.with_context(|| format!("{} cannot be read", path.display()))?;
    args::json(&text).map_err(|why| rejected(format!("{}: {why}", path.display())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changes_are_shown_with_old_and_new_value() {
        let change = |path: &str, before: Option<Value>, after: Option<Value>| EditedMember {
            path: path.to_owned(),
            before,
            after,
        };
        let changes = [
            change("data.lines[0].sku", Some(json!("tea")), Some(json!("cup\n"))),
            change("data.note", None, Some(json!({"a": 1}))),
            change("", Some(json!("{half")), None),
            change("data.payment.token", Some(json!("***")), Some(json!("***"))),
        ];
        let shown = [
            "data.lines[0].sku\n  - \"tea\"\n  + \"cup\\n\"",
            "data.note\n  + {\"a\":1}",
            "whole message\n  - \"{half\"",
            "data.payment.token\n  (changed)",
        ];
        assert_eq!(changes_text(&changes), shown.join("\n"));
        assert_eq!(changes_text(&[]), "the message is unchanged, except for its id");
    }

    #[test]
    fn error_of_an_invalid_file_names_it() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "{").expect("written");
        let error = from_file(file.path()).expect_err("no JSON");
        assert!(error.to_string().contains("invalid JSON: EOF"), "{error}");
        assert!(from_file(Path::new("/nowhere/x")).is_err());
    }
}
