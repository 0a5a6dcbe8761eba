//! Shell: the screen: a look a second, keys at any time, and the terminal as it was in the end, however that comes.

use std::process::ExitCode;

use anyhow::Context as _;
use crossterm::event::{Event, EventStream, KeyCode, KeyModifiers};
use futures::StreamExt as _;
use jiff::Timestamp;
use ratatui::DefaultTerminal;
use tokio::time::{MissedTickBehavior, interval};

use super::canvas::draw;
use super::eyes::{EVERY, Eyes};
use super::screen::parts;
use super::state::{Look, State};
use crate::overview::Asked;
use cli::{View, has_colors};
use devstack::ShutdownSignal;

/// Shows it until somebody ends it.
pub async fn run(asked: Asked) -> anyhow::Result<ExitCode> {
    let mut signal = ShutdownSignal::listen()?;
    let mut screen = Screen::open().context("the terminal cannot be used (sagactl top --once needs none)")?;
    let mut keys = EventStream::new();
    // However long a look takes, the clock goes on.
    let mut clock = interval(EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let eyes = Eyes::open(asked);
    let mut state = State::default();
    let mut look = Box::pin(look_at(&eyes, false));
    loop {
        tokio::select! {
            () = signal.recv() => break,
            key = keys.next() => match key.transpose().context("keys cannot be read")? {
                Some(event) if ends(&event) => break,
                // What it is about does not matter: the screen may have another size by now.
                Some(_) => {}
                // The terminal is gone.
                None => break,
            },
            seen = &mut look => {
                state.take(seen?);
                look = Box::pin(look_at(&eyes, true));
            }
            _ = clock.tick() => {}
        }
        screen.show(&state, &eyes.asked.call)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One look, the first at once and each other when it is due.
async fn look_at(eyes: &Eyes, is_later: bool) -> anyhow::Result<Look> {
    if is_later {
        eyes.wait().await;
    }
    eyes.look().await
}

/// Whether somebody wants to leave. Ctrl-C is a key here.
fn ends(event: &Event) -> bool {
    let Some(key) = event.as_key_press_event() else { return false };
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    let is_quit = matches!(key.code, KeyCode::Esc | KeyCode::Char('q' | 'Q'));
    is_quit || (is_control && key.code == KeyCode::Char('c'))
}

/// The terminal, which is what it was before once this is dropped; a panic restores it before it says why.
struct Screen(Option<DefaultTerminal>);

impl Screen {
    fn open() -> std::io::Result<Self> {
        // Whatever fails half-way is undone.
        let mut screen = Self(None);
        screen.0 = Some(ratatui::try_init()?);
        Ok(screen)
    }

    fn show(&mut self, state: &State, call: &str) -> anyhow::Result<()> {
        let Some(terminal) = &mut self.0 else { return Ok(()) };
        let drawn = terminal.draw(|frame| {
            let view = View { width: Some(frame.area().width.into()), now: Some(Timestamp::now()) };
            draw(frame, &parts(state, call, &view), call, has_colors());
        });
        drawn.map(|_| ()).context("the terminal cannot be written")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // It shows the cursor again.
        self.0.take();
        // A panic has restored it before it said why: twice would put the cursor back above that.
        if !std::thread::panicking() {
            // A terminal that is gone needs nothing.
            let _ = ratatui::try_restore();
        }
    }
}
