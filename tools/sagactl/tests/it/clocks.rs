//! Shell: hosts with wrong clocks. Deadlines follow the broker's time, so orders end normally.

use std::process::Command;

use crate::system::{System, wait_until};

/// A fast clock would see deadlines pass too early, a slow one would set them in the past.
#[tokio::test]
async fn orders_are_confirmed_with_one_clock_an_hour_off() {
    let system = System::start(&[]);
    system.list("pen", 1_000).await;
    for service in ["order", "inventory", "payment"] {
        for (off, printed) in [("-1h", "behind"), ("+1h", "ahead of")] {
            system.sagactl(&["stop", service]);
            start_off(&system, service, off);
            let order = system.order(&[("pen", 1)], "tok_ok").await;
            assert_eq!(order["status"], "CONFIRMED", "{service} {off}: {order}");
            let printed = format!("this machine's clock is 3600.0s {printed} the broker's");
            let log = system.path().join("log").join(format!("{service}.log"));
            wait_until("the wrong clock is reported", async || {
                std::fs::read_to_string(&log).is_ok_and(|log| log.contains(&printed))
            })
            .await;
        }
        system.sagactl(&["stop", service]);
        system.sagactl(&["start", service]);
    }
    system.assert_reconciled().await;
}

/// Starts a service with a wrong wall clock. Durations are measured correctly.
fn start_off(system: &System, service: &str, off: &str) {
    let mut start = system.command(&["start", service]);
    start.envs([
        ("LD_PRELOAD", faketime().as_str()),
        ("FAKETIME", off),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ]);
    let output = start.output().expect("sagactl runs");
    assert!(output.status.success(), "{service} {off}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Library to preload. The program `faketime` would wait for started services.
fn faketime() -> String {
    let reported = Command::new("faketime").args(["-m", "-f", "+0", "printenv", "LD_PRELOAD"]).output();
    let reported = reported.expect("faketime runs (scripts/setup.sh --tests gets it)").stdout;
    String::from_utf8(reported).expect("a path").trim().to_owned()
}
