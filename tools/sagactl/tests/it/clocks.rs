//! Shell: machines whose clocks are an hour off. Deadlines go by the broker's time, so orders end as any others.

use std::process::Command;

use crate::system::{System, wait_until};

/// Ahead, a deadline that others set has passed before it began; behind, one that it sets has.
#[tokio::test]
async fn a_shop_with_one_clock_an_hour_off_confirms_its_orders() {
    let system = System::start(&[]);
    system.list("pen", 1_000).await;
    for service in ["order", "inventory", "payment"] {
        for (off, said) in [("-1h", "behind"), ("+1h", "ahead of")] {
            system.sagactl(&["stop", service]);
            start_off(&system, service, off);
            let order = system.order(&[("pen", 1)], "tok_ok").await;
            assert_eq!(order["status"], "CONFIRMED", "{service} {off}: {order}");
            let said = format!("this machine's clock is 3600.0s {said} the broker's");
            let log = system.path().join("log").join(format!("{service}.log"));
            wait_until("it is said", async || {
                std::fs::read_to_string(&log).is_ok_and(|log| log.contains(&said))
            })
            .await;
        }
        system.sagactl(&["stop", service]);
        system.sagactl(&["start", service]);
    }
    system.assert_reconciled().await;
}

/// Starts a service that takes the time to be so far off; durations it measures as ever.
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

/// What a program is to load first. `faketime` itself waits for all that it starts, services too.
fn faketime() -> String {
    let told = Command::new("faketime").args(["-m", "-f", "+0", "printenv", "LD_PRELOAD"]).output();
    let told = told.expect("faketime runs (scripts/setup.sh --tests gets it)").stdout;
    String::from_utf8(told).expect("a path").trim().to_owned()
}
