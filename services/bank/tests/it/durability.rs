//! Shell: law 1 seen from outside: what was answered is on the disk.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use saga_engine::testing::program::Running;
use serde_json::json;

const BANK: &str = env!("CARGO_BIN_EXE_bank");

/// At `synchronous=NORMAL` SQLite syncs at checkpoints only, so a power cut loses what was answered since the
/// last one.
#[test]
#[cfg(target_os = "linux")]
fn answer_comes_after_sync_of_write_ahead_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let (script, calls) = (folder.path().join("traced-bank"), folder.path().join("calls"));
    let text = format!(
        "#!/bin/sh\nexec strace --daemonize --follow-forks --decode-fds=path --trace=fsync,fdatasync --output='{}' '{BANK}' \"$@\"\n",
        calls.display()
    );
    std::fs::write(&script, text).expect("a script");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("it can run");
    let bank = Running::start(script.to_str().expect("UTF-8"), "");
    for number in 1..=5_u128 {
        let before = syncs(&calls);
        let key = uuid::Uuid::from_u128(number).to_string();
        let charge = json!({"amount": {"amount_minor": 100, "currency": "EUR"}, "token": "tok_ok", "reference": "order 1"});
        let answer = bank.post("/v1/charges", &[("Idempotency-Key", &key)], &charge);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(syncs(&calls) > before, "charge {number} was answered without a sync");
    }
}

/// Counts the syncs of the write-ahead log so far.
fn syncs(calls: &Path) -> usize {
    let calls = std::fs::read_to_string(calls).expect("strace runs (scripts/setup.sh --tests gets it)");
    calls.lines().filter(|call| call.contains("-wal>") && call.contains("sync(")).count()
}
