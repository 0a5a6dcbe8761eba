//! Pure: colours of status words. A colour never is the only sign.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Good,
    Pending,
    Bad,
}

impl Tone {
    /// Escape sequence (ECMA-48, SGR).
    const fn code(self) -> &'static str {
        match self {
            Self::Good => "\u{1b}[32m",
            Self::Pending => "\u{1b}[33m",
            Self::Bad => "\u{1b}[31m",
        }
    }
}

const PLAIN: &str = "\u{1b}[0m";

/// Tone of a status in capitals: of sagas, orders, dead letters, redrives, breakers, the outbox, reconciliation.
const fn tone_of(word: &str) -> Option<Tone> {
    Some(match word.as_bytes() {
        b"COMPLETED" | b"CONFIRMED" | b"RESOLVED" | b"DONE" | b"CLOSED" | b"BALANCED"
        | b"RESOLVED_MANUALLY" => Tone::Good,
        b"STARTED" | b"IN_PROGRESS" | b"COMPENSATING" | b"COMPENSATED" | b"PENDING" | b"REPLAYING"
        | b"CANARY" | b"RUNNING" | b"PAUSED" | b"HALF_OPEN" | b"FORCED_CLOSED" | b"RESERVED"
        | b"IN_FLIGHT" => Tone::Pending,
        b"FAILED"
        | b"COMPENSATION_STUCK"
        | b"UNKNOWN"
        | b"TIMED_OUT"
        | b"DEAD_LETTERED"
        | b"OVERDUE"
        | b"DISCARDED"
        | b"STOPPED"
        | b"CANCELLED"
        | b"OPEN"
        | b"FORCED_OPEN"
        | b"UNBALANCED"
        | b"GREW" => Tone::Bad,
        _ => return None,
    })
}

/// Colours the status words of a text. Its width stays.
pub fn colored(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for (part, tone) in tones(text) {
        match tone {
            Some(tone) => shown.extend([tone.code(), part, PLAIN]),
            None => shown.push_str(part),
        }
    }
    shown
}

/// Splits a text into pieces with their tones.
pub fn tones(text: &str) -> Vec<(&str, Option<Tone>)> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_part) {
        let (before, from_word) = rest.split_at(start);
        let end = from_word.find(|character| !is_part(character)).unwrap_or(from_word.len());
        let (word, after) = from_word.split_at(end);
        pieces.extend([(before, None), (word, tone_of(word))]);
        rest = after;
    }
    pieces.push((rest, None));
    pieces
}

fn is_part(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use contract::saga::SagaStatus;
    use saga_core::dead_letter::DeadLetterStatus;

    use super::*;

    #[test]
    fn only_whole_status_words_are_coloured() {
        let text = "│ 7 is FAILED │ UNFAILED FAILED_ Failed │ über DONE";
        let shown = colored(text);
        assert_eq!(shown.matches(PLAIN).count(), 2, "{shown:?}");
        assert!(shown.contains("\u{1b}[31mFAILED\u{1b}[0m │ UNFAILED"), "{shown:?}");
        let codes = [Tone::Good.code(), Tone::Bad.code(), PLAIN];
        assert_eq!(codes.into_iter().fold(shown, |shown, code| shown.replace(code, "")), text);
    }

    #[test]
    fn every_status_has_a_colour() {
        let sagas = SagaStatus::ALL.iter().map(|status| status.as_str());
        let dead_letters = DeadLetterStatus::ALL.iter().map(|status| status.as_str());
        for status in sagas.chain(dead_letters) {
            assert!(tone_of(status).is_some(), "{status}");
        }
    }
}
