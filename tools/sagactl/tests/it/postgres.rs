//! Shell: the whole system on PostgreSQL, and several replicas of a service on one database.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tokio_postgres::NoTls;

use crate::system::{System, free_ports, order_for, programs, wait_until, workspace};

/// A server with a database for each service; stopped when dropped.
struct Databases {
    url: String,
    server: Child,
}

const SERVICES: [&str; 5] = ["order", "inventory", "payment", "admin", "bank"];

impl Databases {
    async fn start() -> Self {
        let script = workspace().join("scripts/private-postgres.sh");
        let server =
            Command::new(&script).arg("--durable").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut server = server.unwrap_or_else(|error| panic!("{}: {error}", script.display()));
        let mut url = String::new();
        let said = server.stdout.take().expect("its output");
        BufReader::new(said).read_line(&mut url).expect("its URL");
        assert!(url.starts_with("postgres://"), "scripts/private-postgres.sh started none: see above");
        let databases = Self { url: url.trim().to_owned(), server };
        let (client, connection) =
            tokio_postgres::connect(&databases.url_of("postgres"), NoTls).await.expect("a connection");
        tokio::spawn(connection);
        for service in SERVICES {
            client.batch_execute(&format!("CREATE DATABASE \"{service}\"")).await.expect("a database");
        }
        databases
    }

    fn url_of(&self, database: &str) -> String {
        format!("{}/{database}", self.url)
    }

    /// Where each service finds its own.
    fn settings(&self) -> Vec<String> {
        SERVICES.iter().map(|service| format!("{service}.store.url={}", self.url_of(service))).collect()
    }

    fn system(&self, more: &[&str]) -> System {
        let settings = self.settings();
        let settings: Vec<&str> = settings.iter().map(String::as_str).chain(more.iter().copied()).collect();
        System::start(&settings)
    }
}

impl Drop for Databases {
    fn drop(&mut self) {
        // It stops when its input ends.
        drop(self.server.stdin.take());
        let _ = self.server.wait();
    }
}

/// Another process of a service, on the same database; killed when dropped.
struct Replica {
    port: u16,
    process: Child,
}

impl Replica {
    fn start(system: &System, databases: &Databases, service: &str, port: u16) -> Self {
        let mut process = Command::new(programs().join(service));
        let credentials = system.path().join("credentials").join(service).with_extension("nk");
        let log = system.path().join(format!("log/{service}-2.log"));
        for setting in [
            format!("instance={service}-2"),
            format!("http.bind=127.0.0.1:{port}"),
            format!("store.url={}", databases.url_of(service)),
            format!("bus.url={}", system.broker_url()),
            format!("bus.credentials={}", credentials.display()),
            format!("log.file={}", log.display()),
            "bus.ack_wait=2s".to_owned(),
        ] {
            process.args(["--set", &setting]);
        }
        if service == "payment" {
            process.args(["--set", &format!("service.bank={}", system.url("bank", ""))]);
        }
        if service == "inventory" {
            process.args(["--set", "service.replenish.enabled=false"]);
        }
        let process = process.stdin(Stdio::null()).spawn().expect("a service starts");
        Self { port, process }
    }

    async fn is_ready(&self, system: &System) -> bool {
        let url = format!("http://127.0.0.1:{}/readyz", self.port);
        system.http.get(url).send().await.is_ok_and(|answer| answer.status().is_success())
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Places an order at the service that listens there, until it is taken.
async fn place(system: &System, port: u16, key: &str) -> String {
    let mut placed = None;
    wait_until("the order is taken", async || {
        let url = format!("http://127.0.0.1:{port}/api/orders");
        let request = system.http.post(url).header("Idempotency-Key", key);
        let Ok(answer) = request.json(&order_for(&[("pen", 1), ("ink", 1)], "tok_ok")).send().await else {
            return false;
        };
        let body: Option<Value> = answer.json().await.ok();
        placed = body.and_then(|body| Some(body["id"].as_str()?.to_owned()));
        placed.is_some()
    })
    .await;
    placed.expect("taken")
}

/// Laws 1 to 4 on the other store: happy, refused, killed and started again.
#[tokio::test]
async fn the_system_keeps_its_promises_on_postgresql() {
    let databases = Databases::start().await;
    let system = databases.system(&["order.service.deadline=10s"]);
    system.list("pen", 1_000).await;
    system.list("ink", 3).await;
    let confirmed = system.order(&[("pen", 2), ("ink", 1)], "tok_ok").await;
    assert_eq!(confirmed["status"], "CONFIRMED", "{confirmed:#}");
    let declined = system.order(&[("pen", 1)], "tok_declined").await;
    assert_eq!(
        (&declined["status"], &declined["cancelled_because"]),
        (&"CANCELLED".into(), &"payment_failed".into())
    );
    let refused = system.order(&[("pen", 1), ("ink", 9)], "tok_ok").await;
    assert_eq!(refused["status"], "CANCELLED", "{refused:#}");
    for service in ["payment", "order", "admin", "inventory", "bank"] {
        system.sagactl(&["kill", service]);
        system.sagactl(&["start", service]);
        let after = system.order(&[("pen", 1)], "tok_ok").await;
        assert_eq!(after["status"], "CONFIRMED", "behind a crash of {service}: {after:#}");
    }
    assert_eq!(system.stock("ink").await, (2, 0, 1));
    system.assert_reconciled().await;
}

/// Two of each share one database: nothing is done twice, and either goes on alone.
#[tokio::test]
async fn of_two_replicas_one_goes_on_when_the_other_is_killed() {
    let databases = Databases::start().await;
    let system = databases.system(&["order.service.deadline=20s"]);
    system.list("pen", 10_000).await;
    system.list("ink", 10_000).await;
    let first_of_order: u16 =
        system.url("order", "").rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let base = free_ports();
    let replicas: Vec<Replica> = ["order", "inventory", "payment"]
        .into_iter()
        .zip(base..)
        .map(|(service, port)| Replica::start(&system, &databases, service, port))
        .collect();
    for replica in &replicas {
        wait_until("the second replica is ready", async || replica.is_ready(&system).await).await;
    }
    let mut placed = Vec::new();
    for number in 0..40 {
        let port = if number % 2 == 0 { first_of_order } else { replicas[0].port };
        placed.push(place(&system, port, &format!("both-{number}")).await);
    }
    for service in ["order", "inventory", "payment"] {
        system.sagactl(&["kill", service]);
    }
    for number in 0..20 {
        placed.push(place(&system, replicas[0].port, &format!("alone-{number}")).await);
    }
    for id in &placed {
        wait_until("every order ends", async || {
            let url = format!("http://127.0.0.1:{}/api/orders/{id}", replicas[0].port);
            let Ok(answer) = system.http.get(url).send().await else { return false };
            answer.json::<Value>().await.is_ok_and(|order| order["status"] != "PENDING")
        })
        .await;
    }
    for service in ["order", "inventory", "payment"] {
        system.sagactl(&["start", service]);
    }
    let report = system.assert_reconciled().await;
    assert_eq!(report["summary"]["orders"], placed.len() + 2, "{report:#}");
}

/// Not two of one name, and nobody who counts on being alone.
#[tokio::test]
async fn a_name_used_twice_and_a_repair_of_what_runs_are_refused_in_one_line() {
    let databases = Databases::start().await;
    let system = databases.system(&[]);
    let refused = |arguments: &[&str], why: &str| {
        let mut order = Command::new(programs().join("order"));
        order.args(["--set", &format!("store.url={}", databases.url_of("order"))]);
        order.args(["--set", "http.bind=127.0.0.1:0"]);
        let output = order.args(arguments).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{arguments:?}: {said}");
    };
    refused(&[], "another process runs as instance order: give each replica a name of its own (instance)");
    refused(&["verify"], "another process uses it: stop the service first, all of its replicas");
    refused(&["rebuild", "order"], "another process uses it");
    system.sagactl(&["stop", "order"]);
    let verified = Command::new(programs().join("order"))
        .args(["--set", &format!("store.url={}", databases.url_of("order")), "verify"])
        .output()
        .expect("it runs");
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    system.sagactl(&["start", "order"]);
}
