//! Pure: for whom something is printed: how wide their terminal is, whether it has colours, and what time it is there.

use jiff::Timestamp;
use strum::{EnumString, VariantNames};

use super::time;

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, EnumString, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set (<https://no-color.org>).
    #[default]
    Auto,
    /// Even into a file.
    Always,
    /// Nowhere.
    Never,
}

impl Color {
    /// Whether to colour, on what may be a terminal, with what `NO_COLOR` may say. One that is empty says nothing.
    pub fn decide(self, is_terminal: bool, no_color: Option<&str>) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => is_terminal && no_color.is_none_or(str::is_empty),
        }
    }
}

/// Who looks.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// Columns of their terminal; `None` where nothing is to be cut: it is no terminal, or all was asked for.
    pub width: Option<usize>,
    /// When they look; `None` where somebody may read it much later: a file.
    pub now: Option<Timestamp>,
}

impl View {
    /// What goes into a file, or to another program.
    pub const FILE: Self = Self { width: None, now: None };

    /// A moment where there is little room: how long ago it was, for who looks now.
    pub fn moment(&self, at: Timestamp) -> String {
        self.now.map_or_else(|| time::moment(at), |now| time::distance(at, now))
    }

    /// A moment, and how long ago it was, for who looks now.
    pub fn moment_in_full(&self, at: Timestamp) -> String {
        let moment = time::moment(at);
        match self.now.map(|now| time::distance(at, now)) {
            Some(distance) if distance != moment => format!("{moment} ({distance})"),
            Some(_) | None => moment,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_unless_somebody_says_otherwise() {
        for (color, is_terminal, no_color, wanted) in [
            (Color::Auto, true, None, true),
            (Color::Auto, true, Some(""), true),
            (Color::Auto, true, Some("1"), false),
            (Color::Auto, false, None, false),
            (Color::Always, false, Some("1"), true),
            (Color::Never, true, None, false),
        ] {
            assert_eq!(color.decide(is_terminal, no_color), wanted, "{color:?} {is_terminal} {no_color:?}");
        }
    }

    #[test]
    fn who_looks_now_is_told_how_long_ago_it_was() {
        let at: Timestamp = "2026-11-20T14:18:36Z".parse().expect("a moment");
        let now = "2026-11-20T14:21:40Z".parse().ok();
        let looking = View { width: Some(80), now };
        assert_eq!(looking.moment(at), "3 min ago");
        assert_eq!(looking.moment_in_full(at), "2026-11-20 14:18:36Z (3 min ago)");
        assert_eq!(View::FILE.moment(at), "2026-11-20 14:18:36Z");
        assert_eq!(View::FILE.moment_in_full(at), "2026-11-20 14:18:36Z");
    }
}
