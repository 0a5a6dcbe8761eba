//! Pure: exit codes, and errors that choose theirs.

/// Failure: something is unreachable or broken; `load` and `chaos` found a problem.
pub const FAILED: u8 = 1;
/// Invalid or rejected command; discrepancies; a stopped redrive.
pub const REFUSED: u8 = 2;
pub const RUNS_ALREADY: u8 = 3;
pub const UNKNOWN: u8 = 4;
/// A problem needs a human: `status`, `doctor` and `top --once` show it.
pub const HUMAN_NEEDED: u8 = 5;
/// No verdict of the reconciliation yet: orders are in flight, or a service does not answer.
pub const NOT_YET: u8 = 6;
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
pub struct Refusal {
    code: u8,
    text: String,
}

impl Refusal {
    pub fn new(code: u8, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

/// Failure of a single item; others of the same command may succeed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OfThisOne(pub String);

/// Turns a failure that admin has answered into that of a single item: another service has failed.
pub fn of_this_one(error: anyhow::Error) -> anyhow::Error {
    let is_answer = error.is::<Refusal>() && code_of(&error) == FAILED;
    if is_answer { OfThisOne(format!("{error:#}")).into() } else { error }
}

/// Error for an invalid or rejected command.
pub fn refuse(text: impl Into<String>) -> anyhow::Error {
    Refusal::new(REFUSED, text).into()
}

/// Exit code of an error.
pub fn code_of(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<Refusal>().map_or(FAILED, |refusal| refusal.code)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn refusal_keeps_its_code_within_context() {
        let refused: anyhow::Result<()> = Err(Refusal::new(UNKNOWN, "there is none").into());
        let error = refused.context("cannot be replayed").context("dead letter 1").expect_err("an error");
        assert_eq!(code_of(&error), UNKNOWN);
        assert_eq!(format!("{error:#}"), "dead letter 1: cannot be replayed: there is none");
        assert_eq!(code_of(&anyhow::anyhow!("broken")), FAILED);
        assert_eq!(code_of(&OfThisOne("under way".to_owned()).into()), FAILED);
    }
}
