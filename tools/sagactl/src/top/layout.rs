//! Pure: which lines have room, and how each is marked.

use unicode_width::UnicodeWidthStr as _;

use cli::text::printable;
use cli::truncated;

/// What a line is, whatever its colours: the words say it too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    Plain,
    /// All is well.
    Good,
    /// Somebody should look.
    Warning,
    /// Something is wrong.
    Bad,
    /// What is to be seen before all else.
    Alarm,
    /// How to go on.
    Strong,
    /// Above a table.
    Header,
    /// It was so once, and may be otherwise by now.
    Old,
}

/// A line of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub mark: Mark,
    pub text: String,
    /// What stands at the right end, where there is room.
    pub right: Option<String>,
}

impl Line {
    /// In one line, whatever the text holds.
    pub fn new(mark: Mark, text: String) -> Self {
        let text = printable(&text.replace(['\n', '\r', '\t'], " "));
        Self { mark, text: text.trim_end().to_owned(), right: None }
    }

    /// Its text, so wide at most.
    pub fn within(&self, width: usize) -> String {
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
pub struct Part {
    lines: Vec<Line>,
    /// So many are shown before others get any more.
    least: usize,
    /// An empty line stands before it, where there is room for all.
    is_apart: bool,
}

impl Part {
    /// Of which at least one line is shown.
    pub const fn of(lines: Vec<Line>) -> Self {
        Self { lines, least: 1, is_apart: false }
    }

    pub fn showing(self, least: usize) -> Self {
        Self { least, ..self }
    }

    pub fn apart(self) -> Self {
        Self { is_apart: true, ..self }
    }
}

/// All of it, as it goes into a file.
pub fn whole(parts: &[Part]) -> Vec<Line> {
    let lines = parts.iter().filter(|part| !part.lines.is_empty()).flat_map(|part| {
        let before = part.is_apart.then(|| Line::new(Mark::Plain, String::new()));
        before.into_iter().chain(part.lines.iter().cloned())
    });
    lines.collect()
}

/// What `height` lines show; the last says how this is left, how much has no room, and which system it is.
pub fn fitted(parts: &[Part], system: &str, height: usize) -> Vec<Line> {
    let whole = whole(parts);
    let room = if height < 3 { height } else { height - 1 };
    let (mut lines, missing) = if whole.len() <= room { (whole, 0) } else { chosen(parts, room) };
    if room < height {
        let empty = || Line::new(Mark::Plain, String::new());
        lines.resize_with(room, empty);
        let hidden = match missing {
            0 => String::new(),
            1 => " · no room for 1 line".to_owned(),
            _ => format!(" · no room for {missing} lines"),
        };
        lines.push(Line::new(Mark::Header, format!("q ends{hidden} · {system}")));
    }
    lines
}

/// Of each part its least, as long as there is room, then the rest, each time the most important first.
fn chosen(parts: &[Part], room: usize) -> (Vec<Line>, usize) {
    let mut left = room;
    let mut take = |wanted: usize| {
        let taken = wanted.min(left);
        left -= taken;
        taken
    };
    let mut shares: Vec<_> = parts.iter().map(|part| take(part.least.min(part.lines.len()))).collect();
    for (share, part) in shares.iter_mut().zip(parts) {
        *share += take(part.lines.len() - *share);
    }
    let all: usize = parts.iter().map(|part| part.lines.len()).sum();
    let shown = parts.iter().zip(&shares).flat_map(|(part, share)| part.lines[..*share].iter().cloned());
    (shown.collect(), all - shares.iter().sum::<usize>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, lines: usize) -> Part {
        Part::of((0..lines).map(|line| Line::new(Mark::Plain, format!("{name}{line}"))).collect())
    }

    fn shown(height: usize) -> String {
        let parts = [part("a", 1), part("b", 4).showing(2), part("none", 0).apart(), part("c", 3).apart()];
        let lines = fitted(&parts, "this", height);
        assert_eq!(lines.len(), height);
        lines.into_iter().map(|line| line.text).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn the_least_of_each_is_shown_before_more_of_any() {
        assert_eq!(shown(11), "a0|b0|b1|b2|b3||c0|c1|c2||q ends · this");
        assert_eq!(shown(10), "a0|b0|b1|b2|b3||c0|c1|c2|q ends · this");
        assert_eq!(shown(9), "a0|b0|b1|b2|b3|c0|c1|c2|q ends · this", "first the empty line goes");
        assert_eq!(shown(8), "a0|b0|b1|b2|b3|c0|c1|q ends · no room for 1 line · this");
        assert_eq!(shown(6), "a0|b0|b1|b2|c0|q ends · no room for 3 lines · this");
        assert_eq!(shown(4), "a0|b0|b1|q ends · no room for 5 lines · this");
        assert_eq!([shown(2), shown(1), shown(0)], ["a0|b0", "a0", ""]);
    }

    #[test]
    fn a_line_is_one_and_never_wider_than_its_room() {
        let line = Line::new(Mark::Plain, "über\nalles\u{1b}[2J 日本語".to_owned());
        assert_eq!(line.text, "über alles\\u{1b}[2J 日本語");
        let line = Line { right: Some("12:00:00Z".to_owned()), ..line };
        for width in 0..60 {
            assert!(line.within(width).width() <= width, "{width}");
        }
        assert_eq!(line.within(40), "über alles\\u{1b}[2J 日本語     12:00:00Z");
        assert!(!line.within(30).contains("12:00"));
    }
}
