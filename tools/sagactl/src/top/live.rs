//! Shell: the live screen: a sample per second, keys at any time, and a terminal that is restored however it ends.

use std::process::ExitCode;

use anyhow::Context as _;
use crossterm::event::{Event, EventStream, KeyCode, KeyModifiers};
use futures::StreamExt as _;
use jiff::Timestamp;
use ratatui::DefaultTerminal;
use tokio::time::{MissedTickBehavior, interval};

use super::draw::draw;
use super::sampler::{PERIOD, Sampler};
use super::screen::sections;
use super::state::{Sample, State};
use crate::overview::Source;
use cli::has_colors;
use cli::view::View;
use devstack::ShutdownSignal;

/// Shows the screen until a key or a signal ends it.
pub async fn run(source: Source) -> anyhow::Result<ExitCode> {
    let mut signal = ShutdownSignal::listen()?;
    let mut screen = Screen::open().context("the terminal cannot be used: sagactl top --once needs none")?;
    let mut keys = EventStream::new();
    // The clock on the screen continues during a slow sample.
    let mut clock = interval(PERIOD);
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let sampler = Sampler::new(source);
    let mut state = State::default();
    let mut sample = Box::pin(next_sample(&sampler, false));
    loop {
        tokio::select! {
            () = signal.recv() => break,
            key = keys.next() => match key.transpose().context("keys cannot be read")? {
                Some(event) if ends(&event) => break,
                // The screen may have another size now.
                Some(_) => {}
                // The terminal is gone.
                None => break,
            },
            taken = &mut sample => {
                state.add(taken?);
                sample = Box::pin(next_sample(&sampler, true));
            }
            _ = clock.tick() => {}
        }
        screen.show(&state, &sampler.source.command)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Takes a sample: the first at once, later ones at their time.
async fn next_sample(sampler: &Sampler, is_later: bool) -> anyhow::Result<Sample> {
    if is_later {
        sampler.next_tick().await;
    }
    sampler.sample().await
}

/// True for a key that ends the screen. Ctrl-C is a key in raw mode.
fn ends(event: &Event) -> bool {
    let Some(key) = event.as_key_press_event() else { return false };
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    let is_quit = matches!(key.code, KeyCode::Esc | KeyCode::Char('q' | 'Q'));
    is_quit || (is_control && key.code == KeyCode::Char('c'))
}

/// The terminal. Restored on drop; a panic restores it before it prints its message.
struct Screen(Option<DefaultTerminal>);

impl Screen {
    fn open() -> std::io::Result<Self> {
        // Drop undoes an initialisation that fails half-way.
        let mut screen = Self(None);
        screen.0 = Some(ratatui::try_init()?);
        Ok(screen)
    }

    fn show(&mut self, state: &State, command: &str) -> anyhow::Result<()> {
        let Some(terminal) = &mut self.0 else { return Ok(()) };
        let drawn = terminal.draw(|frame| {
            let view = View { width: Some(frame.area().width.into()), now: Some(Timestamp::now()) };
            draw(frame, &sections(state, command, &view), command, has_colors());
        });
        drawn.map(|_| ()).context("the terminal cannot be written")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Shows the cursor again.
        self.0.take();
        // A panic has restored it already: a second time would move the cursor above its message.
        if !std::thread::panicking() {
            // The terminal may be gone.
            let _ = ratatui::try_restore();
        }
    }
}
