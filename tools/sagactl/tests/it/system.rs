//! Shell: a local system for a test: free ports, a temporary folder, stopped when dropped.

use std::ffi::OsStr;
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;
use std::time::Duration;

use client::http::client_builder;
use parking_lot::{Condvar, Mutex};
use reqwest::{Client, RequestBuilder};
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;
use uuid::Uuid;

/// Number of ports of a system.
const PORTS: u16 = 6;

/// System that is stopped when dropped.
pub struct System {
    data: TempDir,
    base: u16,
    pub http: Client,
    _turn: Turn,
}

/// Permit to run a system. Few run at a time, or they starve each other. Runners with a process per test limit this
/// themselves.
struct Turn;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ONE_ENDED: Condvar = Condvar::new();
/// Systems at a time, as in `.config/nextest.toml`.
const AT_ONCE: usize = 2;

impl Turn {
    fn wait() -> Self {
        let mut running = RUNNING.lock();
        ONE_ENDED.wait_while(&mut running, |running| *running >= AT_ONCE);
        *running += 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock() -= 1;
        ONE_ENDED.notify_one();
    }
}

/// Folder of the programs. Builds them if they are missing or out of date.
pub fn programs() -> PathBuf {
    static BUILT: Once = Once::new();
    let programs = PathBuf::from(env!("CARGO_BIN_EXE_sagactl"));
    let programs = programs.parent().expect("a program lies in a folder");
    BUILT.call_once(|| build_once_in_a_run(programs));
    programs.to_owned()
}

/// Builds once in a test run. With nextest each test is a process, so the first one leaves a note with the id of the run for
/// later ones.
fn build_once_in_a_run(programs: &Path) {
    let run = std::env::var("NEXTEST_RUN_ID").ok();
    let note = programs.join("end-to-end.run");
    if run.is_some() && std::fs::read_to_string(&note).ok() == run {
        return;
    }
    build();
    if let Some(run) = run {
        std::fs::write(&note, run).expect("a note beside the programs");
    }
}

/// Builds the programs, which may be older than the tests.
pub fn build() {
    let built = Command::new(env!("CARGO")).args(["build", "--workspace", "--bins", "--quiet"]).status();
    assert!(built.expect("cargo runs").success(), "the programs do not build");
}

/// First of `PORTS` free ports. No other test uses them until this process ends, not even while a program is restarted.
pub fn free_ports() -> u16 {
    free_tens(1)
}

/// Claims adjacent blocks of ten ports.
fn free_tens(count: u16) -> u16 {
    static CLAIMED: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let claims = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ports");
    std::fs::create_dir_all(&claims).expect("a folder beside the programs");
    let claim = |base: u16| {
        let claim = File::create(claims.join(base.to_string())).expect("a file");
        let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        (claim.try_lock().is_ok() && (base..base + 10).all(is_free)).then_some(claim)
    };
    loop {
        // Below those that the kernel gives to connections: one of them may take a port between this and the start.
        let first = fastrand::u16(2_000..3_270 - count);
        let claims: Option<Vec<_>> = (first..first + count).map(|ten| claim(ten * 10)).collect();
        if let Some(claims) = claims {
            CLAIMED.lock().extend(claims);
            return first * 10;
        }
    }
}

#[test]
fn systems_get_distinct_ports() {
    let bases: std::collections::BTreeSet<_> = (0..100).map(|_| free_ports()).collect();
    assert_eq!(bases.len(), 100);
}

impl System {
    /// Starts a system with short time-outs and these settings.
    pub fn start(settings: &[&str]) -> Self {
        let system = Self::not_started();
        system.sagactl(&system.up(&["--detach"], settings));
        system
    }

    /// Creates a system without starting it.
    pub fn not_started() -> Self {
        Self::with_tens_of_ports(1)
    }

    /// Starts a system on its own database server, with a layout, short time-outs and these settings.
    pub fn start_large(layout: &[&str], settings: &[&str]) -> Self {
        let system = Self::with_tens_of_ports(6);
        // A database server started by root runs as another user.
        let open = std::fs::Permissions::from_mode(0o711);
        std::fs::set_permissions(system.path(), open).expect("it is ours");
        system.sagactl(&system.up(&[&["--detach", "--store", "postgres"], layout].concat(), settings));
        system
    }

    fn with_tens_of_ports(count: u16) -> Self {
        programs();
        let turn = Turn::wait();
        let data = TempDir::new().expect("a temporary folder");
        let base = free_tens(count);
        // No connection is kept: the processes behind them come and go.
        let http = client_builder().pool_max_idle_per_host(0).build().expect("a client");
        Self { data, base, http, _turn: turn }
    }

    /// Arguments of `sagactl up`, with short time-outs and these settings.
    pub fn up(&self, options: &[&str], settings: &[&str]) -> Vec<String> {
        let base = self.base.to_string();
        let mut arguments = [&["up", "--port-base", &base], options].concat();
        let short =
            ["order", "inventory", "payment", "admin"].map(|service| format!("{service}.bus.ack_wait=2s"));
        let quiet = ["inventory.service.replenish.enabled=false"];
        for setting in short.iter().map(String::as_str).chain(quiet).chain(settings.iter().copied()) {
            arguments.extend(["--set", setting]);
        }
        arguments.into_iter().map(str::to_owned).collect()
    }

    /// Runs sagactl on this system; it must succeed.
    #[track_caller]
    pub fn sagactl(&self, arguments: &[impl AsRef<OsStr> + std::fmt::Debug]) -> String {
        let output = self.try_sagactl(arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "sagactl {arguments:?}: {}\n{text}\n{errors}", output.status);
        text
    }

    /// Runs sagactl on this system.
    pub fn try_sagactl(&self, arguments: &[impl AsRef<OsStr>]) -> Output {
        self.command(arguments).output().expect("sagactl runs")
    }

    /// Creates a command of sagactl for this system.
    pub fn command(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut sagactl = Command::new(env!("CARGO_BIN_EXE_sagactl"));
        sagactl.args(arguments).arg("--data").arg(self.path()).current_dir(workspace());
        sagactl
    }

    pub fn path(&self) -> &Path {
        self.data.path()
    }

    /// Opens the database of a running service.
    pub fn database(&self, service: &str) -> Connection {
        Connection::open(self.path().join(service).join(format!("{service}.db"))).expect("a database")
    }

    /// Charges ten euros for an order at the bank, as payment does.
    pub async fn charge(&self, reference: &str) {
        let body = json!({
            "amount": {"amount_minor": 1_000, "currency": "EUR"}, "token": "tok_ok", "reference": reference,
        });
        let asked = self.post("bank", "/v1/charges").header("Idempotency-Key", Uuid::now_v7().to_string());
        assert_eq!(asked.json(&body).send().await.expect("an answer").status(), 200);
    }

    /// Pays for one piece. With its first charge payment asks which ledger the bank has, which takes a call of its own.
    pub async fn first_charge(&self, sku: &str) {
        assert_eq!(self.order(&[(sku, 1)], "tok_ok").await["status"], "CONFIRMED");
    }

    /// Returns the URL of a program.
    pub fn url(&self, program: &str, path: &str) -> String {
        let names = ["admin", "order", "inventory", "payment", "bank"];
        let offset = names.iter().position(|name| *name == program).expect("a program");
        format!("http://127.0.0.1:{}{path}", self.base + u16::try_from(offset).expect("few programs"))
    }

    pub fn broker_url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.base + PORTS - 1)
    }

    /// Creates a request, to be completed and sent.
    pub fn post(&self, program: &str, path: &str) -> RequestBuilder {
        self.http.post(self.url(program, path))
    }

    pub async fn get(&self, program: &str, path: &str) -> Value {
        let response = self.http.get(self.url(program, path)).send().await.expect("an answer");
        assert!(response.status().is_success(), "GET {path}: {}", response.status());
        response.json().await.expect("JSON")
    }

    /// Adds sagactl's own token, where tokens are on.
    pub fn as_sagactl(&self, request: RequestBuilder) -> RequestBuilder {
        match std::fs::read_to_string(self.path().join("credentials/sagactl.token")) {
            Ok(token) => request.bearer_auth(token.trim()),
            Err(_) => request,
        }
    }

    /// Lists a product and waits until orders can be placed for it.
    pub async fn list(&self, sku: &str, pieces: u32) {
        let body = json!({
            "sku": sku, "name": sku, "quantity": pieces, "replenish": false,
            "unit_price": {"amount_minor": 1_000, "currency": "EUR"},
        });
        let request = self.post("inventory", "/api/products").json(&body);
        let answer = self.as_sagactl(request).send().await.expect("an answer");
        assert_eq!(answer.status(), 201, "{sku} is listed");
        // Beyond any stock and over the bank's limit: rejected either way, and known or not by its status.
        wait_until("the catalogue knows the product", async || {
            let probe = order_for(&[(sku, 10_000)], "tok_declined");
            let answer = self.post("order", "/api/orders").json(&probe).send().await;
            answer.is_ok_and(|answer| answer.status() == 202)
        })
        .await;
    }

    /// Places an order and waits until it is confirmed or cancelled.
    pub async fn order(&self, lines: &[(&str, u32)], token: &str) -> Value {
        let request = self.post("order", "/api/orders").header("Prefer", "wait=20");
        let answer = request.json(&order_for(lines, token)).send().await.expect("an answer");
        assert_eq!(answer.status(), 201, "the order is settled");
        answer.json().await.expect("JSON")
    }

    pub async fn stock(&self, sku: &str) -> (u64, u64, u64) {
        let product = self.get("inventory", &format!("/api/products/{sku}")).await;
        let count = |name: &str| product[name].as_u64().expect("a count");
        (count("on_hand"), count("reserved"), count("sold"))
    }

    pub async fn payment_status(&self, order: &Value) -> Value {
        let id = order["id"].as_str().expect("an id");
        self.get("payment", &format!("/api/payments/{id}")).await["status"].clone()
    }

    /// Asserts that nothing is in flight and the ledgers balance.
    pub async fn assert_reconciled(&self) -> Value {
        let report = self.get("admin", "/api/admin/reconciliation?wait=30").await;
        assert_eq!(report["verdict"], "BALANCED", "{report:#}");
        report
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let stopped = self.try_sagactl(&["down"]);
        if std::thread::panicking() {
            for name in ["order", "inventory", "payment", "admin", "bank", "nats"] {
                let log = self.path().join(format!("log/{name}.log"));
                let log = std::fs::read_to_string(log).unwrap_or_default();
                let last: Vec<_> =
                    log.lines().filter(|line| line.contains("WARN") || line.contains("ERROR")).collect();
                eprintln!("-- {name}: {:#?}", &last[last.len().saturating_sub(10)..]);
            }
        } else {
            assert!(stopped.status.success(), "down: {}", String::from_utf8_lossy(&stopped.stderr));
        }
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn order_for(lines: &[(&str, u32)], token: &str) -> Value {
    let lines: Vec<_> =
        lines.iter().map(|(sku, quantity)| json!({"sku": sku, "quantity": quantity})).collect();
    json!({"customer": "ada", "lines": lines, "payment": {"token": token}})
}

/// Polls until a condition holds, for 30 seconds at most.
#[track_caller]
pub fn wait_until<F: AsyncFnMut() -> bool>(what: &str, holds: F) -> impl Future<Output = ()> {
    let (what, caller) = (what.to_owned(), std::panic::Location::caller());
    let mut holds = holds;
    async move {
        let until = Instant::now() + Duration::from_secs(30);
        while !holds().await {
            assert!(Instant::now() < until, "waited in vain until {what}, from {caller}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
