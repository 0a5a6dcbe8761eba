//! Pure: column widths of a table that fits the terminal.

/// Width limits of a column.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Width of its widest cell.
    pub natural: usize,
    /// Width to which it may be cut; `natural` if it is never cut.
    pub least: usize,
    /// Order of removal, lowest number first; `None` if it always stays.
    pub goes: Option<u8>,
}

#[derive(Debug, Clone, Copy)]
pub enum Frame {
    /// Borders, and a space at each side of a cell.
    Box,
    Bare,
}

impl Frame {
    const fn width(self, columns: usize) -> usize {
        match self {
            Self::Box => columns * 3 + 1,
            Self::Bare => columns.saturating_sub(1) * 2,
        }
    }
}

/// Width of each column; `None` for those that are removed. Columns that can be neither cut nor removed may exceed the
/// room.
pub fn fit(columns: &[Limits], frame: Frame, room: usize) -> Vec<Option<usize>> {
    let mut widths: Vec<_> = columns.iter().map(|column| Some(column.least.min(column.natural))).collect();
    while needed(&widths, frame) > room {
        let still = columns.iter().enumerate().filter(|(index, _)| widths[*index].is_some());
        let next = still.filter_map(|(index, column)| Some((column.goes?, index))).min();
        let Some((_, index)) = next else { break };
        widths[index] = None;
    }
    let mut spare = room.saturating_sub(needed(&widths, frame));
    for (width, column) in widths.iter_mut().zip(columns) {
        if let Some(width) = width {
            let more = spare.min(column.natural - *width);
            *width += more;
            spare -= more;
        }
    }
    widths
}

fn needed(widths: &[Option<usize>], frame: Frame) -> usize {
    let shown = widths.iter().flatten();
    frame.width(shown.clone().count()) + shown.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An id that stays, a number that is removed second, a text that may be cut, a time that is removed first.
    const COLUMNS: [Limits; 4] = [
        Limits { natural: 36, least: 36, goes: None },
        Limits { natural: 5, least: 5, goes: Some(2) },
        Limits { natural: 60, least: 16, goes: None },
        Limits { natural: 20, least: 20, goes: Some(1) },
    ];

    #[test]
    fn columns_that_fit_keep_their_natural_width() {
        assert_eq!(fit(&COLUMNS, Frame::Box, 134), [Some(36), Some(5), Some(60), Some(20)]);
        assert_eq!(fit(&COLUMNS, Frame::Box, 1_000), [Some(36), Some(5), Some(60), Some(20)]);
    }

    #[test]
    fn texts_are_cut_before_columns_are_removed_in_order() {
        assert_eq!(fit(&COLUMNS, Frame::Box, 133), [Some(36), Some(5), Some(59), Some(20)]);
        assert_eq!(fit(&COLUMNS, Frame::Box, 90), [Some(36), Some(5), Some(16), Some(20)]);
        assert_eq!(fit(&COLUMNS, Frame::Box, 89), [Some(36), Some(5), Some(38), None]);
        assert_eq!(fit(&COLUMNS, Frame::Box, 60), [Some(36), None, Some(17), None]);
        assert_eq!(fit(&COLUMNS, Frame::Box, 10), [Some(36), None, Some(16), None], "wider than the room");
    }

    #[test]
    fn bare_frame_leaves_more_room() {
        assert_eq!(fit(&COLUMNS, Frame::Bare, 127), [Some(36), Some(5), Some(60), Some(20)]);
        assert_eq!(fit(&COLUMNS, Frame::Bare, 82), [Some(36), Some(5), Some(37), None]);
        assert_eq!(fit(&[], Frame::Bare, 0), []);
    }

    #[test]
    fn widths_stay_within_their_limits_in_any_room() {
        for room in 0..300 {
            let widths = fit(&COLUMNS, Frame::Box, room);
            for (width, column) in widths.iter().zip(COLUMNS) {
                assert!(width.is_none_or(|width| (column.least..=column.natural).contains(&width)), "{room}");
                assert!(width.is_some() || column.goes.is_some(), "{room}");
            }
            assert!(needed(&widths, Frame::Box) <= room.max(59), "{room}");
        }
    }
}
