//! Pure: tables for people.

use comfy_table::{CellAlignment, Table};

/// A column of a table of `T`.
pub struct Column<T> {
    header: &'static str,
    alignment: CellAlignment,
    cell: fn(&T) -> String,
}

/// A column of text.
pub const fn left<T>(header: &'static str, cell: fn(&T) -> String) -> Column<T> {
    Column { header, alignment: CellAlignment::Left, cell }
}

/// A column of numbers.
pub const fn right<T>(header: &'static str, cell: fn(&T) -> String) -> Column<T> {
    Column { header, alignment: CellAlignment::Right, cell }
}

/// A table. A row is a line however narrow the terminal is: an id that is cut in pieces cannot be copied.
pub fn table<T>(columns: &[Column<T>], rows: &[T]) -> String {
    draw(columns, rows).to_string()
}

/// The same with one more row below.
pub fn table_with_sum<T, const COLUMNS: usize>(
    columns: &[Column<T>; COLUMNS],
    rows: &[T],
    sum: [String; COLUMNS],
) -> String {
    draw(columns, rows).add_row(sum).to_string()
}

fn draw<T>(columns: &[Column<T>], rows: &[T]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_BORDERS_ONLY);
    table.set_header(columns.iter().map(|column| column.header));
    table.add_rows(rows.iter().map(|row| columns.iter().map(|column| (column.cell)(row))));
    for (column, drawn) in columns.iter().zip(table.column_iter_mut()) {
        drawn.set_cell_alignment(column.alignment);
    }
    table
}
