//! Pure: tables that fit the terminal.

use comfy_table::presets::{NOTHING, UTF8_BORDERS_ONLY};
use comfy_table::{CellAlignment, Table};
use jiff::Timestamp;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::column_width::{Frame, Limits, fit};
use super::text::{NONE, or_none, printable};
use super::view::View;

/// Minimum width of a text that may be truncated.
const MIN_WIDTH: usize = 12;

/// Column of a table with rows of `T`.
pub struct Column<T> {
    header: &'static str,
    alignment: CellAlignment,
    cell: Cell<T>,
    is_truncatable: bool,
    removal_order: Option<u8>,
}

enum Cell<T> {
    Text(fn(&T) -> String),
    Time(fn(&T) -> Option<Timestamp>),
}

impl<T> Column<T> {
    const fn new(header: &'static str, alignment: CellAlignment, cell: Cell<T>) -> Self {
        Self { header, alignment, cell, is_truncatable: false, removal_order: None }
    }

    fn text(&self, row: &T, view: &View) -> String {
        let text = match self.cell {
            Cell::Text(cell) => cell(row),
            Cell::Time(cell) => or_none(cell(row).map(|at| view.time(at))),
        };
        printable(&text.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    fn limits<'a>(&self, cells: impl Iterator<Item = &'a String>) -> Limits {
        let header = self.header.width();
        let natural = cells.map(|cell| cell.width()).max().unwrap_or(0).max(header);
        let min = if self.is_truncatable { MIN_WIDTH.max(header).min(natural) } else { natural };
        Limits { natural, min, removal_order: self.removal_order }
    }
}

/// Removal order of columns without any value: before all others.
const EMPTY: u8 = 0;

/// True if no row has a value in this column.
fn is_empty(cells: &[Vec<String>], index: usize) -> bool {
    !cells.is_empty() && cells.iter().all(|cells| matches!(cells[index].as_str(), "" | NONE))
}

pub const fn left<T>(header: &'static str, cell: fn(&T) -> String) -> Column<T> {
    Column::new(header, CellAlignment::Left, Cell::Text(cell))
}

pub const fn right<T>(header: &'static str, cell: fn(&T) -> String) -> Column<T> {
    Column::new(header, CellAlignment::Right, Cell::Text(cell))
}

pub const fn time<T>(header: &'static str, cell: fn(&T) -> Option<Timestamp>) -> Column<T> {
    Column::new(header, CellAlignment::Left, Cell::Time(cell))
}

/// Lets a column be removed on a narrow terminal, after those with a lower number.
pub const fn removable<T>(order: u8, column: Column<T>) -> Column<T> {
    Column { removal_order: Some(order), ..column }
}

/// Lets the texts of a column be truncated on a narrow terminal. Not for ids, which people copy.
pub const fn truncatable<T>(column: Column<T>) -> Column<T> {
    Column { is_truncatable: true, ..column }
}

/// Draws a table with a line for each row, followed by the names of removed columns.
pub fn table<T>(columns: &[Column<T>], rows: &[T], view: &View) -> String {
    framed(columns, cells_of(columns, rows, view), view)
}

/// Draws a table with a row of sums.
pub fn table_with_sum<T, const COLUMNS: usize>(
    columns: &[Column<T>; COLUMNS],
    rows: &[T],
    sum: [String; COLUMNS],
    view: &View,
) -> String {
    let mut cells = cells_of(columns, rows, view);
    cells.push(sum.to_vec());
    framed(columns, cells, view)
}

/// Draws lines without a frame, headers first. Columns are removed without a note.
pub fn plain_lines<T>(columns: &[Column<T>], rows: &[T], view: &View) -> Vec<String> {
    let (mut table, _) = drawn(columns, cells_of(columns, rows, view), Frame::Bare, view);
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

fn cells_of<T>(columns: &[Column<T>], rows: &[T], view: &View) -> Vec<Vec<String>> {
    rows.iter().map(|row| columns.iter().map(|column| column.text(row, view)).collect()).collect()
}

fn framed<T>(columns: &[Column<T>], cells: Vec<Vec<String>>, view: &View) -> String {
    let (table, removed) = drawn(columns, cells, Frame::Box, view);
    match removed.as_slice() {
        [] => table.to_string(),
        removed => format!("{table}\nno room for {} (--wide shows all)", removed.join(", ")),
    }
}

/// A table, and the headers of removed columns that have values.
fn drawn<T>(
    columns: &[Column<T>],
    cells: Vec<Vec<String>>,
    frame: Frame,
    view: &View,
) -> (Table, Vec<&'static str>) {
    let limits = columns.iter().enumerate();
    let limits: Vec<_> = limits
        .map(|(index, column)| {
            let limits = column.limits(cells.iter().map(|cells| &cells[index]));
            // A live view keeps its columns.
            let is_removed_first = matches!(frame, Frame::Box) && is_empty(&cells, index);
            let removal_order = if is_removed_first { Some(EMPTY) } else { limits.removal_order };
            Limits { removal_order, ..limits }
        })
        .collect();
    let has_values: Vec<_> = (0..columns.len()).map(|index| !is_empty(&cells, index)).collect();
    let widths = match view.width {
        Some(room) => fit(&limits, frame, room),
        None => limits.iter().map(|column| Some(column.natural)).collect(),
    };
    let kept = |cells: Vec<String>| -> Vec<String> {
        cells.into_iter().zip(&widths).filter_map(|(cell, width)| Some(truncated(cell, (*width)?))).collect()
    };
    let mut table = Table::new();
    table.load_style(match frame {
        Frame::Box => UTF8_BORDERS_ONLY,
        Frame::Bare => NOTHING,
    });
    table.set_header(kept(columns.iter().map(|column| column.header.to_owned()).collect()));
    table.add_rows(cells.into_iter().map(kept));
    let shown = columns.iter().zip(&widths).filter(|(_, width)| width.is_some());
    for ((column, _), drawn) in shown.zip(table.column_iter_mut()) {
        drawn.set_cell_alignment(column.alignment);
    }
    let removed = columns.iter().zip(&widths).zip(has_values);
    let removed = removed.filter(|((_, width), has_values)| width.is_none() && *has_values);
    (table, removed.map(|((column, _), _)| column.header).collect())
}

/// Truncates a text to a width.
pub fn truncated(text: String, max_width: usize) -> String {
    if text.width() <= max_width {
        return text;
    }
    let mut room = max_width.saturating_sub(1);
    let fits = |character: &char| {
        let left = room.checked_sub(character.width().unwrap_or(0));
        room = left.unwrap_or(0);
        left.is_some()
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01890000-0000-7000-8000-000000000001";
    const COLUMNS: [Column<&str>; 4] = [
        left("id", |_| ID.to_owned()),
        removable(2, right("count", |_| "7".to_owned())),
        removable(1, time("at", |_| Some(Timestamp::UNIX_EPOCH))),
        truncatable(left("reason", |text| (*text).to_owned())),
    ];
    const LONG: &str = "über\nalles hinaus\u{1b}[2J, und noch viel weiter, 日本語日本語日本語日本語";

    #[test]
    fn table_fits_the_terminal_and_keeps_ids_whole() {
        for width in 56..200 {
            let text = table(&COLUMNS, &[LONG, "short"], &View { width: Some(width), now: None });
            let (drawn, note) = text.split_once("\nno room").unwrap_or((&text, ""));
            assert!(drawn.lines().all(|line| line.width() <= width), "{width}:\n{text}");
            assert_eq!(text.matches(ID).count(), 2, "{width}:\n{text}");
            assert_eq!(note.contains("count"), !drawn.contains("count"), "{width}:\n{text}");
        }
    }

    /// A column that says nothing must not take the place of one that does.
    #[test]
    fn column_without_values_is_removed_first_and_not_named() {
        const WITH_EMPTY: [Column<&str>; 4] = [
            left("id", |_| ID.to_owned()),
            left("overdue", |text| text.strip_prefix("late ").unwrap_or_default().to_owned()),
            removable(1, left("until", |_| NONE.to_owned())),
            removable(2, right("total", |_| "37.98 EUR".to_owned())),
        ];
        let at =
            |width, rows: &[&'static str]| table(&WITH_EMPTY, rows, &View { width: Some(width), now: None });
        let text = at(56, &["a", "b"]);
        assert!(text.contains("total") && !text.contains("overdue") && !text.contains("no room"), "{text}");
        let text = at(56, &["a", "late OVERDUE"]);
        assert!(text.contains("OVERDUE") && text.contains("no room for total"), "{text}");
        assert!(at(90, &["a"]).contains("overdue"), "there is room");
    }

    #[test]
    fn lines_are_aligned_with_their_headers() {
        let lines_at = |width| plain_lines(&COLUMNS, &["short"], &View { width, now: None });
        let header = format!("{:36}  count  {:20}  reason", "id", "at");
        assert_eq!(lines_at(None), [header, format!("{ID}      7  1970-01-01 00:00:00Z  short")]);
        assert_eq!(
            lines_at(Some(60)),
            [format!("{:36}  count  reason", "id"), format!("{ID}      7  short")]
        );
        for width in 44..100 {
            assert!(lines_at(Some(width)).iter().all(|line| line.width() <= width), "{width}");
        }
    }

    #[test]
    fn output_to_a_file_is_complete() {
        let text = table(&COLUMNS, &[LONG], &View::FILE);
        assert!(text.contains("weiter, 日本語日本語日本語日本語") && text.contains("1970-01-01"), "{text}");
        assert!(text.contains("über alles hinaus\\u{1b}[2J"), "{text}");
    }
}
