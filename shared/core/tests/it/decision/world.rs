//! Database in memory for the till.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use saga_core::dead_letter::{DeadLetterStatus, StoredDeadLetter};
use saga_core::decision::{DecisionConfig, InboxState, KeyedAnswer, Loaded, Reads, Writes, decide, reads};
use saga_core::input::{Input, Outcome};
use saga_core::retry::RetryPolicy;
use saga_core::row::{Projected, RowKey, StoredRow};
use saga_core::waiting::{Retry, Task};
use uuid::Uuid;

use super::till::{ATTEMPTS, NOON, STEPS, Till, TillCommand, Tin};

/// Database in memory.
pub struct World {
    pub now: Timestamp,
    pub rules: DecisionConfig,
    pub rows: BTreeMap<RowKey, (i64, Projected)>,
    pub inbox: BTreeMap<(&'static str, Uuid), InboxState>,
    pub tasks: BTreeMap<Uuid, Task>,
    pub retries: BTreeMap<(String, Uuid), Retry>,
    pub keys: BTreeMap<String, KeyedAnswer>,
    pub dead_letters: BTreeMap<Uuid, StoredDeadLetter>,
    command_count: u128,
}

impl World {
    pub fn new() -> Self {
        let retry = RetryPolicy {
            max_attempts: ATTEMPTS,
            base: Duration::from_secs(4),
            cap: Duration::from_secs(60),
        };
        let rules = DecisionConfig {
            retry,
            step_retry: BTreeMap::new(),
            task_retry: RetryPolicy { base: Duration::from_secs(8), ..retry },
            owner: "till-1".to_owned(),
            task_lease: SignedDuration::from_secs(30),
            keep_failed: false,
            lost_before: None,
            use_inbox: true,
        };
        Self {
            now: NOON,
            rules,
            rows: BTreeMap::new(),
            inbox: BTreeMap::new(),
            tasks: BTreeMap::new(),
            retries: BTreeMap::new(),
            keys: BTreeMap::new(),
            dead_letters: BTreeMap::new(),
            command_count: 0,
        }
    }

    pub fn command(&mut self, command: TillCommand) -> Input<Till> {
        self.command_count += 1;
        Input::command(Uuid::from_u128(0xC0 + self.command_count), Uuid::from_u128(0x5A6A), command, None)
    }

    /// Decides one batch on exactly what it reads, and applies the writes.
    #[track_caller]
    pub fn decide(&mut self, inputs: &[Input<Till>]) -> (Writes, Vec<Outcome<Till>>) {
        let mut reads = reads(&Till, inputs);
        let mut loaded = self.load(&reads);
        let (writes, outcomes) = loop {
            let (writes, outcomes) = decide(&Till, inputs, loaded, &self.rules, self.now);
            if writes.to_read.is_empty() {
                break (writes, outcomes);
            }
            assert!(outcomes.is_empty() && writes.is_empty(), "nothing is written yet");
            reads.rows.extend(writes.to_read.iter().cloned());
            loaded = Loaded { also_read: writes.to_read, ..self.load(&reads) };
        };
        self.apply(&writes);
        (writes, outcomes)
    }

    /// Decides one input and names its outcome.
    #[track_caller]
    pub fn decide_one(&mut self, input: Input<Till>) -> (Writes, &'static str) {
        let (writes, outcomes) = self.decide(&[input]);
        (writes, outcomes[0].name())
    }

    fn load(&self, reads: &Reads) -> Loaded {
        let row = |key: &RowKey| {
            let (version, projected) = self.rows.get(key)?;
            Some((key.clone(), StoredRow { version: *version, state: projected.state.clone() }))
        };
        Loaded {
            rows: reads.rows.iter().filter_map(row).collect(),
            inbox: found(&reads.inbox, &self.inbox),
            tasks: found(&reads.tasks, &self.tasks).into_iter().map(|(id, task)| (id, task.claim)).collect(),
            keys: found(&reads.keys, &self.keys),
            dead_letters: found(&reads.dead_letters, &self.dead_letters),
            ..Loaded::default()
        }
    }

    fn apply(&mut self, writes: &Writes) {
        for place in &writes.retries_done {
            self.retries.remove(&(place.0.to_owned(), place.1));
            self.inbox.remove(place);
        }
        for retry in writes.retries.iter().chain(&writes.retries_again) {
            let step = STEPS.iter().find(|step| step.name == retry.step).expect("a step of the till");
            self.inbox.insert((step.name, retry.message_id), InboxState::Retrying);
            self.retries.insert((retry.step.clone(), retry.message_id), retry.clone());
        }
        self.inbox.extend(writes.inbox.iter().map(|place| (*place, InboxState::Processed)));
        writes.tasks_done.iter().for_each(|id| drop(self.tasks.remove(id)));
        self.tasks.extend(writes.tasks.iter().chain(&writes.tasks_again).map(|task| (task.id, task.clone())));
        self.keys.extend(writes.keys.iter().cloned());
        for dead in &writes.new_dead_letters {
            let stored = StoredDeadLetter {
                dead_letter: dead.clone(),
                status: DeadLetterStatus::Pending,
                revision: 0,
                inbox_id: dead.message_id,
            };
            self.dead_letters.insert(dead.id, stored);
        }
        self.dead_letters
            .extend(writes.changed_dead_letters.iter().map(|it| (it.dead_letter.id, it.clone())));
        for row in &writes.rows {
            let version = self.rows.get(&row.key).map_or(0, |(version, _)| *version);
            assert_eq!(row.read_version, version, "{:?} is guarded", row.key);
            self.rows.insert(row.key.clone(), (row.version, row.projected.clone()));
        }
    }

    pub fn tin(&self, name: &str) -> Tin {
        let row = self.rows.get(&RowKey::of::<Tin>(name));
        row.map_or_else(Tin::default, |(_, row)| serde_json::from_str(&row.state).expect("a tin"))
    }
}

fn found<K: Ord + Clone, V: Clone>(keys: &BTreeSet<K>, kept: &BTreeMap<K, V>) -> BTreeMap<K, V> {
    keys.iter().filter_map(|key| Some((key.clone(), kept.get(key)?.clone()))).collect()
}
