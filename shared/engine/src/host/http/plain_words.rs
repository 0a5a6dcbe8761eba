//! Pure: messages of parsers in the words of people who send JSON, without names of Rust types.

/// Types as the parser names what it expects, and as clients know them.
const TYPES: [(&str, &str); 16] = [
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u64", "a whole number that is not negative"),
    ("usize", "a whole number that is not negative"),
    ("i8", "a whole number"),
    ("i16", "a whole number"),
    ("i32", "a whole number"),
    ("i64", "a whole number"),
    ("f64", "a number"),
    ("a boolean", "true or false"),
    ("a sequence", "a list"),
    ("a map", "an object"),
    ("map", "an object"),
    ("sequence", "a list"),
    ("unit", "null"),
];

/// Messages of number parsers, and replacements.
const NUMBERS: [(&str, &str); 5] = [
    ("invalid digit found in string", "must be a whole number that is not negative"),
    ("cannot parse integer from empty string", "must be a whole number, and is empty"),
    ("number too large to fit in target type", "is too large a number"),
    ("number too small to fit in target type", "is too small a number"),
    ("invalid float literal", "must be a number"),
];

/// Other phrases of the parser, and replacements.
const PHRASES: [(&str, &str); 11] = [
    ("missing field", "missing member"),
    ("unknown field", "unknown member"),
    ("duplicate field", "repeated member"),
    ("unknown variant", "unknown value"),
    ("invalid type: ", "invalid value: "),
    ("invalid value: integer", "invalid value:"),
    ("invalid value: floating point", "invalid value:"),
    ("invalid value: boolean", "invalid value:"),
    ("invalid value: string", "invalid value:"),
    ("invalid value: map", "invalid value: an object"),
    ("invalid value: sequence", "invalid value: a list"),
];

/// Rewrites a message of serde or of a number parser.
pub(super) fn in_plain_words(message: &str) -> String {
    let mut text = message.to_owned();
    if let Some((before, expected)) = message.split_once(", expected ") {
        // The position in the text follows.
        let (expected, position) =
            expected.find(" at line ").map_or((expected, ""), |at| expected.split_at(at));
        text = format!("{before}, expected {}{position}", expected_type(expected));
    }
    NUMBERS.iter().chain(&PHRASES).fold(text, |text, (parser, plain)| text.replace(parser, plain))
}

fn expected_type(expected: &str) -> String {
    if let Some((_, plain)) = TYPES.iter().find(|(parser, _)| *parser == expected) {
        return (*plain).to_owned();
    }
    let is_object = ["struct ", "tuple struct ", "internally tagged enum ", "adjacently tagged enum "];
    if is_object.iter().any(|prefix| expected.starts_with(prefix)) {
        return "an object".to_owned();
    }
    expected.to_owned()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only the parser's errors matter")]
    struct Parcel {
        sku: String,
        count: u32,
        #[serde(default)]
        labels: Vec<String>,
    }

    #[test]
    fn parser_messages_name_no_rust_types() {
        for (json, message) in [
            ("[]", "invalid length 0, expected an object at line 1 column 2"),
            ("7", "invalid value: `7`, expected an object at line 1 column 1"),
            ("{}", "missing member `sku` at line 1 column 2"),
            (r#"{"sku":7}"#, "invalid value: `7`, expected a string at line 1 column 8"),
            (
                r#"{"sku":"tea","count":-1}"#,
                "invalid value: `-1`, expected a whole number from 0 to 4294967295 at line 1 column 23",
            ),
            (
                r#"{"sku":"tea","count":"2"}"#,
                "invalid value: \"2\", expected a whole number from 0 to 4294967295 at line 1 column 24",
            ),
            (r#"{"labels":{}}"#, "invalid value: an object, expected a list at line 1 column 10"),
            (r#"{"sku":"tea","sku":"tea"}"#, "repeated member `sku` at line 1 column 18"),
            (
                r#"{"colour":1}"#,
                "unknown member `colour`, expected one of `sku`, `count`, `labels` at line 1 column 9",
            ),
        ] {
            let error = serde_json::from_str::<Parcel>(json).expect_err(json);
            assert_eq!(in_plain_words(&error.to_string()), message);
        }
        let number = |text: &str| in_plain_words(&text.parse::<u32>().expect_err(text).to_string());
        assert_eq!(number("-1"), "must be a whole number that is not negative");
        assert_eq!(number("many"), "must be a whole number that is not negative");
        assert_eq!(number("4294967296"), "is too large a number");
    }
}
