//! Shell: handing a dead letter back with other contents.

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use strum::IntoStaticStr;
use uuid::Uuid;

use super::change::standing;
use super::secrets;
use crate::admin::{Admin, Done, Form, read, show};
use crate::args;
use cli::exit::{self, ExitError, rejected};
use cli::text::printable;

/// What to write instead. With none of --new-data, --payload and --file an editor is opened on the data.
#[derive(Debug, Args)]
pub struct EditOptions {
    /// The one to edit.
    #[arg(value_parser = args::id)]
    id: Uuid,
    /// The message's data. A token written *** stays what it was.
    #[arg(long, value_name = "JSON", value_parser = args::json, conflicts_with_all = ["payload", "file"])]
    new_data: Option<Value>,
    /// The whole envelope.
    #[arg(long, value_name = "JSON", value_parser = args::json, conflicts_with = "file")]
    payload: Option<Value>,
    /// The message's data, in a file; - is standard input.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Why, for the audit log; not needed with --preview.
    #[arg(long, required_unless_present = "preview")]
    reason: Option<String>,
    /// Show what it would change, and send nothing.
    #[arg(long)]
    preview: bool,
    /// Even one that was replayed three times, or whose replay is under way and seems lost.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    form: Form,
}

/// Which part of a message is replaced.
#[derive(Debug, Clone, Copy, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
enum Part {
    Data,
    Payload,
}

/// `sagactl dlq edit`.
pub async fn run(admin: &Admin, options: EditOptions) -> anyhow::Result<ExitCode> {
    let EditOptions { id, new_data, payload, file, reason, preview, force, form } = options;
    let set = |is_set: bool| is_set.then_some(true);
    let body = json!({ "reason": reason, "force": set(force), "preview": set(preview) });
    let edited = match (new_data, payload, file) {
        (Some(data), ..) => send(admin, id, body, Part::Data, data).await,
        (None, Some(payload), _) => send(admin, id, body, Part::Payload, payload).await,
        (None, None, Some(path)) => send(admin, id, body, Part::Data, from_file(&path)?).await,
        (None, None, None) => by_hand(admin, id, body).await,
    };
    let edited = edited?;
    let Edited { changes } = read(edited.clone())?;
    let Done { answer, told } = standing(edited)?;
    let told = if preview { format!("{told}, and nothing was sent") } else { told };
    show(answer, form, |_: &Value, _| format!("{}\n{told}", differences(&changes)))
}

/// What the answer says of the message.
#[derive(Debug, Deserialize)]
struct Edited {
    changes: Vec<Change>,
}

/// A member that is not what it was.
#[derive(Debug, Deserialize)]
struct Change {
    path: String,
    before: Option<Value>,
    after: Option<Value>,
}

/// Each member with what it was and what it is, as `diff` shows them.
fn differences(changes: &[Change]) -> String {
    if changes.is_empty() {
        return "the message is the same as before but for its id".to_owned();
    }
    let line = |sign: &str, value: &Option<Value>| {
        value.as_ref().map(|value| format!("  {sign} {}", printable(&value.to_string())))
    };
    let lines = changes.iter().flat_map(|change| {
        let path = if change.path.is_empty() { "the whole message" } else { &change.path };
        // What is hidden looks the same before and after, or it would not be here.
        let values = if change.before.is_some() && change.before == change.after {
            [Some("  (changed)".to_owned()), None]
        } else {
            [line("-", &change.before), line("+", &change.after)]
        };
        std::iter::once(printable(path)).chain(values.into_iter().flatten())
    });
    lines.collect::<Vec<_>>().join("\n")
}

async fn send(
    admin: &Admin,
    id: Uuid,
    mut body: Value,
    part: Part,
    mut value: Value,
) -> anyhow::Result<Value> {
    if secrets::is_hidden(&value) {
        let envelope = fetch(admin, id).await?.envelope()?;
        let original = match part {
            Part::Data => &envelope["data"],
            Part::Payload => &envelope,
        };
        secrets::put_back(&mut value, original);
    }
    body[<&str>::from(part)] = value;
    let edited = admin.post(&["dlq", &id.to_string(), "edit"], &body).await;
    edited.with_context(|| format!("{id}: not edited"))
}

/// Opens an editor on the data. What was written there is not lost when it is refused.
async fn by_hand(admin: &Admin, id: Uuid, mut body: Value) -> anyhow::Result<Value> {
    if !std::io::stdin().is_terminal() {
        return Err(rejected(
            "say what to write with --new-data, --payload or --file: an editor needs a terminal",
        ));
    }
    let dead_letter = fetch(admin, id).await?;
    let mut data = dead_letter
        .envelope()?
        .get("data")
        .cloned()
        .context("this message has no data to edit: give the whole envelope with --payload")?;
    // Somebody else's change meanwhile is not overwritten.
    body["version"] = dead_letter.version.into();
    secrets::hide(&mut data);
    let before = serde_json::to_string_pretty(&data)?;
    let file = tempfile::Builder::new().prefix("dead-letter-").suffix(".json").tempfile()?;
    std::fs::write(file.path(), format!("{before}\n"))?;
    edit(file.path())?;
    let after = std::fs::read_to_string(file.path()).context("what was edited cannot be read")?;
    if after.trim_end() == before {
        return Err(rejected("nothing was changed, and nothing is sent"));
    }
    let sent = match args::json(&after) {
        Ok(edited) => send(admin, id, body, Part::Data, edited).await,
        Err(why) => Err(rejected(why)),
    };
    let Err(error) = sent else { return sent };
    let (_, path) = file.keep()?;
    let text =
        format!("{error:#}; what you wrote is kept: mend it, and send it with --file {}", path.display());
    Err(ExitError::new(exit::code_of(&error), text).into())
}

fn edit(path: &Path) -> anyhow::Result<()> {
    let named = ["VISUAL", "EDITOR"].into_iter().filter_map(|name| std::env::var(name).ok());
    let editor =
        named.into_iter().find(|editor| !editor.trim().is_empty()).unwrap_or_else(|| "vi".to_owned());
    // By the shell, for it may have options: "code --wait".
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

async fn fetch(admin: &Admin, id: Uuid) -> anyhow::Result<Contents> {
    read(admin.ask(&["dlq", &id.to_string()], &()).await?)
}

/// What a dead letter contains.
#[derive(Debug, Deserialize)]
struct Contents {
    version: i64,
    payload_base64: String,
}

impl Contents {
    fn envelope(&self) -> anyhow::Result<Value> {
        if self.payload_base64.is_empty() {
            return Err(rejected(
                "this message is empty or was too large to be announced: give a whole envelope with --payload",
            ));
        }
        let bytes = STANDARD.decode(&self.payload_base64).unwrap_or_default();
        let envelope = serde_json::from_slice(&bytes).ok();
        envelope.ok_or_else(|| {
            rejected("this message is no JSON: give a whole envelope with --payload, without ***")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_envelope_is_what_the_bytes_say() {
        let contents =
            |payload_base64: &str| Contents { version: 1, payload_base64: payload_base64.to_owned() };
        let envelope = contents(&STANDARD.encode(br#"{"data":{"a":1}}"#)).envelope();
        assert_eq!(envelope.expect("an envelope")["data"]["a"], 1);
        for noise in [STANDARD.encode(b"\xff\x00"), "!".to_owned(), String::new()] {
            let refused = contents(&noise).envelope().expect_err("no envelope");
            assert_eq!(exit::code_of(&refused), exit::REJECTED);
        }
    }

    #[test]
    fn what_an_edit_changes_is_shown_as_it_was_and_as_it_is() {
        let change = |path: &str, before: Option<Value>, after: Option<Value>| Change {
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
            "the whole message\n  - \"{half\"",
            "data.payment.token\n  (changed)",
        ];
        assert_eq!(differences(&changes), shown.join("\n"));
        assert_eq!(differences(&[]), "the message is the same as before but for its id");
    }

    #[test]
    fn a_file_that_is_no_json_is_named() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "{").expect("written");
        let refused = from_file(file.path()).expect_err("no JSON");
        assert!(refused.to_string().contains("invalid JSON: EOF"), "{refused}");
        assert!(from_file(Path::new("/nowhere/x")).is_err());
    }
}
