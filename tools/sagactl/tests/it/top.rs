//! Shell: `sagactl top` on a pseudo-terminal: screen, keys, and the terminal afterwards.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;
use parking_lot::Mutex;
use serde_json::Value;

use crate::operator::{LONG_DEADLINE, STEP};
use crate::system::{System, programs, wait_until};

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).expect("some")
}

const CTRL_C: &[u8] = b"\x03";
const ESCAPE: &[u8] = b"\x1b";

/// Pseudo-terminal with a running program.
struct Terminal {
    /// Side of the program, kept open to inspect the terminal afterwards.
    line: OwnedFd,
    keyboard: File,
    screen: Arc<Mutex<vt100::Parser>>,
    before: Termios,
    child: Child,
}

impl Terminal {
    /// Runs `sagactl top` on a terminal of this size.
    fn running(arguments: &[&str], [columns, rows]: [u16; 2]) -> Self {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).expect("a terminal");
        let before = tcgetattr(&pty.slave).expect("its settings");
        let side = || Stdio::from(pty.slave.try_clone().expect("one more"));
        // In a session of its own: the terminal of the test runner is not affected.
        let mut setsid = Command::new("setsid");
        setsid.args(["--ctty", env!("CARGO_BIN_EXE_sagactl"), "top"]).args(arguments);
        setsid.env("TERM", "xterm-256color").env_remove("NO_COLOR");
        let child = setsid.stdin(side()).stdout(side()).stderr(side()).spawn().expect("setsid runs");
        let screen = Arc::new(Mutex::new(vt100::Parser::new(cells(rows), cells(columns), 0)));
        let mut shown = File::from(pty.master.try_clone().expect("one more"));
        let reader = Arc::clone(&screen);
        // It ends with the terminal.
        thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(count @ 1..) = shown.read(&mut bytes) {
                reader.lock().process(&bytes[..count]);
            }
        });
        Self { line: pty.slave, keyboard: pty.master.into(), screen, before, child }
    }

    fn shows(&self) -> String {
        self.screen.lock().screen().contents()
    }

    async fn wait_until_shown(&self, what: &str) {
        let until = Instant::now() + Duration::from_secs(30);
        while !self.shows().contains(what) {
            assert!(Instant::now() < until, "{what:?} is not shown:\n{}", self.shows());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn press(&mut self, key: &[u8]) {
        self.keyboard.write_all(key).expect("the terminal takes keys");
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().expect("a pid")), signal).expect("it runs");
    }

    fn resize(&self, [columns, rows]: [u16; 2]) {
        self.screen.lock().screen_mut().set_size(cells(rows), cells(columns));
        let mut stty = Command::new("stty");
        stty.args(["rows", &rows.to_string(), "cols", &columns.to_string()]);
        let done = stty.stdin(self.line.try_clone().expect("one more")).status().expect("stty runs");
        assert!(done.success());
    }

    /// Waits for the end of the program, and asserts that the terminal is restored.
    async fn ended(&mut self) -> ExitStatus {
        let mut ended = None;
        wait_until("it has ended", async || {
            ended = self.child.try_wait().expect("a child");
            ended.is_some()
        })
        .await;
        let shows_all = || {
            let parser = self.screen.lock();
            !parser.screen().alternate_screen() && !parser.screen().hide_cursor()
        };
        wait_until("the screen is what it was", async || shows_all()).await;
        assert!(
            tcgetattr(&self.line).expect("its settings") == self.before,
            "the terminal is not what it was"
        );
        ended.expect("it has ended")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Address at which nothing listens.
const UNREACHABLE_ADMIN: [&str; 2] = ["--admin", "http://127.0.0.1:1"];

#[tokio::test]
async fn terminal_is_restored_however_top_ends() {
    let keys: [&[u8]; 4] = [b"q", b"Q", ESCAPE, CTRL_C];
    for key in keys {
        let mut terminal = Terminal::running(&UNREACHABLE_ADMIN, [80, 24]);
        terminal.wait_until_shown("STATE UNKNOWN").await;
        assert!(terminal.screen.lock().screen().alternate_screen());
        // What means nothing ends nothing.
        terminal.press(b"x\x1b[A\r");
        terminal.press(key);
        assert_eq!(terminal.ended().await.code(), Some(0), "{key:?}");
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let mut terminal = Terminal::running(&UNREACHABLE_ADMIN, [80, 24]);
        terminal.wait_until_shown("STATE UNKNOWN").await;
        terminal.signal(signal);
        let ended = terminal.ended().await;
        assert_eq!((ended.code(), ended.signal()), (Some(0), None), "{signal}");
    }
}

#[tokio::test]
async fn slow_sample_delays_no_key_and_any_size_is_drawn() {
    let deaf = TcpListener::bind("127.0.0.1:0").expect("a port");
    let admin = format!("http://{}", deaf.local_addr().expect("an address"));
    let mut terminal = Terminal::running(&["--admin", &admin], [40, 10]);
    terminal.wait_until_shown("waiting for the first answer").await;
    let pressed = Instant::now();
    terminal.press(b"q");
    assert_eq!(terminal.ended().await.code(), Some(0));
    assert!(pressed.elapsed() < Duration::from_secs(1), "{:?}", pressed.elapsed());

    let mut terminal = Terminal::running(&["--admin", &admin], [40, 10]);
    terminal.wait_until_shown("no answer from admin since").await;
    for (size, shown) in [([1, 1], "…"), ([200, 60], "q quits · "), ([3, 2], "ST…"), ([80, 24], "q quits · ")]
    {
        terminal.resize(size);
        terminal.wait_until_shown(shown).await;
    }
    terminal.press(b"q");
    assert_eq!(terminal.ended().await.code(), Some(0));
}

#[tokio::test]
async fn screen_shows_failure_and_recovery() {
    let system = System::start(&[LONG_DEADLINE]);
    system.list("pen", 20).await;
    let data = system.path().to_str().expect("text");
    let mut terminal = Terminal::running(&["--data", data], [110, 30]);
    terminal.wait_until_shown("no human is needed").await;
    terminal.wait_until_shown("over the last").await;
    let status = system.sagactl_json(&["status"]);
    for process in status["processes"].as_array().expect("processes") {
        let (name, pid) = (process["name"].as_str().expect("a name"), process["pid"].to_string());
        // What is read of the terminal may be half a frame.
        wait_until(&format!("{name} is shown"), async || {
            let shown = terminal.shows();
            let line = shown.lines().find(|line| line.starts_with(&format!("{name} ")));
            line.is_some_and(|line| line.contains(&pid) && line.contains("yes"))
        })
        .await;
    }

    system.dead_letter_orders(1).await;
    terminal.wait_until_shown("1 dead letter at payment-processing of payment").await;
    assert!(terminal.shows().starts_with("A HUMAN IS NEEDED: "), "{}", terminal.shows());

    // What it showed last stays while admin is away.
    system.sagactl(&["stop", "admin"]);
    terminal.wait_until_shown("no answer from admin since").await;
    terminal.wait_until_shown("  admin does not run").await;
    assert!(
        terminal.shows().contains(&format!("1 dead letter at {STEP} of payment")),
        "{}",
        terminal.shows()
    );
    system.sagactl(&["start", "admin"]);
    wait_until("admin answers again", async || {
        let shown = terminal.shows();
        !shown.contains("no answer from admin") && !shown.contains("does not run")
    })
    .await;
    terminal.wait_until_shown("1 dead letter at payment-processing of payment").await;
    terminal.press(b"q");
    assert_eq!(terminal.ended().await.code(), Some(0));
}

#[tokio::test]
async fn once_reports_saga_rates_and_exits_like_status() {
    programs();
    let system = System::start(&[]);
    system.list("pen", 20).await;
    let top = system.command(&["top", "--once", "--json"]).stdout(Stdio::piped()).spawn().expect("it runs");
    // While it looks.
    for _ in 0..5 {
        system.order(&[("pen", 1)], "tok_ok").await;
    }
    let output = top.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let reported: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&reported["needs_human"], &reported["problem"]), (&Value::Bool(false), &Value::Null));
    assert!(reported["overview"]["services"].is_array(), "{reported:#}");
    let processes = reported["processes"].as_array().expect("processes");
    assert!(processes.len() == 6 && processes.iter().all(|it| it["cpu_percent"].is_number()), "{reported:#}");
    let rates = &reported["saga_rates"];
    assert!(rates["period_ms"].as_u64().is_some_and(|ms| ms >= 900), "{rates:#}");
    assert!(
        rates["started_per_s"].is_number() && rates["ended"]["compensated"]["per_s"].is_number(),
        "{rates:#}"
    );

    system.sagactl(&["stop", "admin"]);
    let output = system.try_sagactl(&["top", "--once", "--json"]);
    assert_eq!(output.status.code(), Some(5));
    let reported: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&reported["overview"], &reported["saga_rates"]), (&Value::Null, &Value::Null));
    assert!(reported["problem"].is_string(), "{reported:#}");
    let remote = system.command(&["top", "--once", "--admin", &system.url("admin", "")]).output();
    let remote = remote.expect("it runs");
    let printed = String::from_utf8_lossy(&remote.stderr);
    assert_eq!((remote.status.code(), printed.lines().count()), (Some(1), 1), "{printed}");
}
