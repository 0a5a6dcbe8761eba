//! Pure: how this program ends, for scripts.

/// What was asked for did not work: unreachable, or broken; `load` and `chaos` found something wrong.
pub const FAILED: u8 = 1;
/// The command makes no sense or was refused; reconciliation finds something; a redrive stopped.
pub const REFUSED: u8 = 2;
/// The system runs already.
pub const RUNS_ALREADY: u8 = 3;
/// There is no such thing.
pub const UNKNOWN: u8 = 4;
/// Something does not mend itself: `status`, `doctor` and `top --once` say what.
pub const HUMAN_NEEDED: u8 = 5;
/// Whether the books balance cannot be told yet: something is under way, or somebody does not answer.
pub const NOT_YET: u8 = 6;
/// Ctrl-C ended what this program did: starting, `load`, `chaos`, or the following of a redrive, which goes on (128 +
/// SIGINT, as shells have it).
pub const INTERRUPTED: u8 = 130;

/// The same for `--help`.
pub const HELP: &str = "Exit codes:
    0  done
    1  it did not work: nobody answers, or something broke; load, chaos: a run is not good; replay --wait: not known in time
    2  it makes no sense or was refused; the books do not balance; the redrive stopped or was cancelled
    3  the system runs already
    4  there is no such thing
    5  status, doctor, top --once: a human is needed
    6  it cannot be told yet whether the books balance: something is under way, or a service does not answer
  130  interrupted; a redrive that was followed goes on";

/// An error that ends the program with a code of its own.
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

/// It did not work with one thing, or is not known in time: nobody failed who would be asked about others.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OfThisOne(pub String);

/// The same error, but when admin answered that it did not work it is about one thing: another service failed.
pub fn of_this_one(error: anyhow::Error) -> anyhow::Error {
    let is_answer = error.is::<Refusal>() && code_of(&error) == FAILED;
    if is_answer { OfThisOne(format!("{error:#}")).into() } else { error }
}

/// The command makes no sense.
pub fn refuse(text: impl Into<String>) -> anyhow::Error {
    Refusal::new(REFUSED, text).into()
}

/// The code that an error ends the program with.
pub fn code_of(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<Refusal>().map_or(FAILED, |refusal| refusal.code)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_refusal_keeps_its_code_whatever_is_said_around_it() {
        let refused: anyhow::Result<()> = Err(Refusal::new(UNKNOWN, "there is none").into());
        let error = refused.context("cannot be replayed").context("dead letter 1").expect_err("an error");
        assert_eq!(code_of(&error), UNKNOWN);
        assert_eq!(format!("{error:#}"), "dead letter 1: cannot be replayed: there is none");
        assert_eq!(code_of(&anyhow::anyhow!("broken")), FAILED);
        assert_eq!(code_of(&OfThisOne("under way".to_owned()).into()), FAILED);
    }
}
