//! Shell: lines on a terminal, in the colours that everything here has.

use ratatui::Frame;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Drawn, Span};

use super::layout::{Line, Mark, Part, fitted};
use cli::style::{Tone, tones};

/// Draws what there is room for.
pub fn draw(frame: &mut Frame<'_>, parts: &[Part], system: &str, has_colors: bool) {
    let area = frame.area();
    let lines = fitted(parts, system, area.height.into());
    let width = area.width;
    for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
        frame.buffer_mut().set_line(area.x, y, &drawn(line, width.into(), has_colors), width);
    }
}

fn drawn(line: &Line, width: usize, has_colors: bool) -> Drawn<'static> {
    let text = line.within(width);
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

/// Without colours it is told by weight alone.
const fn style(mark: Mark, has_colors: bool) -> Style {
    let (color, weight) = match mark {
        Mark::Plain => (None, Modifier::empty()),
        Mark::Good => (Some(Color::Green), Modifier::BOLD),
        Mark::Warning => (Some(Color::Yellow), Modifier::BOLD),
        Mark::Bad => (Some(Color::Red), Modifier::BOLD),
        Mark::Alarm => (Some(Color::Red), Modifier::BOLD.union(Modifier::REVERSED)),
        Mark::Strong => (None, Modifier::BOLD),
        Mark::Header => (None, Modifier::DIM),
        // Grey and dim together can be read on no terminal.
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
    use admin::overview::findings::{Affected, with_findings};
    use admin_api::overview::{FaultSummary, GroupSummary, OldestSaga, OpenBreaker, Overview, StepStatus};
    use jiff::SignedDuration;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use uuid::Uuid;

    use super::*;
    use crate::top::played::{noon, overview, process, service};
    use crate::top::screen::parts;
    use crate::top::state::{Look, State};
    use cli::View;

    const CALL: &str = "sagactl --data /data";

    fn drawn(state: &State, second: i64, [width, height]: [u16; 2], has_colors: bool) -> TestBackend {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        let now = Some(noon() + SignedDuration::from_secs(second));
        let view = View { width: Some(width.into()), now };
        let draw_all = |frame: &mut Frame<'_>| draw(frame, &parts(state, CALL, &view), CALL, has_colors);
        terminal.draw(draw_all).expect("drawn");
        terminal.backend().clone()
    }

    /// What admin measures when so many have completed, each within a second.
    fn measured(count: u64) -> String {
        let bucket = "saga_duration_seconds_bucket{outcome=\"completed\",le=";
        format!(
            "saga_started_total {count}\n{bucket}\"0.1\"}} {}\n{bucket}\"1\"}} {count}\n{bucket}\"+Inf\"}} {count}\n",
            count / 2
        )
    }

    const NAMES: [&str; 6] = ["nats", "bank", "order", "inventory", "payment", "admin"];

    /// All is well, and fifty sagas end in a second.
    fn well() -> State {
        let mut state = State::default();
        for second in 0..3 {
            let processes = NAMES.map(|name| process(name, Some(4_000), u64::from(second) * 31));
            let overview = Overview { at: noon() + SignedDuration::from_secs(second.into()), ..overview() };
            let counted = measured(u64::from(second) * 50);
            state.take(Look::played(second).saying(overview).measuring(&counted).with(processes));
        }
        state
    }

    /// What an operator meets at three in the morning.
    fn night() -> Overview {
        let ago = |seconds: i64| noon() - SignedDuration::from_secs(seconds);
        let mut night = overview();
        for look in &mut night.services {
            match look.service.as_str() {
                "payment" => {
                    let breaker = OpenBreaker {
                        name: "bank".to_owned(),
                        state: "OPEN".to_owned(),
                        forced: false,
                        since: Some(ago(125)),
                        why: Some("7 of 10 calls failed".to_owned()),
                    };
                    look.breakers.push(breaker);
                    look.faults.push(FaultSummary {
                        kind: "pause".to_owned(),
                        step: Some("payment-processing".to_owned()),
                    });
                    look.degraded = true;
                }
                "order" => {
                    look.outbox = look.outbox.take().map(|outbox| admin_api::overview::OutboxSummary {
                        pending: 1_203,
                        oldest: Some(ago(40)),
                        ..outbox
                    });
                    let waiting = Some(1_040);
                    let step = "order-confirmation".to_owned();
                    look.steps.push(StepStatus { step, waiting, stalled_since: None, paused: false });
                }
                "inventory" => *look = service_that_is_silent(),
                _ => {}
            }
        }
        let group = GroupSummary {
            fingerprint: "8f3a6c1e".to_owned(),
            count: 2_000,
            service: "payment".to_owned(),
            step: "payment-refund".to_owned(),
            reason: "the bank answers 422: no such charge".to_owned(),
            foreign: false,
            newest: Uuid::nil(),
            newest_at: ago(3),
            awaited: 2_000,
            ended: 0,
            first_until: None,
            last_until: None,
        };
        night.dead_letters = Some(admin_api::overview::DeadLetterSummary {
            pending: 2_000,
            replaying: 0,
            groups: vec![group],
        });
        if let Some(sagas) = &mut night.sagas {
            sagas.by_status.insert("COMPENSATION_STUCK".to_owned(), 2_000);
            sagas.overdue = 7;
            sagas.oldest = Some(OldestSaga {
                id: Uuid::nil().to_string(),
                status: "COMPENSATING".to_owned(),
                waits_for: Some("payment-refund".to_owned()),
                waits_since: Some(ago(600)),
                waits_until: None,
            });
        }
        night.unconsumed = Some(12);
        let affected = Affected { stuck: vec![], overdue: vec![], dead_letter_threshold: 100 };
        with_findings(night, &affected)
    }

    fn service_that_is_silent() -> admin_api::overview::ServiceStatus {
        let problem = Some("inventory does not answer within 1.5 s".to_owned());
        admin_api::overview::ServiceStatus {
            problem,
            ready: false,
            outbox: None,
            retries: None,
            ..service("inventory")
        }
    }

    fn nightly() -> State {
        let mut state = State::default();
        let processes = NAMES.map(|name| process(name, (name != "inventory").then_some(4_000), 0));
        state.take(Look::played(0).saying(night()).with(processes));
        state
    }

    #[test]
    fn when_all_is_well_that_is_the_first_line_and_rates_and_processes_are_seen() {
        insta::assert_snapshot!("top_well_80x24", drawn(&well(), 2, [80, 24], true));
    }

    #[test]
    fn what_needs_somebody_is_seen_first() {
        insta::assert_snapshot!("top_night_100x40", drawn(&nightly(), 1, [100, 40], true));
        insta::assert_snapshot!("top_night_80x24", drawn(&nightly(), 1, [80, 24], true));
        insta::assert_snapshot!("top_night_40x10", drawn(&nightly(), 1, [40, 10], true));
    }

    #[test]
    fn while_admin_is_away_what_it_said_last_stands_and_is_marked_as_old() {
        let mut state = well();
        let processes = NAMES.map(|name| process(name, (name != "admin").then_some(4_000), 100));
        let problem = "nobody answers at http://127.0.0.1:8080/api/admin/overview: is the system running?";
        state.take(Look::played(3).silent(problem).with(processes));
        let screen = drawn(&state, 8, [100, 24], true);
        insta::assert_snapshot!("top_silent_100x24", screen);
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
        assert!(!old("admin does not run") && !old("A HUMAN IS NEEDED") && !old("admin has not answered"));
        // Elsewhere nothing is known of processes, and nobody was needed.
        let mut elsewhere = State::default();
        elsewhere.take(Look::played(0).saying(overview()));
        elsewhere.take(Look::played(1).silent("https://admin.example did not answer in time"));
        insta::assert_snapshot!("top_silent_elsewhere_80x20", drawn(&elsewhere, 8, [80, 20], true));
        let mut never = State::default();
        insta::assert_snapshot!("top_first_60x4", drawn(&never, 0, [60, 4], true));
        never.take(Look::played(0).silent("nobody answers"));
        insta::assert_snapshot!("top_never_60x6", drawn(&never, 8, [60, 6], true));
    }

    #[test]
    fn whatever_the_size_nothing_breaks_and_the_first_line_says_whether_somebody_is_needed() {
        let states = [State::default(), well(), nightly()];
        for state in &states {
            for width in (0..60).chain([100, 250]) {
                for height in (0..30).chain([80]) {
                    drawn(state, 1, [width, height], true);
                }
            }
        }
        let screen = drawn(&nightly(), 1, [40, 1], true).to_string();
        assert!(screen.contains("A HUMAN IS NEEDED"), "{screen}");
    }

    #[test]
    fn without_colours_nothing_is_coloured_and_the_words_are_the_same() {
        let (plain, coloured) = (drawn(&nightly(), 1, [80, 24], false), drawn(&nightly(), 1, [80, 24], true));
        assert_eq!(plain.to_string(), coloured.to_string());
        let colors = |screen: &TestBackend| {
            screen.buffer().content().iter().filter(|cell| cell.style().fg != Some(Color::Reset)).count()
        };
        assert_eq!(colors(&plain), 0);
        assert!(colors(&coloured) > 100);
    }
}
