//! Pure: lines of the screen, and which of them have room.

use unicode_width::UnicodeWidthStr as _;

use cli::table::truncated;
use cli::text::printable;

/// Emphasis of a line. The text alone says the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    Plain,
    Good,
    Warning,
    Bad,
    Alarm,
    Strong,
    Header,
    /// Outdated: admin has not answered since.
    Old,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub mark: Mark,
    pub text: String,
    /// Text at the right end, where there is room.
    pub right: Option<String>,
}

impl Line {
    /// Creates a line. Line breaks and control characters are escaped.
    pub fn new(mark: Mark, text: String) -> Self {
        let text = printable(&text.replace(['\n', '\r', '\t'], " "));
        Self { mark, text: text.trim_end().to_owned(), right: None }
    }

    /// Returns the text in at most `width` columns.
    pub fn fit(&self, width: usize) -> String {
        if width == 0 {
            return String::new();
        }
        let text = truncated(self.text.clone(), width);
        let left = width - text.width();
        match &self.right {
            Some(right) if right.width() < left => format!("{text}{right:>left$}"),
            Some(_) | None => text,
        }
    }
}

/// Lines that belong together.
#[derive(Debug)]
pub struct Section {
    lines: Vec<Line>,
    /// Lines shown before other sections get more than theirs.
    min_lines: usize,
    /// True for an empty line before it, if there is room for everything.
    is_separate: bool,
}

impl Section {
    /// Creates a section of which at least one line is shown.
    pub const fn new(lines: Vec<Line>) -> Self {
        Self { lines, min_lines: 1, is_separate: false }
    }

    pub fn with_min_lines(self, min_lines: usize) -> Self {
        Self { min_lines, ..self }
    }

    pub fn separate(self) -> Self {
        Self { is_separate: true, ..self }
    }
}

/// Returns all lines, as they go into a file.
pub fn all_lines(sections: &[Section]) -> Vec<Line> {
    let lines = sections.iter().filter(|section| !section.lines.is_empty()).flat_map(|section| {
        let before = section.is_separate.then(|| Line::new(Mark::Plain, String::new()));
        before.into_iter().chain(section.lines.iter().cloned())
    });
    lines.collect()
}

/// Returns `height` lines. The last one names the key to quit, the number of hidden lines, and the system.
pub fn fitted(sections: &[Section], system: &str, height: usize) -> Vec<Line> {
    let all = all_lines(sections);
    let room = if height < 3 { height } else { height - 1 };
    let (mut lines, hidden) = if all.len() <= room { (all, 0) } else { selected(sections, room) };
    if room < height {
        let empty = || Line::new(Mark::Plain, String::new());
        lines.resize_with(room, empty);
        let hidden = match hidden {
            0 => String::new(),
            1 => " · no room for 1 line".to_owned(),
            count => format!(" · no room for {count} lines"),
        };
        lines.push(Line::new(Mark::Header, format!("q quits{hidden} · {system}")));
    }
    lines
}

/// Selects the minimum of each section, as long as there is room, then the rest, the most important first.
fn selected(sections: &[Section], room: usize) -> (Vec<Line>, usize) {
    let mut left = room;
    let mut take = |wanted: usize| {
        let taken = wanted.min(left);
        left -= taken;
        taken
    };
    let mut shares: Vec<_> =
        sections.iter().map(|section| take(section.min_lines.min(section.lines.len()))).collect();
    for (share, section) in shares.iter_mut().zip(sections) {
        *share += take(section.lines.len() - *share);
    }
    let all: usize = sections.iter().map(|section| section.lines.len()).sum();
    let shown =
        sections.iter().zip(&shares).flat_map(|(section, share)| section.lines[..*share].iter().cloned());
    (shown.collect(), all - shares.iter().sum::<usize>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(name: &str, lines: usize) -> Section {
        Section::new((0..lines).map(|line| Line::new(Mark::Plain, format!("{name}{line}"))).collect())
    }

    fn shown(height: usize) -> String {
        let sections = [
            section("a", 1),
            section("b", 4).with_min_lines(2),
            section("none", 0).separate(),
            section("c", 3).separate(),
        ];
        let lines = fitted(&sections, "this", height);
        assert_eq!(lines.len(), height);
        lines.into_iter().map(|line| line.text).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn minimum_of_each_section_is_shown_before_more_of_any() {
        assert_eq!(shown(11), "a0|b0|b1|b2|b3||c0|c1|c2||q quits · this");
        assert_eq!(shown(10), "a0|b0|b1|b2|b3||c0|c1|c2|q quits · this");
        assert_eq!(shown(9), "a0|b0|b1|b2|b3|c0|c1|c2|q quits · this", "the empty line is dropped first");
        assert_eq!(shown(8), "a0|b0|b1|b2|b3|c0|c1|q quits · no room for 1 line · this");
        assert_eq!(shown(6), "a0|b0|b1|b2|c0|q quits · no room for 3 lines · this");
        assert_eq!(shown(4), "a0|b0|b1|q quits · no room for 5 lines · this");
        assert_eq!([shown(2), shown(1), shown(0)], ["a0|b0", "a0", ""]);
    }

    #[test]
    fn line_is_escaped_and_never_wider_than_its_room() {
        let line = Line::new(Mark::Plain, "über\nalles\u{1b}[2J 日本語".to_owned());
        assert_eq!(line.text, "über alles\\u{1b}[2J 日本語");
        let line = Line { right: Some("12:00:00Z".to_owned()), ..line };
        for width in 0..60 {
            assert!(line.fit(width).width() <= width, "{width}");
        }
        assert_eq!(line.fit(40), "über alles\\u{1b}[2J 日本語     12:00:00Z");
        assert!(!line.fit(30).contains("12:00"));
    }
}
