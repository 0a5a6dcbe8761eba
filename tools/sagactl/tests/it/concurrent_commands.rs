//! Shell: commands that start and stop processes while `up` waits until everything is ready.

use std::process::{Child, Stdio};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::system::{System, text, wait_until};

/// Keeps payment from becoming ready: nothing listens there.
const NEVER_READY: &str = "payment.bus.url=nats://127.0.0.1:1";

/// Starts `up`, and waits until only payment is not ready.
async fn waiting_up(system: &System, options: &[&str]) -> Child {
    let mut up = system.command(&system.up(options, &[NEVER_READY]));
    let up = up.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("sagactl runs");
    wait_until("all but payment are ready", async || {
        let mut ready = true;
        for service in ["order", "inventory", "admin", "bank"] {
            let answer = system.http.get(system.url(service, "/readyz")).send().await;
            ready &= answer.is_ok_and(|answer| answer.status() == 200);
        }
        ready && system.http.get(system.url("payment", "/livez")).send().await.is_ok()
    })
    .await;
    up
}

/// Waits until a command has ended. Returns its exit code, standard output and standard error.
async fn ended(mut command: Child) -> (Option<i32>, String, String) {
    wait_until("the command has ended", async || command.try_wait().expect("it is ours").is_some()).await;
    let output = command.wait_with_output().expect("it has ended");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn running(system: &System) -> Vec<String> {
    let status: Value =
        serde_json::from_slice(&system.try_sagactl(&["status", "--json"]).stdout).expect("JSON");
    let processes = status["processes"].as_array().expect("processes");
    let running = processes.iter().filter(|process| !process["pid"].is_null());
    running.map(|process| process["name"].as_str().expect("a name").to_owned()).collect()
}

#[tokio::test]
async fn process_is_stopped_while_up_waits_for_it() {
    let system = System::not_started();
    let up = waiting_up(&system, &["--detach"]).await;
    let began = Instant::now();
    system.sagactl(&["stop", "payment"]);
    assert!(began.elapsed().as_secs() < 10, "it did not wait for up: {:?}", began.elapsed());
    let (code, printed, errors) = ended(up).await;
    assert_eq!(code, Some(1), "not everything is ready: {printed}\n{errors}");
    assert!(printed.contains("stopped meanwhile: payment"), "{printed}\n{errors}");
    assert_eq!(running(&system), ["nats", "bank", "order", "inventory", "admin"]);
}

#[tokio::test]
async fn killed_and_restarted_process_does_not_end_up() {
    let system = System::not_started();
    let up = waiting_up(&system, &["--detach"]).await;
    system.sagactl(&["kill", "order"]);
    system.sagactl(&["start", "order"]);
    system.sagactl(&["kill", "payment"]);
    let (code, printed, errors) = ended(up).await;
    assert_eq!(code, Some(1), "{printed}\n{errors}");
    assert!(printed.contains("stopped meanwhile: payment"), "{printed}\n{errors}");
    assert_eq!(running(&system), ["nats", "bank", "order", "inventory", "admin"]);
}

#[tokio::test]
async fn down_ends_up() {
    let system = System::not_started();
    let up = waiting_up(&system, &[]).await;
    system.sagactl(&["down"]);
    let (code, printed, errors) = ended(up).await;
    assert_eq!(code, Some(1), "{printed}\n{errors}");
    assert!(errors.contains("everything was stopped by another command"), "{printed}\n{errors}");
    assert!(running(&system).is_empty());
    system.sagactl(&system.up(&["--detach"], &[]));
}

#[tokio::test]
async fn second_up_leaves_the_first_alone() {
    let system = System::not_started();
    let up = waiting_up(&system, &["--detach"]).await;
    let second = system.try_sagactl(&system.up(&["--detach"], &[]));
    assert_eq!(second.status.code(), Some(3), "{}", text(&second.stderr));
    assert!(text(&second.stdout).contains("another sagactl up"), "{}", text(&second.stdout));
    assert_eq!(running(&system).len(), 6);
    system.sagactl(&["stop", "payment"]);
    ended(up).await;
}

#[tokio::test]
async fn interrupted_up_stops_everything_and_killed_one_blocks_nobody() {
    let system = System::not_started();
    let up = waiting_up(&system, &[]).await;
    let pid = |up: &Child| Pid::from_raw(i32::try_from(up.id()).expect("a pid"));
    kill(pid(&up), Signal::SIGINT).expect("it is ours");
    let (code, printed, errors) = ended(up).await;
    assert_eq!(code, Some(130), "{printed}\n{errors}");
    assert!(running(&system).is_empty());
    let up = waiting_up(&system, &[]).await;
    kill(pid(&up), Signal::SIGKILL).expect("it is ours");
    ended(up).await;
    assert_eq!(running(&system).len(), 6, "what it had started runs on");
    let second = system.try_sagactl(&system.up(&["--detach"], &[]));
    assert_eq!(second.status.code(), Some(3), "{}", text(&second.stderr));
    assert!(text(&second.stdout).contains("already runs"), "{}", text(&second.stdout));
    system.sagactl(&["down"]);
    system.sagactl(&system.up(&["--detach"], &[]));
}
