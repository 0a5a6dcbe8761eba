//! A real nats-server for each test, with its own folder and port. Killed when dropped.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{self, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use saga_engine::nats::MINIMUM_VERSION;
use saga_engine::nats::{BusSettings, NatsBus};
use saga_engine::store::OutboxEntry;
use tempfile::TempDir;
use uuid::Uuid;

use super::facts::PRODUCERS;
use super::{in_time, wait_until};

/// Running broker, or a killed one that can be restarted.
pub struct Nats {
    port: u16,
    /// Claim to the port.
    _claim: File,
    folder: TempDir,
    process: Option<Child>,
    /// Subjects on which publishing is denied: requests there get no answer.
    denied: Vec<&'static str>,
    /// Additional configuration.
    more: String,
}

impl Nats {
    pub async fn start() -> Self {
        let mut nats = Self::not_yet_started();
        nats.restart().await;
        nats
    }

    /// Starts a broker with additional configuration.
    pub async fn start_with(more: String) -> Self {
        let mut nats = Self::not_yet_started();
        nats.more = more;
        nats.restart().await;
        nats
    }

    /// Reserves the address of a broker that is not running.
    pub fn not_yet_started() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (port, claim) = free_port();
        Self { port, _claim: claim, folder, process: None, denied: vec![], more: String::new() }
    }

    /// Starts the broker on its port with its old data.
    pub async fn restart(&mut self) {
        let (port, folder) = (self.port, self.folder.path());
        let config = self.write_config();
        let log = File::create(folder.join("nats.log")).expect("the broker's log");
        let process = Command::new(program())
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("nats-server starts");
        let process = self.process.insert(process);
        let is_ready = async || {
            if let Ok(Some(status)) = process.try_wait() {
                let log = std::fs::read_to_string(folder.join("nats.log")).unwrap_or_default();
                panic!("nats-server ended with {status}:\n{log}");
            }
            greets(port)
        };
        wait_until("nats-server is ready", is_ready).await;
    }

    fn write_config(&self) -> PathBuf {
        let (port, folder) = (self.port, self.folder.path());
        let config = folder.join("nats.conf");
        let mut text = format!(
            "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: {:?}, sync_interval: always }}\n",
            folder.join("jetstream")
        );
        text += &self.more;
        if !self.denied.is_empty() {
            let permissions = format!("{{ publish: {{ deny: {:?} }} }}", self.denied);
            text += &format!(
                "no_auth_user: anyone\nauthorization {{ users: [ {{ user: anyone, password: any, permissions: {permissions} }} ] }}\n"
            );
        }
        std::fs::write(&config, text).expect("the broker's configuration");
        config
    }

    /// Reloads the running broker with additional configuration (`nats-server --signal reload`).
    pub async fn reload_with(&mut self, more: String) {
        let log = self.folder.path().join("nats.log");
        let reloads = || {
            let log = std::fs::read_to_string(&log).expect("the broker's log");
            log.matches("Reloaded server configuration").count()
        };
        let before = reloads();
        self.more = more;
        self.write_config();
        signal::kill(self.pid(), Signal::SIGHUP).expect("it is ours");
        wait_until("the configuration is reloaded", async || reloads() > before).await;
    }

    fn pid(&self) -> Pid {
        let process = self.process.as_ref().expect("it runs");
        Pid::from_raw(i32::try_from(process.id()).expect("a pid"))
    }

    /// Restarts the broker, with publishing on `subject` denied.
    pub async fn restart_denying(&mut self, subject: &'static str) {
        self.kill();
        self.denied.push(subject);
        self.restart().await;
    }

    /// Kills the broker (`kill -9`).
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it is ours");
            process.wait().expect("it was killed");
        }
    }

    /// Stops the process (`SIGSTOP`): connections stay, and nothing answers.
    pub fn freeze(&self) {
        let pid = self.pid();
        signal::kill(pid, Signal::SIGSTOP).expect("it is ours");
        let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).expect("it is ours");
        assert!(matches!(stopped, WaitStatus::Stopped(..)), "{stopped:?}");
    }

    /// Settings of clients, with short time-outs.
    pub fn settings(&self) -> BusSettings {
        BusSettings {
            url: format!("nats://127.0.0.1:{}", self.port),
            ack_wait: Duration::from_secs(1),
            publish_timeout: Duration::from_secs(1),
            // Each message is counted here; what travels together has tests of its own.
            max_pack: 1,
            ..BusSettings::default()
        }
    }

    /// Starts a broker with all streams, and connects to it.
    pub async fn with_bus() -> (Self, NatsBus) {
        let nats = Self::start().await;
        let bus = nats.bus().await;
        (nats, bus)
    }

    /// Connects, and creates all streams.
    pub async fn bus(&self) -> NatsBus {
        self.bus_with(self.settings()).await
    }

    /// Connects with these settings, and creates all streams.
    pub async fn bus_with(&self, settings: BusSettings) -> NatsBus {
        let bus = NatsBus::connect(settings, "test").await.expect("an address");
        in_time("the broker is reached", bus.wait_until_connected()).await.expect("a new broker");
        bus.ensure_streams(&PRODUCERS).await.expect("streams");
        bus
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Message in a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub id: Uuid,
    pub subject: String,
    pub payload: bytes::Bytes,
}

/// All messages of a stream in order.
pub async fn stored(bus: &NatsBus, stream: &str) -> Vec<Stored> {
    let mut stream = bus.jetstream().get_stream(stream).await.expect("the stream");
    let state = stream.info().await.expect("its state").state.clone();
    let mut messages = Vec::new();
    // An empty stream that never held anything begins at 0, where nothing ever is.
    for sequence in state.first_sequence.max(1)..=state.last_sequence {
        let message = stream.direct_get(sequence).await.expect("a message");
        let header = |name: &str| message.headers.get(name).map(|value| value.to_string());
        messages.push(Stored {
            id: header("Nats-Msg-Id").and_then(|id| id.parse().ok()).unwrap_or_default(),
            subject: message.subject.to_string(),
            payload: message.payload,
        });
    }
    messages
}

/// Outbox entries with these numbers.
pub fn entries(numbers: impl IntoIterator<Item = u32>) -> Vec<OutboxEntry> {
    numbers.into_iter().map(|number| entry(number, format!("payload {number}").into_bytes())).collect()
}

pub fn entry(number: u32, payload: Vec<u8>) -> OutboxEntry {
    let id = Uuid::from_u128(u128::from(number));
    OutboxEntry {
        trace: None,
        is_repetition: false,
        seq: number.into(),
        id,
        saga: id,
        subject: "depot.stored".to_owned(),
        payload: payload.into(),
    }
}

/// Path of nats-server.
fn program() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace");
    let named = std::env::var_os("NATS_SERVER_BIN").map(PathBuf::from);
    let installed = workspace.join("target/tools/nats-server");
    let program = named.unwrap_or(if installed.exists() { installed } else { PathBuf::from("nats-server") });
    let version = Command::new(&program).arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    match version {
        Ok(text) if is_new_enough(&text) => program,
        Ok(text) => {
            panic!("{} is {text:?}, too old for the tests: run scripts/setup.sh", program.display())
        }
        Err(error) => panic!("{}: {error}: run scripts/setup.sh, which gets nats-server", program.display()),
    }
}

/// True for the output of `nats-server --version` of a supported version.
pub fn is_new_enough(text: &str) -> bool {
    let version = || {
        let mut parts = text.strip_prefix("nats-server: v")?.split(['.', '-']);
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    version().is_some_and(|version| version >= MINIMUM_VERSION)
}

/// A port that nobody has, and the claim to it: as long as that is open no other test is given the port, before the broker
/// has taken it or while it is away. Below those that the kernel gives to connections: one of them may take a port
/// meanwhile; and below those of the end-to-end tests' systems, from 20,000 on.
pub fn free_port() -> (u16, File) {
    let claims = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ports");
    std::fs::create_dir_all(&claims).expect("a folder beside the programs");
    loop {
        let port = fastrand::u16(10_000..20_000);
        let claim = File::create(claims.join(port.to_string())).expect("a file");
        if claim.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return (port, claim);
        }
    }
}

#[test]
fn no_two_brokers_are_given_the_same_port() {
    let brokers: Vec<_> = (0..200).map(|_| Nats::not_yet_started()).collect();
    let ports: BTreeSet<_> = brokers.iter().map(|broker| broker.port).collect();
    assert_eq!(ports.len(), brokers.len());
}

/// True if a NATS server listens on this port.
fn greets(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut greeting = [0; 5];
    match stream
        .set_read_timeout(Some(Duration::from_secs(1)))
        .and_then(|()| stream.read_exact(&mut greeting))
    {
        Ok(()) => &greeting == b"INFO ",
        Err(error) => {
            assert_ne!(error.kind(), ErrorKind::PermissionDenied, "{error}");
            false
        }
    }
}
