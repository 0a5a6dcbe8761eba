//! The pure engine over a real store in a file, one batch at a time: no loops, the clock is an argument, and the
//! process can die after any batch.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use saga_core::dead_letter::{DeadLetterMessage, StoredDeadLetter};
use saga_core::decision::{self, DecisionConfig};
use saga_core::input::{Input, Outcome};
use saga_core::service::{Service as _, steps_of};
use saga_core::waiting::{Retry, Task};
use saga_engine::store::Store;
use saga_engine::store::sqlite::SqliteStore;
use tempfile::TempDir;
use uuid::Uuid;

use super::depot::{Depot, DepotCommand};
use super::engine_harness::{OWNER, Pace, decision_config};
use super::operator_commands::{announcements, commanded};
use super::writes::{at, due_query};

/// Depot whose batches are run by hand.
pub struct OperatorHarness {
    decision_config: DecisionConfig,
    store: Option<Arc<dyn Store>>,
    /// Batches until the process dies, after which its messages are redelivered.
    lives: Option<usize>,
    executed: u128,
    folder: TempDir,
}

impl OperatorHarness {
    /// Creates an empty database. Each message and task has one attempt.
    pub fn new() -> Self {
        Self::over(|_| ())
    }

    /// Uses a database that `made` may have created.
    pub fn over(made: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        made(&folder.path().join("depot.db"));
        let store = Some(open(&folder));
        let decision_config = decision_config(Pace { attempts: 1, ..Pace::default() });
        Self { decision_config, store, lives: None, executed: 0, folder }
    }

    /// Creates a process that dies after `batches`, before any acknowledgement.
    pub fn dying_after(batches: usize) -> Self {
        Self { lives: Some(batches), ..Self::new() }
    }

    /// Sets the maximum attempts of messages and tasks.
    pub fn with_attempts(mut self, attempts: u32) -> Self {
        self.decision_config.retry.max_attempts = attempts;
        self.decision_config.task_retry.max_attempts = attempts;
        self
    }

    /// True if the process has not died yet.
    pub fn has_yet_to_die(&self) -> bool {
        self.lives.is_some()
    }

    pub fn store(&self) -> &dyn Store {
        self.store.as_deref().expect("it is open")
    }

    /// Processes one batch of messages. After a death they are redelivered, and must have no second effect.
    pub async fn receives_batch(
        &mut self,
        second: i64,
        inputs: impl Fn() -> Vec<Input<Depot>>,
    ) -> Vec<Outcome<Depot>> {
        let outcomes = self.process_batch(second, inputs()).await;
        if self.dies() {
            for outcome in self.process_batch(second, inputs()).await {
                assert_eq!(outcome.name(), "duplicate", "what was committed is known");
            }
        }
        outcomes
    }

    /// Processes one message, and returns the name of its outcome.
    pub async fn receives(&mut self, second: i64, input: impl Fn() -> Input<Depot>) -> &'static str {
        let [outcome] = &self.receives_batch(second, || vec![input()]).await[..] else {
            panic!("one outcome")
        };
        outcome.name()
    }

    /// Processes an operator command.
    pub async fn receives_command(&mut self, second: i64, command: DeadLetterMessage) -> &'static str {
        self.receives(second, || commanded(&command)).await
    }

    /// Executes a command through HTTP.
    pub async fn executes(&mut self, second: i64, command: DepotCommand) {
        self.executed += 1;
        let id = Uuid::from_u128(0xC0_0000 + self.executed);
        let outcomes = self.process_batch(second, vec![Input::command(id, id, command, None)]).await;
        assert_eq!(outcomes[0].name(), "done");
        self.dies();
    }

    /// Processes due retries, as the timers do.
    pub async fn retry_due(&mut self, second: i64) -> Vec<&'static str> {
        let due = self.store().claim_due(due_query(at(second), 99, OWNER, at(second + 60))).await;
        let steps = steps_of::<Depot>();
        let input = |retry: Retry| {
            let step = steps.iter().find(|step| step.name == retry.step).expect("a step of the depot");
            Input::retry(step, retry, 0)
        };
        let inputs = due.expect("the store works").retries.into_iter().map(input).collect();
        let outcomes = self.process_batch(second, inputs).await;
        self.dies();
        outcomes.iter().map(Outcome::name).collect()
    }

    /// Claims the tasks that are due.
    pub async fn calls(&self, second: i64) -> Vec<Task> {
        self.store()
            .claim_due(due_query(at(second), 99, OWNER, at(second + 60)))
            .await
            .expect("the store works")
            .tasks
    }

    /// Processes and commits one batch.
    pub async fn process_batch(&self, second: i64, inputs: Vec<Input<Depot>>) -> Vec<Outcome<Depot>> {
        let inputs = Arc::new(inputs);
        let decided = Arc::new(Mutex::new(None));
        let decide = {
            let (inputs, decided, decision_config) =
                (inputs.clone(), decided.clone(), self.decision_config.clone());
            move |loaded| {
                let (writes, outcomes) =
                    decision::decide(&Depot, &inputs, loaded, &decision_config, at(second));
                *decided.lock() = Some(outcomes);
                writes
            }
        };
        let committed = self.store().transact(decision::reads(&Depot, &inputs), Box::new(decide)).await;
        committed.expect("the store works");
        decided.lock().take().expect("the batch was decided")
    }

    /// Counts a batch. True if the process died after it, and has a new store over the same file.
    pub fn dies(&mut self) -> bool {
        self.lives = match self.lives {
            Some(0) => None,
            Some(more) => {
                self.lives = Some(more - 1);
                return false;
            }
            None => return false,
        };
        self.store = None;
        self.store = Some(open(&self.folder));
        true
    }

    /// All dead letters, newest first.
    pub async fn dead_letters(&self) -> Vec<StoredDeadLetter> {
        self.store().dead_letters(99).await.expect("the store works").readable
    }

    /// The only dead letter.
    #[track_caller]
    pub fn dead_letter(&self) -> impl Future<Output = StoredDeadLetter> {
        let caller = std::panic::Location::caller();
        async move {
            let mut dead_letters = self.dead_letters().await;
            assert_eq!(dead_letters.len(), 1, "one dead letter, at {caller}: {dead_letters:?}");
            dead_letters.remove(0)
        }
    }

    /// Announcements of dead letters in order, with their message ids.
    pub async fn announced(&self) -> Vec<(Uuid, DeadLetterMessage)> {
        announcements(&self.store().pending_entries(999).await.expect("the store works"))
    }

    /// Number of messages that a step has processed.
    pub async fn handled(&self, step: &str) -> u64 {
        let counts = self.store().message_counts().await.expect("the store works");
        counts.handled.get(step).copied().unwrap_or(0)
    }

    /// Pieces of tea.
    pub async fn tea(&self) -> i64 {
        let tea = super::writes::state(self.store(), "tea").await.expect("the store works");
        tea.map_or(0, |shelf| shelf.pieces)
    }
}

fn open(folder: &TempDir) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(&folder.path().join("depot.db"), Depot::rows()).expect("its database"))
}
