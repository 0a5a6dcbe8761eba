//! Shell: starts, stops and kills of processes, and changes of tokens, for admin's audit log.
//!
//! Admin may be the process that is stopped. So each change is a file in the data folder, written before the change and
//! again with its outcome. It is sent when admin answers, at the end of this command or of a later one, and deleted once
//! admin has it. Admin writes an id once, however often it comes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use admin_api::audit_log::{ASKED, DONE, ProcessChange, ProcessChangeKind};
use cli::note;
use cli::text::short;
use client::http::{Http, fetch};
use futures::future;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use saga_core::access::Token;
use uuid::Uuid;

use super::component::Component;
use super::data_dir::AUDIT_DIR;
use super::secret_file::{create_private_dir, write_private};
use super::system::System;
use super::users::SAGACTL;
use super::{process, tokens};

const ANONYMOUS: &str = "anonymous";
/// Longer than any command waits for the end of a process. Whoever made an older change without an outcome was killed.
const LONGEST_CHANGE: SignedDuration = SignedDuration::from_secs(60);
/// Time limit of a request: nobody waits for admin longer than this at the end of a command.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Changes that one command sends.
const MAX_SENT: usize = 100;
/// Maximum length of an outcome, in characters.
const MAX_OUTCOME: usize = 500;

/// Records what one command does to processes and tokens.
#[derive(Debug, Clone)]
pub struct Audit {
    /// Name and token of the operator; `None` for systems that programs start for themselves.
    operator: Option<Operator>,
    command: String,
}

#[derive(Debug, Clone, Default)]
pub struct Operator {
    /// Name given on the command line, or that of the user.
    pub name: Option<String>,
    /// Token given on the command line.
    pub token: Option<Token>,
}

impl Operator {
    /// Name in the audit log: where tokens are on that of the token, as for all other changes.
    fn name_in(&self, system: &System) -> String {
        if !system.tokens_file().exists() {
            return self.name.clone().unwrap_or_else(|| ANONYMOUS.to_owned());
        }
        let tokens = tokens::read(&system.tokens_file()).unwrap_or_default();
        let holder = |token| tokens.holder(token, Timestamp::now()).ok().map(|issued| issued.name.clone());
        // Without a token of this system, the token of its own sagactl counts.
        self.token.as_ref().and_then(holder).unwrap_or_else(|| SAGACTL.to_owned())
    }
}

impl Audit {
    /// Records nothing.
    pub const OFF: Self = Self { operator: None, command: String::new() };

    pub fn of(operator: Operator, command: impl Into<String>) -> Self {
        Self { operator: Some(operator), command: command.into() }
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
        Some(ProcessChange {
            id: Uuid::now_v7(),
            at: Timestamp::now(),
            operator: self.operator.as_ref()?.name_in(system),
            change,
            process,
            command: self.command.clone(),
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

/// Sends recorded changes to admin, oldest first, and forgets those that it has. Those that cannot be sent are kept for a
/// later command.
pub async fn deliver(system: &System) {
    let mut pending = pending(&folder_of(system));
    pending.truncate(MAX_SENT);
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
        let is_taken = fetch(request, url).await.is_ok_and(|answer| answer.status.is_success());
        let is_over = entry.outcome != ASKED || Timestamp::now().duration_since(entry.at) > LONGEST_CHANGE;
        if is_taken && is_over {
            // It is sent again otherwise, which changes nothing.
            let _ = fs::remove_file(file_of(system, entry.id));
        }
    });
    future::join_all(sent).await;
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
