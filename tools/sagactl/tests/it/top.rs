//! Shell: the live screen, on a terminal of the test's own: what a person sees, keys, and the terminal afterwards.

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

use crate::operator::{PATIENT, STEP};
use crate::system::{System, programs, wait_until};

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).expect("some")
}

const CTRL_C: &[u8] = b"\x03";
const ESCAPE: &[u8] = b"\x1b";

/// A terminal on which a program runs, and somebody before it.
struct Terminal {
    /// The program's side, which stays open so that what the program leaves behind can be looked at.
    line: OwnedFd,
    keyboard: File,
    screen: Arc<Mutex<vt100::Parser>>,
    before: Termios,
    child: Child,
}

impl Terminal {
    /// Runs `sagactl top` with these arguments on a terminal of this many columns and rows.
    fn running(arguments: &[&str], [columns, rows]: [u16; 2]) -> Self {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).expect("a terminal");
        let before = tcgetattr(&pty.slave).expect("its settings");
        let side = || Stdio::from(pty.slave.try_clone().expect("one more"));
        // In a session of its own: the terminal of whoever runs the tests is not meant.
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

    /// Waits for its end, and sees that it left the terminal as it was.
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

/// Nobody listens there.
const NOBODY: [&str; 2] = ["--admin", "http://127.0.0.1:1"];

#[tokio::test]
async fn whatever_ends_the_screen_the_terminal_is_what_it_was() {
    let keys: [&[u8]; 4] = [b"q", b"Q", ESCAPE, CTRL_C];
    for key in keys {
        let mut terminal = Terminal::running(&NOBODY, [80, 24]);
        terminal.wait_until_shown("NOBODY KNOWS").await;
        assert!(terminal.screen.lock().screen().alternate_screen());
        // What means nothing ends nothing.
        terminal.press(b"x\x1b[A\r");
        terminal.press(key);
        assert_eq!(terminal.ended().await.code(), Some(0), "{key:?}");
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let mut terminal = Terminal::running(&NOBODY, [80, 24]);
        terminal.wait_until_shown("NOBODY KNOWS").await;
        terminal.signal(signal);
        let ended = terminal.ended().await;
        assert_eq!((ended.code(), ended.signal()), (Some(0), None), "{signal}");
    }
}

#[tokio::test]
async fn a_look_that_takes_long_holds_up_no_key_and_no_size_is_too_small() {
    let deaf = TcpListener::bind("127.0.0.1:0").expect("a port");
    let admin = format!("http://{}", deaf.local_addr().expect("an address"));
    let mut terminal = Terminal::running(&["--admin", &admin], [40, 10]);
    terminal.wait_until_shown("looking for the first time").await;
    let pressed = Instant::now();
    terminal.press(b"q");
    assert_eq!(terminal.ended().await.code(), Some(0));
    assert!(pressed.elapsed() < Duration::from_secs(1), "{:?}", pressed.elapsed());

    let mut terminal = Terminal::running(&["--admin", &admin], [40, 10]);
    terminal.wait_until_shown("admin has not answered since").await;
    for (size, shown) in [([1, 1], "…"), ([200, 60], "q ends · "), ([3, 2], "NO…"), ([80, 24], "q ends · ")]
    {
        terminal.resize(size);
        terminal.wait_until_shown(shown).await;
    }
    terminal.press(b"q");
    assert_eq!(terminal.ended().await.code(), Some(0));
}

#[tokio::test]
async fn the_screen_follows_a_system_that_breaks_and_is_mended() {
    let system = System::start(&[PATIENT]);
    system.list("pen", 20).await;
    let data = system.path().to_str().expect("text");
    let mut terminal = Terminal::running(&["--data", data], [110, 30]);
    terminal.wait_until_shown("nobody is needed").await;
    terminal.wait_until_shown("all in the last").await;
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

    system.park(1).await;
    terminal.wait_until_shown("1 dead letter at payment-processing of payment").await;
    assert!(terminal.shows().starts_with("A HUMAN IS NEEDED: "), "{}", terminal.shows());

    // What it showed last stays while admin is away.
    system.sagactl(&["stop", "admin"]);
    terminal.wait_until_shown("admin has not answered since").await;
    terminal.wait_until_shown("  admin does not run").await;
    assert!(
        terminal.shows().contains(&format!("1 dead letter at {STEP} of payment")),
        "{}",
        terminal.shows()
    );
    system.sagactl(&["start", "admin"]);
    wait_until("admin is heard again", async || {
        let shown = terminal.shows();
        !shown.contains("has not answered") && !shown.contains("does not run")
    })
    .await;
    terminal.wait_until_shown("1 dead letter at payment-processing of payment").await;
    terminal.press(b"q");
    assert_eq!(terminal.ended().await.code(), Some(0));
}

/// For scripts: one object, the rates of a second, and the exit codes of `status`.
#[tokio::test]
async fn once_tells_how_fast_it_goes_and_ends_as_status_does() {
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
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&told["needs_human"], &told["problem"]), (&Value::Bool(false), &Value::Null));
    assert!(told["overview"]["services"].is_array(), "{told:#}");
    let processes = told["processes"].as_array().expect("processes");
    assert!(processes.len() == 6 && processes.iter().all(|it| it["cpu_percent"].is_number()), "{told:#}");
    let pace = &told["pace"];
    assert!(pace["over_ms"].as_u64().is_some_and(|ms| ms >= 900), "{pace:#}");
    assert!(
        pace["started_per_s"].is_number() && pace["ended"]["compensated"]["per_s"].is_number(),
        "{pace:#}"
    );

    system.sagactl(&["stop", "admin"]);
    let output = system.try_sagactl(&["top", "--once", "--json"]);
    assert_eq!(output.status.code(), Some(5));
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&told["overview"], &told["pace"]), (&Value::Null, &Value::Null));
    assert!(told["problem"].is_string(), "{told:#}");
    let elsewhere = system.command(&["top", "--once", "--admin", &system.url("admin", "")]).output();
    let elsewhere = elsewhere.expect("it runs");
    let said = String::from_utf8_lossy(&elsewhere.stderr);
    assert_eq!((elsewhere.status.code(), said.lines().count()), (Some(1), 1), "{said}");
}
