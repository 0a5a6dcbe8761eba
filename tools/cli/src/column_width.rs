//! Pure: column widths of a table that fits the terminal.

/// Width limits of a column.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Width of its widest cell.
    pub natural: usize,
    /// Width to which it may be truncated; `natural` if it never is.
    pub min: usize,
    /// Order of removal, lowest number first; `None` if it always stays.
    pub removal_order: Option<u8>,
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

/// Width of each column; `None` for removed ones. Columns that can be neither truncated nor removed may exceed the room.
pub fn fit(columns: &[Limits], frame: Frame, room: usize) -> Vec<Option<usize>> {
    let mut widths: Vec<_> = columns.iter().map(|column| Some(column.min.min(column.natural))).collect();
    while needed(&widths, frame) > room {
        let remaining = columns.iter().enumerate().filter(|(index, _)| widths[*index].is_some());
        let next = remaining.filter_map(|(index, column)| Some((column.removal_order?, index))).min();
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

    /// An id that stays, a number that is removed second, a text that may be truncated, a time that is removed first.
    const COLUMNS: [Limits; 4] = [
        Limits { natural: 36, min: 36, removal_order: None },
        Limits { natural: 5, min: 5, removal_order: Some(2) },
        Limits { natural: 60, min: 16, removal_order: None },
        Limits { natural: 20, min: 20, removal_order: Some(1) },
    ];

    #[test]
    fn texts_are_truncated_before_columns_are_removed_in_order() {
        for (room, widths) in [
            (1_000, [Some(36), Some(5), Some(60), Some(20)]),
            (134, [Some(36), Some(5), Some(60), Some(20)]),
            (133, [Some(36), Some(5), Some(59), Some(20)]),
            (90, [Some(36), Some(5), Some(16), Some(20)]),
            (89, [Some(36), Some(5), Some(38), None]),
            (60, [Some(36), None, Some(17), None]),
            (10, [Some(36), None, Some(16), None]),
        ] {
            assert_eq!(fit(&COLUMNS, Frame::Box, room), widths, "{room}");
        }
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
                assert!(width.is_none_or(|width| (column.min..=column.natural).contains(&width)), "{room}");
                assert!(width.is_some() || column.removal_order.is_some(), "{room}");
            }
            assert!(needed(&widths, Frame::Box) <= room.max(59), "{room}");
        }
    }
}
