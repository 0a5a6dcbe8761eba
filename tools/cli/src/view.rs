//! Pure: properties of the output: width, colours, current time.

use jiff::Timestamp;
use strum::{EnumString, VariantNames};

use super::time;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, EnumString, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set (<https://no-color.org>).
    #[default]
    Auto,
    Always,
    Never,
}

impl Color {
    /// True if the output has colours. An empty `NO_COLOR` counts as not set.
    pub fn decide(self, is_terminal: bool, no_color: Option<&str>) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => is_terminal && no_color.is_none_or(str::is_empty),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct View {
    /// Width of the terminal; `None` if nothing is truncated.
    pub width: Option<usize>,
    /// Current time; `None` for a file, which is read later.
    pub now: Option<Timestamp>,
}

impl View {
    /// Output to a file or another program.
    pub const FILE: Self = Self { width: None, now: None };

    /// Formats a time: on a terminal as its distance.
    pub fn time(&self, at: Timestamp) -> String {
        self.now.map_or_else(|| time::timestamp(at), |now| time::distance(at, now))
    }

    /// Formats a time in full; on a terminal with its distance.
    pub fn full_time(&self, at: Timestamp) -> String {
        let timestamp = time::timestamp(at);
        match self.now.map(|now| time::distance(at, now)) {
            Some(distance) if distance != timestamp => format!("{timestamp} ({distance})"),
            Some(_) | None => timestamp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_by_default() {
        for (color, is_terminal, no_color, expected) in [
            (Color::Auto, true, None, true),
            (Color::Auto, true, Some(""), true),
            (Color::Auto, true, Some("1"), false),
            (Color::Auto, false, None, false),
            (Color::Always, false, Some("1"), true),
            (Color::Never, true, None, false),
        ] {
            assert_eq!(color.decide(is_terminal, no_color), expected, "{color:?} {is_terminal} {no_color:?}");
        }
    }

    #[test]
    fn terminal_shows_distances_and_file_shows_dates() {
        let at: Timestamp = "2026-11-20T14:18:36Z".parse().expect("a time");
        let now = "2026-11-20T14:21:40Z".parse().ok();
        let terminal = View { width: Some(80), now };
        assert_eq!(terminal.time(at), "3 min ago");
        assert_eq!(terminal.full_time(at), "2026-11-20 14:18:36Z (3 min ago)");
        assert_eq!(View::FILE.time(at), "2026-11-20 14:18:36Z");
        assert_eq!(View::FILE.full_time(at), "2026-11-20 14:18:36Z");
    }
}
