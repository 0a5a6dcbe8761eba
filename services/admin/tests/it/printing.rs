//! Shell: notifications on standard output, without a receiver.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use crate::harness::others;

#[test]
fn without_receiver_each_notification_is_one_line_of_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let database = format!("store.url=sqlite:{}", folder.path().join("admin.db").display());
    // Nobody listens there.
    let nobody: Vec<_> = others().map(|name| format!("service.{name}=http://127.0.0.1:9")).collect();
    let mut admin = Command::new(env!("CARGO_BIN_EXE_admin"));
    for setting in [
        &database,
        "http.bind=127.0.0.1:0",
        "bus.url=nats://127.0.0.1:9",
        "service.notifications.check_every=50ms",
    ]
    .into_iter()
    .chain(["service.notifications.grace_period=100ms"])
    .chain(nobody.iter().map(String::as_str))
    {
        admin.args(["--set", setting]);
    }
    let mut running =
        admin.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut line = String::new();
    BufReader::new(running.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let (at, words) = line.trim_end().split_once(' ').expect("a time and words");
    assert!(at.parse::<jiff::Timestamp>().is_ok(), "{line}");
    assert!(
        words.starts_with("order-saga: a human is needed: ") && words.contains("order does not answer"),
        "{line}"
    );
    // The log is written by a thread of its own.
    let mut log = BufReader::new(running.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(log.any(|line| line.contains(words)), "the log has it too");
    running.kill().expect("it is ours");
    running.wait().expect("it was killed");
}
