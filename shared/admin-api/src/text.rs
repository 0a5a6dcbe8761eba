//! Pure: text for people: counts in words, and validation of what they enter.

use contract::money::Money;

/// Formats a count with its noun: `1 saga`, `1,234 sagas`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{} {many}", grouped(count)) }
}

/// Lists amounts: `10.00 EUR and 5.00 USD`. Empty without any.
pub fn listed(amounts: &[Money]) -> String {
    amounts.iter().map(Money::to_string).collect::<Vec<_>>().join(" and ")
}

/// Formats a number with thousands separators: `1,234`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Rejects text that would not stay on its line, such as text with line breaks or bidirectional controls.
pub(crate) fn one_line<C>(text: &str, _: &C) -> garde::Result {
    match saga_core::text::breaks_line(text) {
        None => Ok(()),
        Some(found) => Err(garde::Error::new(format!("must be one line of plain text, without {found:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_thousands_separators() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn counts_have_singular_and_plural() {
        let sagas = |count| counted(count, "saga", "sagas");
        assert_eq!([0, 1, 2, 1_234].map(sagas), ["0 sagas", "1 saga", "2 sagas", "1,234 sagas"]);
    }
}
