//! Shell: idle and half-open connections delay no requests and leave no memory behind.

use std::time::Duration;

use futures::future::join_all;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::system::{System, wait_until};

/// Number of each kind. `scripts/connection-flood.sh` opens ten and twenty times as many.
const CONNECTIONS: usize = 1_000;
/// Tolerated growth of memory.
const LEFT_MIB: u64 = 20;

#[tokio::test]
async fn idle_connections_delay_no_requests_and_leave_no_memory() {
    // Fewer than come, so that who asks for nothing gives way.
    let bounds =
        ["order.http.max_connections=1500", "order.http.header_timeout=3s", "order.http.idle_timeout=3s"];
    let system = System::start(&bounds);
    system.list("pen", 1_000).await;
    for _ in 0..20 {
        system.order(&[("pen", 1)], "tok_ok").await;
    }
    let before = resident(&system);
    let address = system.url("order", "").replace("http://", "");
    let half = "POST /api/orders HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nx-half: ";
    let _half_open = join_all((0..CONNECTIONS).map(|_| opened(&address, half))).await;
    let _idle = join_all((0..CONNECTIONS).map(|_| opened(&address, ""))).await;
    for _ in 0..20 {
        let order = system.order(&[("pen", 1)], "tok_ok").await;
        assert_eq!(order["status"], "CONFIRMED");
        let alive =
            system.http.get(system.url("order", "/livez")).timeout(Duration::from_secs(1)).send().await;
        assert!(alive.is_ok_and(|answer| answer.status() == 200), "alive");
    }
    eprintln!("{before} MiB before, {} MiB while they are held", resident(&system));
    wait_until("the memory is back", async || resident(&system) <= before + LEFT_MIB).await;
}

async fn opened(address: &str, bytes: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(bytes.as_bytes()).await.expect("sent");
    stream
}

/// Memory of the order service in MiB, rounded down.
fn resident(system: &System) -> u64 {
    let status = system.sagactl_json(&["status"]);
    let order = status["processes"].as_array().and_then(|all| all.iter().find(|one| one["name"] == "order"));
    let mib = order.map(|order| order["rss_mib"].to_string()).unwrap_or_default();
    let whole = mib.split('.').next().and_then(|whole| whole.parse().ok());
    whole.unwrap_or_else(|| panic!("no memory in {status:#}"))
}
