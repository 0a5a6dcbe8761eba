//! Shell: commands that sagactl prints, exit codes, help and completion.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::system::{System, programs, text, wait_until, workspace};

/// Runs sagactl without a system.
fn alone(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut sagactl = Command::new(programs().join("sagactl"));
    sagactl.args(arguments).current_dir(workspace()).env_remove("SAGA_DATA").env_remove("SAGA_ADMIN");
    sagactl.envs(variables.iter().copied()).output().expect("sagactl runs")
}

#[tokio::test]
async fn commands_printed_by_up_work_and_ports_are_kept() {
    let system = System::not_started();
    let up = system.try_sagactl(&system.up(&["--detach"], &[]));
    let printed = text(&up.stdout);
    let run = |label: &str| {
        let command = printed.lines().find_map(|line| line.strip_prefix(label)).expect(label);
        let output = Command::new("sh").args(["-c", command]).current_dir("/").output().expect("a shell");
        assert!(output.status.success(), "{command}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let order: Value = serde_json::from_str(&run("place an order with: ")).expect("JSON");
    assert_eq!(order["status"], "CONFIRMED", "{order}");
    let id = order["id"].as_str().expect("an id");
    wait_until("the saga is listed", async || run("look at it with: ").contains(id)).await;
    run("stop it with: ");
    assert_eq!(system.try_sagactl(&["status"]).status.code(), Some(5), "nothing runs");

    let again = system.try_sagactl(&["up", "--detach"]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert!(text(&again.stdout).contains(&system.url("admin", "")), "{}", text(&again.stdout));
    assert!(text(&again.stderr).contains("--port-base standard"), "{}", text(&again.stderr));
}

#[tokio::test]
async fn killed_system_is_not_reported_as_stopped() {
    let system = System::not_started();
    let mut command = system.command(&system.up(&[], &[]));
    let mut up = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("sagactl runs");
    let mut lines = BufReader::new(up.stdout.take().expect("a pipe")).lines();
    let ready = lines.by_ref().map(|line| line.expect("a line")).any(|line| line.contains("Ctrl-C"));
    assert!(ready, "it came up");
    let status = system.sagactl(&["status", "--json"]);
    let status: Value = serde_json::from_str(&status).expect("JSON");
    for process in status["processes"].as_array().expect("processes") {
        let pid = process["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a pid");
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it runs");
    }
    let rest: Vec<_> = lines.map(|line| line.expect("a line")).collect();
    let ended = up.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(1), "{rest:#?}");
    assert!(!rest.iter().any(|line| line.contains("everything was stopped")), "{rest:#?}");
    assert!(text(&ended.stderr).contains("nothing runs any more: nats"), "{}", text(&ended.stderr));
}

#[tokio::test]
async fn broker_starts_without_its_folder_and_late_service_names_its_failed_check() {
    let system = System::start(&[]);
    system.sagactl(&["stop", "payment"]);
    system.sagactl(&["stop", "nats"]);
    let late = system.try_sagactl(&["start", "payment", "--within", "3s"]);
    assert_eq!(late.status.code(), Some(1));
    assert!(
        text(&late.stderr).contains("not ready after 3s (broker: not connected"),
        "{}",
        text(&late.stderr)
    );

    // A broker that does not answer delays the reconciliation no longer than --wait.
    let began = Instant::now();
    let reconciled = system.try_sagactl(&["reconcile", "--wait", "1s"]);
    assert!(
        !reconciled.status.success() && began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );

    fs::remove_dir_all(system.path().join("nats")).expect("it is there");
    system.sagactl(&["start", "nats"]);
    system.sagactl(&["start", "payment"]);
    wait_until("all are ready", async || system.try_sagactl(&["status"]).status.success()).await;
}

#[test]
fn empty_variables_count_as_not_set() {
    let empty = ["SAGA_DATA", "SAGA_ADMIN", "SAGA_OPERATOR", "NO_COLOR"].map(|name| (name, ""));
    let without = alone(&["dlq", "count", "--data", "/nowhere"], &[]);
    let with = alone(&["dlq", "count", "--data", "/nowhere"], &empty);
    assert_eq!(text(&with.stderr), text(&without.stderr));
    let coloured = alone(&["status", "--data", "/nowhere", "--color", "always"], &empty);
    assert_eq!(coloured.status.code(), Some(1));
}

#[test]
fn invalid_command_is_rejected_with_a_suggestion() {
    for (arguments, because) in [
        (&["breaker", "list"][..], "breakers"),
        (&["dlq", "lst"], "list"),
        (&["breakers", "opne", "payment/bank"], "open"),
        (&["saga", "list", "--stuck-at", "nope"], "payment-processing"),
        (&["up", "--admin", "http://localhost:1"], "--data"),
        (&["status", "--admin", "http://localhost:1"], "nothing answers"),
        (&["load", "--rate", "1", "--admin", "http://localhost:1"], "--data"),
        (&["up", "--port-base", "0"], "standard"),
        (&["start", "nats", "--accept-loss", "x", "--data", "/nowhere"], "no system"),
    ] {
        let output = alone(arguments, &[]);
        let errors = text(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments:?}: {errors}");
        assert!(errors.lines().count() <= 2 && errors.contains(because), "{arguments:?}: {errors}");
    }
    // From the environment it is no contradiction: a shell may have it for the other commands.
    let status = alone(&["status", "--data", "/nowhere"], &[("SAGA_ADMIN", "http://localhost:1")]);
    assert!(text(&status.stderr).contains("no system in /nowhere"), "{}", text(&status.stderr));
    assert!(text(&status.stderr).contains("or an admin with --admin"), "{}", text(&status.stderr));
}

#[test]
fn blank_reason_is_rejected_by_every_command() {
    let id = "01890000-0000-7000-8000-000000000001";
    for line in [
        format!("dlq replay {id}"),
        format!("dlq edit {id} --new-data {{}}"),
        format!("dlq discard {id}"),
        format!("dlq restore {id}"),
        format!("dlq resolve {id}"),
        "dlq redrive --step payment-processing".to_owned(),
        format!("redrive pause {id}"),
        format!("redrive cancel {id}"),
        format!("saga extend {id} --for 1m"),
        format!("saga resolve {id}"),
        format!("payment withdraw-resolution {id}"),
        "breakers open payment/bank".to_owned(),
        "breakers reset payment/bank".to_owned(),
        "faults inject bank bank_error".to_owned(),
        "faults clear".to_owned(),
        "outbox retry order".to_owned(),
        "outbox republish --since 1h".to_owned(),
        "notifications test".to_owned(),
        "reconcile --accept payment-processing".to_owned(),
    ] {
        for blank in ["", "  "] {
            let words: Vec<_> = line.split(' ').chain(["--reason", blank]).collect();
            let output = alone(&words, &[("SAGA_ADMIN", "http://localhost:1")]);
            let errors = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{line}: {errors}");
            assert!(errors.contains("--reason"), "{line}: {errors}");
        }
    }
}

#[test]
fn help_of_a_withdrawal_is_not_that_of_a_resolution() {
    for command in ["payment", "saga", "dlq"] {
        let help = text(&alone(&[command, "withdraw-resolution", "--help"], &[]).stdout);
        assert!(help.contains("Withdraw") && help.contains("--reason"), "{help}");
        assert!(!help.contains("means by which"), "{help}");
    }
}

#[test]
fn closed_pipe_is_no_failure() {
    let program = programs().join("sagactl");
    for words in ["faults kinds --json", "faults kinds", "completions bash", "--help"] {
        let line = format!("{} {words} | true; exit ${{PIPESTATUS[0]}}", program.display());
        for _ in 0..5 {
            let output = Command::new("bash").args(["-c", &line]).output().expect("a shell");
            assert!(output.status.success() && output.stderr.is_empty(), "{words}: {}", text(&output.stderr));
        }
    }
    let folder = tempfile::TempDir::new().expect("a folder");
    let store = format!("store.url=sqlite:{}", folder.path().join("order.db").display());
    let verify = programs().join("order");
    let line = format!("sleep 0; {} verify --set {store} 2>&1 >/dev/full | cat", verify.display());
    let output = Command::new("bash").args(["-c", &line]).output().expect("a shell");
    assert!(!text(&output.stdout).contains("panicked"), "{}", text(&output.stdout));
}

#[test]
fn colours_completion_and_help_are_available() {
    let kinds = alone(&["faults", "kinds", "--color", "always", "--wide"], &[]);
    assert!(kinds.status.success());
    let script = text(&alone(&["completions", "bash"], &[]).stdout);
    assert!(script.contains("sagactl") && script.contains("redrive"), "{script}");
    let help = text(&alone(&["--help"], &[]).stdout);
    for printed in ["Output:", "System and operator:", "Reasons:", "items", "Exit codes:"] {
        assert!(help.contains(printed), "{printed} is not in:\n{help}");
    }
}

#[tokio::test]
async fn loss_is_accepted_for_a_single_start() {
    let system = System::start(&[]);
    system.list("pen", 5).await;
    system.order(&[("pen", 1)], "tok_ok").await;
    system.sagactl(&["stop", "payment"]);
    for file in fs::read_dir(system.path().join("payment")).expect("its folder") {
        let path = file.expect("a file").path();
        if path.extension().is_none_or(|extension| extension == "db")
            || path.to_string_lossy().contains(".db-")
        {
            fs::remove_file(path).expect("removed");
        }
    }
    let mut rejected = system.try_sagactl(&["start", "payment"]);
    assert_eq!(rejected.status.code(), Some(1));
    // The mark beside the database misses something, and then so does the broker: each loss has its name.
    for _ in 0..2 {
        let errors = text(&rejected.stderr);
        let Some(loss) =
            errors.rsplit("store.accept_loss=").next().filter(|_| errors.contains("accept_loss="))
        else {
            break;
        };
        let loss: String = loss.chars().take_while(char::is_ascii_alphanumeric).collect();
        rejected = system.try_sagactl(&["start", "payment", "--accept-loss", &loss]);
    }
    assert!(rejected.status.success(), "{}", text(&rejected.stderr));
    system.sagactl(&["status"]);
}
