//! Pure: tables that fit the terminal.

use comfy_table::{CellAlignment, Table};
use jiff::Timestamp;
use unicode_width::UnicodeWidthChar as _;
use unicode_width::UnicodeWidthStr as _;

use super::fit::{Frame, Limits, fit};
use super::text::{or_nothing, printable};
use super::view::View;

/// Minimum width of a text that may be cut.
const MIN_WIDTH: usize = 12;

/// Column of a table with rows of `T`.
pub struct Column<T> {
    header: &'static str,
    alignment: CellAlignment,
    cell: Cell<T>,
    is_cut: bool,
    goes: Option<u8>,
}

enum Cell<T> {
    Text(fn(&T) -> String),
    Moment(fn(&T) -> Option<Timestamp>),
}

pub const fn left<T>(header: &'static str, cell: fn(&T) -> String) -> Column<T> {
    Column { header, alignment: CellAlignment::Left, cell: Cell::Text(cell), is_cut: false, goes: None }
}

pub const fn right<T>(header: &'static str, cell: fn(&T) -> String) -> Column<T> {
    Column { header, alignment: CellAlignment::Right, cell: Cell::Text(cell), is_cut: false, goes: None }
}

pub const fn when<T>(header: &'static str, cell: fn(&T) -> Option<Timestamp>) -> Column<T> {
    Column { header, alignment: CellAlignment::Left, cell: Cell::Moment(cell), is_cut: false, goes: None }
}

/// Lets a column be removed on a narrow terminal, after those with a lower number.
pub const fn goes<T>(order: u8, column: Column<T>) -> Column<T> {
    Column { goes: Some(order), ..column }
}

/// Lets the texts of a column be cut on a narrow terminal. Not for ids, which people copy.
pub const fn cut<T>(column: Column<T>) -> Column<T> {
    Column { is_cut: true, ..column }
}

impl<T> Column<T> {
    fn shown(&self, row: &T, view: &View) -> String {
        let text = match self.cell {
            Cell::Text(cell) => cell(row),
            Cell::Moment(cell) => or_nothing(cell(row).map(|at| view.moment(at))),
        };
        printable(&text.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// Table with a line for each row, followed by the names of removed columns.
pub fn table<T>(columns: &[Column<T>], rows: &[T], view: &View) -> String {
    drawn(columns, rows, None, view)
}

/// Table with a row of sums.
pub fn table_with_sum<T, const COLUMNS: usize>(
    columns: &[Column<T>; COLUMNS],
    rows: &[T],
    sum: [String; COLUMNS],
    view: &View,
) -> String {
    drawn(columns, rows, Some(sum.to_vec()), view)
}

fn drawn<T>(columns: &[Column<T>], rows: &[T], sum: Option<Vec<String>>, view: &View) -> String {
    let row = |row: &T| columns.iter().map(|column| column.shown(row, view)).collect::<Vec<_>>();
    let cells: Vec<Vec<String>> = rows.iter().map(row).chain(sum).collect();
    let limits: Vec<_> =
        columns.iter().enumerate().map(|(index, column)| limits_of(column, index, &cells)).collect();
    let widths = view.width.map_or_else(|| natural(&limits), |room| fit(&limits, Frame::Box, room));
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_BORDERS_ONLY);
    table.set_header(kept(columns.iter().map(|column| column.header.to_owned()), &widths));
    table.add_rows(cells.into_iter().map(|cells| kept(cells.into_iter(), &widths)));
    let shown = columns.iter().zip(&widths).filter(|(_, width)| width.is_some());
    for ((column, _), drawn) in shown.zip(table.column_iter_mut()) {
        drawn.set_cell_alignment(column.alignment);
    }
    let missing: Vec<_> = columns
        .iter()
        .zip(&widths)
        .filter(|(_, width)| width.is_none())
        .map(|(column, _)| column.header)
        .collect();
    let note = format!("\nno room for {} (--wide shows all)", missing.join(", "));
    if missing.is_empty() { table.to_string() } else { table.to_string() + &note }
}

/// Lines without a frame, headers first. Columns are removed without a note.
pub fn lines<T>(columns: &[Column<T>], rows: &[T], view: &View) -> Vec<String> {
    let row = |row: &T| columns.iter().map(|column| column.shown(row, view)).collect::<Vec<_>>();
    let cells: Vec<Vec<String>> = rows.iter().map(row).collect();
    let limits: Vec<_> =
        columns.iter().enumerate().map(|(index, column)| limits_of(column, index, &cells)).collect();
    let widths = view.width.map_or_else(|| natural(&limits), |room| fit(&limits, Frame::Bare, room));
    let headers = columns.iter().map(|column| column.header.to_owned()).collect();
    let padded = |(column, (cell, width)): (&Column<T>, (String, &Option<usize>))| {
        let width = (*width)?;
        let cell = shortened(cell, width);
        let space = " ".repeat(width - cell.width());
        let is_right = column.alignment == CellAlignment::Right;
        Some(if is_right { space + &cell } else { cell + &space })
    };
    let line = |cells: Vec<String>| {
        let cells = columns.iter().zip(cells.into_iter().zip(&widths)).filter_map(padded);
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    std::iter::once(headers).chain(cells).map(line).collect()
}

fn limits_of<T>(column: &Column<T>, index: usize, cells: &[Vec<String>]) -> Limits {
    let widths = cells.iter().map(|cells| cells[index].width());
    let natural = widths.max().unwrap_or(0).max(column.header.width());
    let least = if column.is_cut { MIN_WIDTH.max(column.header.width()).min(natural) } else { natural };
    Limits { natural, least, goes: column.goes }
}

fn natural(limits: &[Limits]) -> Vec<Option<usize>> {
    limits.iter().map(|column| Some(column.natural)).collect()
}

/// Cells of the columns that stay, cut to their widths.
fn kept(cells: impl Iterator<Item = String>, widths: &[Option<usize>]) -> Vec<String> {
    cells.zip(widths).filter_map(|(cell, width)| width.map(|width| shortened(cell, width))).collect()
}

/// Text cut to a width.
pub fn shortened(text: String, longest: usize) -> String {
    if text.width() <= longest {
        return text;
    }
    let mut room = longest.saturating_sub(1);
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
        goes(2, right("count", |_| "7".to_owned())),
        goes(1, when("at", |_| Some(Timestamp::UNIX_EPOCH))),
        cut(left("reason", |text| (*text).to_owned())),
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

    #[test]
    fn lines_are_aligned_with_their_headers() {
        let lines_at = |width| lines(&COLUMNS, &["short"], &View { width, now: None });
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
