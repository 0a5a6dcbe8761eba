//! Shell: starts, stops and kills of processes, and changes of tokens, for admin's audit log.
//!
//! Admin may be the process that is stopped. So each change is a file in the data folder, written before the change and
//! again with its outcome. It is sent when admin answers, at the end of this command or of a later one, and deleted once
//! admin has it. Admin writes an id once, however often it comes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use admin_api::audit_log::{ASKED, DONE, MAX_ID_AGE, ProcessChange, ProcessChangeKind};
use cli::note;
use cli::text::short;
use client::http::{Http, fetch};
use futures::future;
use jiff::{SignedDuration, Timestamp};
use reqwest::{Method, StatusCode};
use saga_core::access::Token;
use saga_core::ids::began_at;
use uuid::Uuid;

use super::component::Component;
use super::data_dir::AUDIT_DIR;
use super::secret_file::{create_private_dir, write_private};
use super::system::System;
use super::users::SAGACTL;
use super::{process, tokens};

const ANONYMOUS: &str = "anonymous";

/// Warning of changes whose author nobody will know.
pub const ANONYMOUS_WARNING: &str =
    "warning: the audit log will say \"anonymous\": name yourself with --operator NAME or SAGA_OPERATOR";

/// Warns that a name does not count, because a token goes with the change.
pub fn overridden_warning(name: &str) -> String {
    format!(
        "warning: where tokens are on, the audit log names the holder of the token, and {name:?} does not count"
    )
}

/// Longer than any command waits for the end of a process. Whoever made an older change without an outcome was killed.
const LONGEST_CHANGE: SignedDuration = SignedDuration::from_secs(60);
/// Time limit of a request: nobody waits for admin longer than this at the end of a command.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Changes that one command sends.
const MAX_SENT: usize = 100;
/// Maximum length of an outcome, in characters.
const MAX_OUTCOME: usize = 500;

/// Records what one command does to processes and tokens.
#[derive(Debug)]
pub struct Audit {
    /// Name and token of the operator; `None` for systems that programs start for themselves.
    operator: Option<Operator>,
    command: String,
    /// Expiry of a token that the command creates.
    expires: Option<Timestamp>,
    /// Warns before the first change.
    warning: Once,
}

#[derive(Debug, Clone, Default)]
pub struct Operator {
    /// Name given on the command line, or that of the user.
    pub name: Option<String>,
    /// True if the name was given, and is not just that of the user.
    pub is_given: bool,
    /// Token given on the command line.
    pub token: Option<Token>,
}

impl Operator {
    /// Name to report, and a warning if it is not the one that was given. Where tokens are on, the holder of a token comes
    /// first, as for all other changes.
    fn name_in(&self, system: &System) -> (String, Option<String>) {
        let has_tokens = system.tokens_file().exists();
        let tokens =
            if has_tokens { tokens::read(&system.tokens_file()).ok() } else { None }.unwrap_or_default();
        let holder = |token| tokens.holder(token, Timestamp::now()).ok().map(|issued| issued.name.clone());
        match (self.token.as_ref().and_then(holder), &self.name) {
            (Some(holder), Some(name)) if self.is_given && holder != *name => {
                (holder, Some(overridden_warning(name)))
            }
            (Some(holder), _) => (holder, None),
            (None, Some(name)) => (name.clone(), None),
            (None, None) if has_tokens => (SAGACTL.to_owned(), None),
            (None, None) => (ANONYMOUS.to_owned(), Some(ANONYMOUS_WARNING.to_owned())),
        }
    }
}

impl Audit {
    /// Records nothing.
    pub const fn off() -> Self {
        Self { operator: None, command: String::new(), expires: None, warning: Once::new() }
    }

    pub fn of(operator: Operator, command: impl Into<String>) -> Self {
        Self { operator: Some(operator), command: command.into(), ..Self::off() }
    }

    /// Adds the expiry of a new token.
    pub fn expiring(self, expires: Option<Timestamp>) -> Self {
        Self { expires, ..self }
    }

    /// Makes a change and records it with its outcome. A change that cannot be recorded is made all the same: a full disk
    /// must not keep a process from being stopped.
    pub async fn record<T>(
        &self,
        system: &System,
        change: ProcessChangeKind,
        process: Component,
        make: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let Some(mut entry) = self.entry(system, change, process.to_string()) else { return make.await };
        write(system, &entry);
        let made = make.await;
        entry.outcome = match &made {
            Ok(_) => DONE.to_owned(),
            Err(error) => short(&format!("{error:#}"), MAX_OUTCOME),
        };
        write(system, &entry);
        made
    }

    /// Records a change of a token that is made.
    pub fn record_token(&self, system: &System, change: ProcessChangeKind, name: &str) {
        if let Some(entry) = self.entry(system, change, name.to_owned()) {
            write(system, &ProcessChange { outcome: DONE.to_owned(), ..entry });
        }
    }

    fn entry(&self, system: &System, change: ProcessChangeKind, process: String) -> Option<ProcessChange> {
        let (operator, warning) = self.operator.as_ref()?.name_in(system);
        self.warning.call_once(|| warning.iter().for_each(|warning| note(warning)));
        Some(ProcessChange {
            id: Uuid::now_v7(),
            at: Timestamp::now(),
            operator,
            change,
            process,
            command: self.command.clone(),
            expires: self.expires,
            outcome: ASKED.to_owned(),
        })
    }
}

fn write(system: &System, entry: &ProcessChange) {
    let (folder, file) = (folder_of(system), file_of(system, entry.id));
    let written = serde_json::to_vec(entry).map_err(Into::into).and_then(|text| {
        create_private_dir(&folder)?;
        write_private(&file, &text)
    });
    if let Err(error) = written {
        note(&format!("the audit log will miss this: {} cannot be written: {error}", file.display()));
    }
}

fn folder_of(system: &System) -> PathBuf {
    system.folder().join(AUDIT_DIR)
}

fn file_of(system: &System, id: Uuid) -> PathBuf {
    folder_of(system).join(format!("{id}.json"))
}

/// Sends recorded changes to admin, and forgets those that it has. Others are kept for a later command, also those that
/// admin rejects: an older one may not know a member. Those that are too old for admin are kept for a human.
pub async fn deliver(system: &System) {
    let mut pending = pending(&folder_of(system));
    // The newest: those that admin rejects must not keep others from being sent.
    pending.drain(..pending.len().saturating_sub(MAX_SENT));
    let is_admin = |component: &Component| component.kind() == Component::ADMIN;
    let is_running = |component| process::find(system, component).is_some();
    if pending.is_empty() || !system.components().filter(is_admin).any(is_running) {
        return;
    }
    // Always by the token of sagactl: the operator may have a smaller role, and owns the processes all the same.
    let Ok(http) = system.access().and_then(|access| Http::with_access(&access)) else { return };
    let url = &format!("{}/api/admin/audit/processes", system.url_of(Component::ADMIN));
    let sent = pending.iter().map(async |entry| {
        let request = http.request(Method::POST, url).timeout(TIMEOUT).json(entry);
        let Ok(answer) = fetch(request, url).await else { return };
        if matches!(answer.status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY) {
            rejected(&file_of(system, entry.id), entry, &answer.error_text());
        }
        let is_taken = answer.status.is_success();
        let is_over = entry.outcome != ASKED || Timestamp::now().duration_since(entry.at) > LONGEST_CHANGE;
        if is_taken && is_over {
            // It is sent again otherwise, which changes nothing.
            let _ = fs::remove_file(file_of(system, entry.id));
        }
    });
    future::join_all(sent).await;
}

/// Renames the file of a rejected change that is too old for admin, and says what is missing in the audit log.
fn rejected(file: &Path, entry: &ProcessChange, why: &str) {
    let name = |file: &Path| file.display().to_string();
    if Timestamp::now().duration_since(began_at(entry.id)) > MAX_ID_AGE {
        let kept = file.with_extension("rejected");
        let _ = fs::rename(file, &kept);
        note(&format!("the audit log will miss {}, which admin rejects: {why}", name(&kept)));
    } else {
        note(&format!(
            "the audit log misses {}, which admin rejects: {why}; later commands send it again",
            name(file)
        ));
    }
}

/// Recorded changes, oldest first. A file that cannot be read stays for a human.
fn pending(folder: &Path) -> Vec<ProcessChange> {
    let files = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let read = |path: PathBuf| {
        let is_entry = path.extension().is_some_and(|extension| extension == "json");
        is_entry.then(|| fs::read(&path).ok()).flatten()
    };
    let texts = files.filter_map(|file| read(file.path()));
    let mut entries: Vec<ProcessChange> =
        texts.filter_map(|text| serde_json::from_slice(&text).ok()).collect();
    entries.sort_by_key(|entry| entry.id);
    entries
}
