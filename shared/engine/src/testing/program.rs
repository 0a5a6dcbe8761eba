//! Shell: a program of the system as a child process, used over plain HTTP. For services that need no broker.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Time-out of anything that normally takes milliseconds. Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Running program with a folder of its own. Killed when dropped.
pub struct Running {
    address: String,
    process: Child,
    _folder: Arc<Folder>,
}

/// HTTP response of a program under test.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status code, such as 404.
    pub status: u16,
    /// Status line and headers as received.
    pub head: String,
    /// Body as JSON; null if it is none.
    pub body: Value,
    /// Body as received, without parsing.
    pub text: String,
}

impl Running {
    /// Starts `program` with this configuration on a free port, and waits until it listens.
    pub fn start(program: &str, config: &str) -> Self {
        Self::start_in(&Arc::new(Folder::new()), program, config)
    }

    /// Starts `program` in a folder that several programs use in turn.
    pub fn start_in(folder: &Arc<Folder>, program: &str, config: &str) -> Self {
        let mut process = command(program, folder, config).spawn().expect("the program starts");
        let started = Instant::now();
        let address = loop {
            let log = folder.log();
            if let Some((_, rest)) = log.split_once("bind=") {
                let address = rest.split_whitespace().next().unwrap_or_default();
                if rest.contains('\n') {
                    break address.to_owned();
                }
            }
            if let Ok(Some(status)) = process.try_wait() {
                panic!("{program} ended with {status}:\n{log}");
            }
            assert!(started.elapsed() < PATIENCE, "{program} has not started:\n{log}");
            pause();
        };
        Self { address, process, _folder: folder.clone() }
    }

    /// Sends a `GET` request. Panics without a response in time.
    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], "")
    }

    /// Sends a `POST` request with JSON. Panics without a response in time.
    pub fn post(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        self.request("POST", path, headers, &body.to_string())
    }

    /// Sends a `DELETE` request. Panics without a response in time.
    pub fn delete(&self, path: &str) -> Answer {
        self.request("DELETE", path, &[], "")
    }

    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.send(method, path, headers, body, PATIENCE).expect("an answer in time")
    }

    /// Sends a request. `None` without a response within `patience`.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
        patience: Duration,
    ) -> Option<Answer> {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(patience)).expect("a time limit");
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let text = String::from_utf8(answer).expect("UTF-8");
        let (head, text) = text.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split_whitespace().nth(1).and_then(|status| status.parse().ok());
        let body = serde_json::from_str(text).unwrap_or(Value::Null);
        let (head, text) = (head.to_owned(), text.to_owned());
        Some(Answer { status: status.expect("a status"), head, body, text })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.process.kill().expect("it is ours");
        self.process.wait().expect("it was killed");
    }
}

/// Output of `program` when it rejects this configuration.
#[track_caller]
pub fn refusal(program: &str, config: &str) -> String {
    let (code, log) = end_in(&Folder::new(), program, config, &[]);
    assert_eq!(code, Some(1), "{log}");
    log
}

/// Runs `program` with these arguments to its end. Returns its exit code and its standard error.
#[track_caller]
pub fn end_in(folder: &Folder, program: &str, config: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut process = command(program, folder, config).args(arguments).spawn().expect("the program starts");
    let started = Instant::now();
    loop {
        if let Some(status) = process.try_wait().expect("it is ours") {
            return (status.code(), folder.log());
        }
        if started.elapsed() > PATIENCE {
            process.kill().expect("it is ours");
            process.wait().expect("it was killed");
            panic!("it did not end:\n{}", folder.log());
        }
        pause();
    }
}

fn command(program: &str, folder: &Folder, config: &str) -> Command {
    let path = Path::new(&folder.0);
    std::fs::write(path.join("settings.toml"), config).expect("the configuration");
    let log = File::create(path.join("log")).expect("the log");
    let mut command = Command::new(program);
    command
        .arg("--config")
        .arg(path.join("settings.toml"))
        .args(["--set", "http.bind=127.0.0.1:0", "--set"])
        .arg(format!("store.url=sqlite:{}", folder.database().display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    command
}

#[expect(clippy::disallowed_methods, reason = "there is no runtime here to hold up")]
fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

/// Temporary folder, removed when dropped.
pub struct Folder(String);

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Folder {
    /// Creates an empty folder with a unique name.
    #[must_use]
    pub fn new() -> Self {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("saga-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path.display().to_string())
    }

    /// Path of the database of the program that runs here.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        Path::new(&self.0).join("data.db")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(Path::new(&self.0).join("log")).unwrap_or_default()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
