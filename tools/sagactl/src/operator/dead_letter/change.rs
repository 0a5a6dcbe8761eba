//! Shell: changes to dead letters: discard, restore, resolve manually, add a note.

use std::process::ExitCode;

use admin_api::actor::Reason;
use admin_api::bulk::{BulkOutcome, ChangeMany, NoteMany, Rejected};
use admin_api::dead_letters::{DeadLetterDetail, DeadLetterItem, NewNote};
use anyhow::Context as _;
use clap::Args;
use cli::exit::{self, rejected};
use cli::print_error;

use super::selection::{FilterOptions, Selection, SelectionOptions};
use crate::admin::{Admin, Form, ItemOutcome, for_each, show};
use crate::args;

/// Rejections that are printed. They are much alike.
const MAX_PRINTED: usize = 10;

/// A change with its words.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    /// Name in the API.
    pub name: &'static str,
    pub done: &'static str,
}

pub const DISCARD: Change = Change { name: "discard", done: "discarded" };
const RESTORE: Change = Change { name: "restore", done: "restored" };
pub const RESOLVE: Change = Change { name: "resolve", done: "resolved" };
pub const WITHDRAW_RESOLUTION: Change = Change { name: "withdraw-resolution", done: "reopened" };

impl Change {
    pub fn not_done(self) -> String {
        format!("not {}", self.done)
    }
}

#[derive(Debug, Args)]
pub struct ChangeOptions {
    #[command(flatten)]
    selection: SelectionOptions,
    /// Reason (and means by which the work was done, if it was), for the audit log.
    #[arg(long, value_parser = args::reason)]
    reason: String,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
pub struct RestoreOptions {
    #[command(flatten)]
    selection: SelectionOptions,
    /// Reason, for the audit log; required with a filter.
    #[arg(long, value_parser = args::reason)]
    reason: Option<String>,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
pub struct NoteOptions {
    /// Ids, unless a filter is given, and the text of the note.
    #[arg(required = true, value_name = "[ID]... TEXT")]
    words: Vec<String>,
    #[command(flatten)]
    filter: FilterOptions,
    #[command(flatten)]
    form: Form,
}

pub async fn run(admin: &Admin, change: Change, options: ChangeOptions) -> anyhow::Result<ExitCode> {
    let ChangeOptions { selection, reason, form } = options;
    apply(admin, change, selection, Some(reason), form).await
}

pub async fn restore(admin: &Admin, options: RestoreOptions) -> anyhow::Result<ExitCode> {
    let RestoreOptions { selection, reason, form } = options;
    apply(admin, RESTORE, selection, reason, form).await
}

async fn apply(
    admin: &Admin,
    change: Change,
    selection: SelectionOptions,
    reason: Option<String>,
    form: Form,
) -> anyhow::Result<ExitCode> {
    match selection.selection()? {
        Selection::Matching(filter) => {
            let request = ChangeMany { ids: None, filter: Some(*filter), reason };
            report(&admin.post(&["dlq", change.name], &request).await?, change.done, form)
        }
        Selection::Ids(ids) => {
            let request = Reason { reason };
            for_each(ids, form, async |id| {
                let changed = match change.name {
                    "discard" => admin.delete(&["dlq", id], &request).await,
                    name => admin.post(&["dlq", id, name], &request).await,
                };
                status_outcome(&changed.with_context(|| change.not_done())?)
            })
            .await
        }
    }
}

pub async fn note(admin: &Admin, options: NoteOptions) -> anyhow::Result<ExitCode> {
    let NoteOptions { mut words, filter, form } = options;
    let text = words.pop().unwrap_or_default();
    let id = |word: String| args::id(&word).map_err(|why| rejected(format!("{word:?} is no id: {why}")));
    let ids = words.into_iter().map(id).collect::<Result<_, _>>()?;
    match (SelectionOptions { id: ids, filter }).selection()? {
        Selection::Matching(filter) => {
            let request = NoteMany { ids: None, filter: Some(*filter), text };
            report(&admin.post(&["dlq", "notes"], &request).await?, "noted", form)
        }
        Selection::Ids(ids) => {
            let request = NewNote { text };
            for_each(ids, form, async |id| {
                let noted: DeadLetterDetail =
                    admin.post(&["dlq", id, "notes"], &request).await.context("not noted")?;
                ItemOutcome::new(&noted, format!("{id}: note added"))
            })
            .await
        }
    }
}

/// Reports the status of a dead letter.
pub fn status_outcome(dead_letter: &DeadLetterItem) -> anyhow::Result<ItemOutcome> {
    ItemOutcome::new(dead_letter, format!("{} is {}", dead_letter.id, dead_letter.status.as_str()))
}

/// Prints the outcome of a change to many, and returns the exit code.
pub fn report(outcome: &BulkOutcome, done: &str, form: Form) -> anyhow::Result<ExitCode> {
    report_as(outcome, done, form, &outcome_text(outcome, done))
}

/// Prints the outcome of a change to many in these words, and returns the exit code.
pub fn report_as(outcome: &BulkOutcome, done: &str, form: Form, text: &str) -> anyhow::Result<ExitCode> {
    let code = show(outcome, form, |_, _| text.to_owned())?;
    print_rejections(outcome, done);
    Ok(match (outcome.total(), outcome.failed()) {
        (0, _) => ExitCode::from(exit::NOT_FOUND),
        (_, 0) => code,
        (_, _) => ExitCode::from(exit::REJECTED),
    })
}

/// Prints the first rejections as errors.
pub fn print_rejections(outcome: &BulkOutcome, done: &str) {
    for Rejected { id, detail, .. } in outcome.failures().take(MAX_PRINTED) {
        print_error(&rejected(format!("{id}: not {done}: {detail}")));
    }
    let more = outcome.failed().saturating_sub(MAX_PRINTED as u64);
    if more > 0 {
        print_error(&rejected(format!("{more} more were not {done}")));
    }
}

/// Summarises the outcome of a change to many.
pub fn outcome_text(outcome: &BulkOutcome, done: &str) -> String {
    if outcome.total() == 0 {
        return format!("no dead letter matches: nothing was {done}");
    }
    format!("{} {done}, {}", outcome.done, rejections_text(outcome))
}

/// Counts what was not done.
pub fn rejections_text(outcome: &BulkOutcome) -> String {
    let ended = match outcome.ended() {
        0 => String::new(),
        ended => format!(", {ended} had ended already"),
    };
    format!("{} rejected{ended}", outcome.failed())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn outcome_counts_ended_sagas_apart_from_rejections() {
        let rejection = |has_ended| Rejected { id: Uuid::nil(), detail: "x".to_owned(), has_ended };
        let text = |outcome: &BulkOutcome| outcome_text(outcome, "replayed");
        let ended = BulkOutcome { done: 196, rejected: vec![rejection(true)], ..BulkOutcome::default() };
        assert_eq!(text(&ended), "196 replayed, 0 rejected, 1 had ended already");
        let rejected = vec![rejection(true), rejection(false)];
        let some =
            BulkOutcome { done: 1, rejected, more_rejected: 9, more_ended: 7, ..BulkOutcome::default() };
        assert_eq!(text(&some), "1 replayed, 3 rejected, 8 had ended already");
        assert_eq!(text(&BulkOutcome::default()), "no dead letter matches: nothing was replayed");
    }
}
