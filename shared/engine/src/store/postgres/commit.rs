//! Shell: commits one batch once, although the reply to a commit may be lost and attempts may be repeated.

use std::time::Duration;

use saga_core::retry::error_chain;
use tracing::warn;
use uuid::Uuid;

use crate::store::StoreFault;

/// Maximum number of attempts after conflicts and lost connections.
const MAX_ATTEMPTS: u32 = 4;

/// Interval of checks whether a commit was done.
const CHECK_EVERY: Duration = Duration::from_millis(200);

/// End of one attempt at a batch.
#[derive(Debug)]
pub enum Attempt<T> {
    /// Committed.
    Committed(T),
    /// Not committed.
    Failed(StoreFault),
    /// The reply to the commit was lost.
    Unclear(T, StoreFault),
}

/// Attempts at one batch, each a transaction under a token of its own.
pub trait Attempts: Send {
    /// Result of the batch.
    type Done: Send;

    /// Runs one transaction, which stores the token.
    fn attempt(&mut self, token: Uuid) -> impl Future<Output = Attempt<Self::Done>> + Send;

    /// Reads whether the transaction with this token was committed. Waits for a commit in progress.
    fn is_committed(&mut self, token: Uuid) -> impl Future<Output = Result<bool, StoreFault>> + Send;

    /// True if another attempt may succeed.
    fn may_succeed(&self, fault: &StoreFault) -> bool;
}

/// Commits the batch once.
///
/// # Errors
/// The fault of the last attempt. Then nothing is committed, unless the database has gone back in time.
pub async fn commit<A: Attempts>(mut attempts: A) -> Result<A::Done, StoreFault> {
    let mut count = 0;
    loop {
        count += 1;
        let token = Uuid::now_v7();
        let fault = match attempts.attempt(token).await {
            Attempt::Committed(done) => return Ok(done),
            Attempt::Unclear(done, fault) => match was_committed(&mut attempts, token, &fault).await {
                true => return Ok(done),
                false => fault,
            },
            Attempt::Failed(fault) => fault,
        };
        if count == MAX_ATTEMPTS || !attempts.may_succeed(&fault) {
            return Err(fault);
        }
    }
}

/// Finds out whether a batch was committed whose reply was lost. Repeats until the answer is known: only then may the caller
/// learn the outcome.
async fn was_committed(attempts: &mut impl Attempts, token: Uuid, lost: &StoreFault) -> bool {
    warn!("the reply to a commit was lost, checking whether it was done: {}", error_chain(lost));
    loop {
        match attempts.is_committed(token).await {
            Ok(was_committed) => return was_committed,
            // Nothing is done on this database any more.
            Err(StoreFault::DataLost(_)) => return false,
            Err(fault) => warn!("cannot check yet whether a batch was committed: {}", error_chain(&fault)),
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
}
