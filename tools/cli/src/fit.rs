//! Pure: which columns of a table fit a terminal, and how wide each may be.

/// What a column would like.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    /// As wide as its widest cell.
    pub natural: usize,
    /// It may be cut to this; as wide as `natural` when it is never cut.
    pub least: usize,
    /// It may be left out: the lowest number goes first.
    pub goes: Option<u8>,
}

/// What stands around the cells.
#[derive(Debug, Clone, Copy)]
pub enum Frame {
    /// A border at each side, a space at each side of a cell, one between two.
    Box,
    /// Two spaces between two cells.
    Bare,
}

impl Frame {
    /// Its width.
    const fn around(self, columns: usize) -> usize {
        match self {
            Self::Box => columns * 3 + 1,
            Self::Bare => columns.saturating_sub(1) * 2,
        }
    }
}

/// The width of each column, `None` for those that are left out. What can neither be cut nor left out makes a table
/// that is wider than the room.
pub fn fit(wishes: &[Wish], frame: Frame, room: usize) -> Vec<Option<usize>> {
    let mut widths: Vec<_> = wishes.iter().map(|wish| Some(wish.least.min(wish.natural))).collect();
    while needed(&widths, frame) > room {
        let still = wishes.iter().enumerate().filter(|(index, _)| widths[*index].is_some());
        let next = still.filter_map(|(index, wish)| Some((wish.goes?, index))).min();
        let Some((_, index)) = next else { break };
        widths[index] = None;
    }
    let mut spare = room.saturating_sub(needed(&widths, frame));
    for (width, wish) in widths.iter_mut().zip(wishes) {
        if let Some(width) = width {
            let more = spare.min(wish.natural - *width);
            *width += more;
            spare -= more;
        }
    }
    widths
}

fn needed(widths: &[Option<usize>], frame: Frame) -> usize {
    let shown = widths.iter().flatten();
    frame.around(shown.clone().count()) + shown.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An id that is never cut, a number that goes second, a text that may be cut, a moment that goes first.
    const WISHES: [Wish; 4] = [
        Wish { natural: 36, least: 36, goes: None },
        Wish { natural: 5, least: 5, goes: Some(2) },
        Wish { natural: 60, least: 16, goes: None },
        Wish { natural: 20, least: 20, goes: Some(1) },
    ];

    #[test]
    fn what_fits_is_shown_whole() {
        assert_eq!(fit(&WISHES, Frame::Box, 134), [Some(36), Some(5), Some(60), Some(20)]);
        assert_eq!(fit(&WISHES, Frame::Box, 1_000), [Some(36), Some(5), Some(60), Some(20)]);
    }

    #[test]
    fn first_texts_are_cut_then_columns_go_in_their_order_and_ids_stay() {
        assert_eq!(fit(&WISHES, Frame::Box, 133), [Some(36), Some(5), Some(59), Some(20)]);
        assert_eq!(fit(&WISHES, Frame::Box, 90), [Some(36), Some(5), Some(16), Some(20)]);
        assert_eq!(fit(&WISHES, Frame::Box, 89), [Some(36), Some(5), Some(38), None]);
        assert_eq!(fit(&WISHES, Frame::Box, 60), [Some(36), None, Some(17), None]);
        assert_eq!(fit(&WISHES, Frame::Box, 10), [Some(36), None, Some(16), None], "wider than the room");
    }

    #[test]
    fn without_a_frame_there_is_room_for_more() {
        assert_eq!(fit(&WISHES, Frame::Bare, 127), [Some(36), Some(5), Some(60), Some(20)]);
        assert_eq!(fit(&WISHES, Frame::Bare, 82), [Some(36), Some(5), Some(37), None]);
        assert_eq!(fit(&[], Frame::Bare, 0), []);
    }

    #[test]
    fn whatever_the_room_is_no_column_is_wider_than_it_would_like_and_none_narrower_than_it_may() {
        for room in 0..300 {
            let widths = fit(&WISHES, Frame::Box, room);
            for (width, wish) in widths.iter().zip(WISHES) {
                assert!(width.is_none_or(|width| (wish.least..=wish.natural).contains(&width)), "{room}");
                assert!(width.is_some() || wish.goes.is_some(), "{room}");
            }
            assert!(needed(&widths, Frame::Box) <= room.max(59), "{room}");
        }
    }
}
