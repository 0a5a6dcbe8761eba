//! Pure: exit codes, and errors that carry one.

/// Failure: something is unreachable or broken; `load` and `chaos` found a problem.
pub const FAILED: u8 = 1;
/// Invalid or rejected command; discrepancies; a stopped redrive.
pub const REJECTED: u8 = 2;
pub const ALREADY_RUNNING: u8 = 3;
pub const NOT_FOUND: u8 = 4;
/// A problem needs a human: `status`, `doctor` and `top --once` show it.
pub const HUMAN_NEEDED: u8 = 5;
/// No verdict of the reconciliation yet: orders are in flight, or a service does not answer.
pub const NO_VERDICT: u8 = 6;
/// Interrupted by Ctrl-C: 128 + SIGINT, as in shells. A redrive that was followed continues.
pub const INTERRUPTED: u8 = 130;

/// Exit codes as text for `--help`.
pub const HELP: &str = "Exit codes:
    0  success
    1  failure: no answer, or an error; load, chaos: a failed run; replay --wait: no result in time
    2  invalid or rejected command; reconciliation found discrepancies; the redrive stopped or was cancelled
    3  the system already runs
    4  not found
    5  status, doctor, top --once: a human is needed
    6  no verdict of the reconciliation yet: orders are in flight, or a service does not answer
  130  interrupted; a redrive that was followed continues";

/// Error with an exit code.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct ExitError {
    code: u8,
    text: String,
}

impl ExitError {
    pub fn new(code: u8, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

/// Failure of a single item; others of the same command may succeed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ItemError(pub String);

/// Turns a failure that admin has answered into that of a single item: another service has failed.
pub fn item_error(error: anyhow::Error) -> anyhow::Error {
    let is_answer = error.is::<ExitError>() && code_of(&error) == FAILED;
    if is_answer { ItemError(format!("{error:#}")).into() } else { error }
}

/// Creates an error for an invalid or rejected command.
pub fn rejected(text: impl Into<String>) -> anyhow::Error {
    ExitError::new(REJECTED, text).into()
}

/// Returns the exit code of an error.
pub fn code_of(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<ExitError>().map_or(FAILED, |error| error.code)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn exit_error_keeps_its_code_within_context() {
        let failed: anyhow::Result<()> = Err(ExitError::new(NOT_FOUND, "there is none").into());
        let error = failed.context("cannot be replayed").context("dead letter 1").expect_err("an error");
        assert_eq!(code_of(&error), NOT_FOUND);
        assert_eq!(format!("{error:#}"), "dead letter 1: cannot be replayed: there is none");
        assert_eq!(code_of(&anyhow::anyhow!("broken")), FAILED);
        assert_eq!(code_of(&ItemError("in flight".to_owned()).into()), FAILED);
    }
}
