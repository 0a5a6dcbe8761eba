//! Shell: requests inside the system use no proxy of the environment.

use std::process::Command;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;

use crate::system::{System, order_for, text, wait_until};

/// Variables by which programs are told to use a proxy.
const VARIABLES: [&str; 6] =
    ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// Server that records the first line of each request, and answers all with one status.
async fn record(listener: TcpListener, status: &'static str, lines: Arc<Mutex<Vec<String>>>) {
    while let Ok((connection, _)) = listener.accept().await {
        let (mut line, mut connection) = (String::new(), BufReader::new(connection));
        let _ = connection.read_line(&mut line).await;
        lines.lock().push(line.trim_end().to_owned());
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        let _ = connection.write_all(answer.as_bytes()).await;
    }
}

/// Starts a recording server. Returns its address and the recorded lines.
async fn recorder(status: &'static str) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let lines = Arc::new(Mutex::new(Vec::new()));
    tokio::spawn(record(listener, status, lines.clone()));
    (address, lines)
}

/// Docker and many companies set these variables for every process. Everything that asks anything is walked: payment, admin,
/// the webhook, the exporter of spans, and the commands of sagactl.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxy_of_the_environment_gets_no_request() {
    let (proxy, proxied) = recorder("502 Bad Gateway").await;
    let (collector, traces) = recorder("200 OK").await;
    let (receiver, notices) = recorder("204 No Content").await;
    let system = System::not_started();
    let with_proxy = |mut command: Command| {
        command.envs(VARIABLES.map(|variable| (variable, proxy.clone())));
        let output = command.env_remove("NO_PROXY").env_remove("no_proxy").output().expect("sagactl runs");
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    };
    let settings = [
        format!("payment.trace.endpoint={collector}"),
        "payment.trace.sample_ratio=1".to_owned(),
        format!("admin.service.notifications.webhook.url={receiver}/notices"),
        "admin.service.notifications.webhook.secret=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned(),
    ];
    let settings = settings.each_ref().map(String::as_str);
    with_proxy(system.command(&system.up(&["--detach"], &settings)));
    system.list("pen", 10).await;
    let order = system.order(&[("pen", 1)], "tok_ok").await;
    assert_eq!(order["status"], "CONFIRMED", "payment reaches the bank: {order}");
    for arguments in [
        &["status"][..],
        &["reconcile"],
        &["faults", "list"],
        &["notifications", "test"],
        // A closed loop has no backlog, however busy the machine is.
        &["load", "--clients", "1", "--duration", "1s"],
        &["load", "--rest", "3"],
    ] {
        with_proxy(system.command(arguments));
    }
    wait_until("spans are exported and the receiver is notified", async || {
        !traces.lock().is_empty() && !notices.lock().is_empty()
    })
    .await;
    assert_eq!(*proxied.lock(), [""; 0], "no request goes to the proxy");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configured_proxy_gets_the_requests_to_the_bank_and_no_others() {
    let (proxy, proxied) = recorder("502 Bad Gateway").await;
    let system = System::start(&[&format!("payment.http.proxy={proxy}")]);
    system.list("pen", 10).await;
    let placed = system.post("order", "/api/orders").json(&order_for(&[("pen", 1)], "tok_ok"));
    assert_eq!(placed.send().await.expect("an answer").status(), 202);
    wait_until("the bank is called by the proxy", async || !proxied.lock().is_empty()).await;
    let bank = format!(" {}/v1/", system.url("bank", ""));
    assert!(proxied.lock().iter().all(|line| line.contains(&bank)), "{:?}", proxied.lock());
}
