//! Pure: tables for people.

use comfy_table::{CellAlignment, Table};

/// A table; the columns `right` are aligned to the right. A row is a line however narrow the terminal is: an id
/// that is cut in pieces cannot be copied.
pub fn table<const COLUMNS: usize>(
    header: [&str; COLUMNS],
    rows: impl IntoIterator<Item = [String; COLUMNS]>,
    right: &[usize],
) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_BORDERS_ONLY);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in right {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}
