//! Shell: draws lines on a terminal.

use ratatui::Frame;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Drawn, Span};

use super::layout::{Line, Mark, Section, fitted};
use cli::style::{Tone, tones};

/// Draws the lines for which there is room.
pub fn draw(frame: &mut Frame<'_>, sections: &[Section], system: &str, has_colors: bool) {
    let area = frame.area();
    let lines = fitted(sections, system, area.height.into());
    let width = area.width;
    for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
        frame.buffer_mut().set_line(area.x, y, &drawn(line, width.into(), has_colors), width);
    }
}

fn drawn(line: &Line, width: usize, has_colors: bool) -> Drawn<'static> {
    let text = line.fit(width);
    let style = style(line.mark, has_colors);
    if line.mark != Mark::Plain || !has_colors {
        return Drawn::styled(text, style);
    }
    let span = |(piece, tone): (&str, Option<Tone>)| {
        let style = tone.map_or(style, |tone| style.fg(color(tone)));
        Span::styled(piece.to_owned(), style)
    };
    Drawn::from(tones(&text).into_iter().map(span).collect::<Vec<_>>())
}

const fn color(tone: Tone) -> Color {
    match tone {
        Tone::Good => Color::Green,
        Tone::Pending => Color::Yellow,
        Tone::Bad => Color::Red,
    }
}

/// Style of a line; without colours by weight alone.
const fn style(mark: Mark, has_colors: bool) -> Style {
    let (color, weight) = match mark {
        Mark::Plain => (None, Modifier::empty()),
        Mark::Good => (Some(Color::Green), Modifier::BOLD),
        Mark::Warning => (Some(Color::Yellow), Modifier::BOLD),
        Mark::Bad => (Some(Color::Red), Modifier::BOLD),
        Mark::Alarm => (Some(Color::Red), Modifier::BOLD.union(Modifier::REVERSED)),
        Mark::Strong => (None, Modifier::BOLD),
        Mark::Header => (None, Modifier::DIM),
        // Grey and dim together are illegible.
        Mark::Old if has_colors => (Some(Color::DarkGray), Modifier::empty()),
        Mark::Old => (None, Modifier::DIM),
    };
    let style = Style::new().add_modifier(weight);
    match color {
        Some(color) if has_colors => style.fg(color),
        Some(_) | None => style,
    }
}

#[cfg(test)]
mod tests {
    use admin_api::overview::Overview;
    use cli::view::View;
    use jiff::SignedDuration;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::overview::problem;
    use crate::top::fixtures::{overview, process, start};
    use crate::top::screen::sections;
    use crate::top::state::{Sample, State};

    const COMMAND: &str = "sagactl --data /data";

    fn drawn(state: &State, second: i64, [width, height]: [u16; 2], has_colors: bool) -> TestBackend {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        let now = Some(start() + SignedDuration::from_secs(second));
        let view = View { width: Some(width.into()), now };
        let draw_all =
            |frame: &mut Frame<'_>| draw(frame, &sections(state, COMMAND, &view), COMMAND, has_colors);
        terminal.draw(draw_all).expect("drawn");
        terminal.backend().clone()
    }

    /// Metrics after so many completed sagas, each within a second.
    fn metrics(count: u64) -> String {
        let bucket = "saga_duration_seconds_bucket{outcome=\"completed\",le=";
        format!(
            "saga_started_total {count}\n{bucket}\"0.1\"}} {}\n{bucket}\"1\"}} {count}\n{bucket}\"+Inf\"}} {count}\n",
            count / 2
        )
    }

    const NAMES: [&str; 6] = ["nats", "bank", "order", "inventory", "payment", "admin"];

    /// No problems, and fifty sagas end per second.
    fn healthy() -> State {
        let mut state = State::default();
        for second in 0..3 {
            let processes = NAMES.map(|name| process(name, Some(4_000), u64::from(second) * 31));
            let overview = Overview { at: start() + SignedDuration::from_secs(second.into()), ..overview() };
            let metrics = metrics(u64::from(second) * 50);
            state.add(
                Sample::at(second).with_overview(overview).with_metrics(&metrics).with_processes(processes),
            );
        }
        state
    }

    /// Every kind of finding.
    fn troubled() -> State {
        let mut state = State::default();
        let processes = NAMES.map(|name| process(name, (name != "nats").then_some(4_000), 0));
        state.add(Sample::at(0).with_overview(problem::tests::overview()).with_processes(processes));
        state
    }

    #[test]
    fn healthy_system_shows_rates_and_processes() {
        insta::assert_snapshot!("top_healthy_80x24", drawn(&healthy(), 2, [80, 24], true));
    }

    #[test]
    fn problems_are_shown_first() {
        insta::assert_snapshot!("top_troubled_100x40", drawn(&troubled(), 1, [100, 40], true));
        insta::assert_snapshot!("top_troubled_80x24", drawn(&troubled(), 1, [80, 24], true));
        insta::assert_snapshot!("top_troubled_40x10", drawn(&troubled(), 1, [40, 10], true));
    }

    #[test]
    fn last_overview_is_marked_as_old_while_admin_does_not_answer() {
        let mut state = healthy();
        let processes = NAMES.map(|name| process(name, (name != "admin").then_some(4_000), 100));
        let problem = "nothing answers at http://127.0.0.1:8080/api/admin/overview: is the system running?";
        state.add(Sample::at(3).with_problem(problem).with_processes(processes));
        let screen = drawn(&state, 8, [100, 24], true);
        insta::assert_snapshot!("top_no_admin_100x24", screen);
        let style_of = |wanted: &str| {
            let area = screen.buffer().area;
            let line = |y| (0..area.width).map(move |x| (x, y));
            let text = |y| line(y).map(|at| screen.buffer()[at].symbol()).collect::<String>();
            let y = (0..area.height).find(|y| text(*y).trim_start().starts_with(wanted)).expect("a line");
            let x = line(y).find(|at| screen.buffer()[*at].symbol() != " ").expect("a word");
            screen.buffer()[x].style()
        };
        let old = |wanted| style_of(wanted).fg == Some(Color::DarkGray);
        assert!(old("sagas:") && old("dead letters:") && old("ledgers:") && old("order"));
        assert!(!old("admin does not run") && !old("A HUMAN IS NEEDED") && !old("no answer from admin"));
        // Processes of a remote system are unknown.
        let mut remote = State::default();
        remote.add(Sample::at(0).with_overview(overview()));
        remote.add(Sample::at(1).with_problem("https://admin.example did not answer in time"));
        insta::assert_snapshot!("top_no_remote_admin_80x20", drawn(&remote, 8, [80, 20], true));
        let mut never = State::default();
        insta::assert_snapshot!("top_first_sample_60x4", drawn(&never, 0, [60, 4], true));
        never.add(Sample::at(0).with_problem("no answer"));
        insta::assert_snapshot!("top_never_answered_60x6", drawn(&never, 8, [60, 6], true));
    }

    #[test]
    fn any_size_is_drawn_and_the_first_line_tells_if_a_human_is_needed() {
        let states = [State::default(), healthy(), troubled()];
        for state in &states {
            for width in (0..60).chain([100, 250]) {
                for height in (0..30).chain([80]) {
                    drawn(state, 1, [width, height], true);
                }
            }
        }
        let screen = drawn(&troubled(), 1, [40, 1], true).to_string();
        assert!(screen.contains("A HUMAN IS NEEDED"), "{screen}");
    }

    #[test]
    fn plain_screen_has_the_same_text_without_colours() {
        let (plain, coloured) =
            (drawn(&troubled(), 1, [80, 24], false), drawn(&troubled(), 1, [80, 24], true));
        assert_eq!(plain.to_string(), coloured.to_string());
        let colors = |screen: &TestBackend| {
            screen.buffer().content().iter().filter(|cell| cell.style().fg != Some(Color::Reset)).count()
        };
        assert_eq!(colors(&plain), 0);
        assert!(colors(&coloured) > 100);
    }
}
