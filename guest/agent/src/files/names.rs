//! Converts names to text and back. A byte that is not UTF-8 is written `\xHH`, and so is a backslash that would read as
//! the start of such an escape. So every listed name can be used in a request.

use std::fmt::Write;

pub fn to_text(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        let valid = chunk.valid();
        for (at, c) in valid.char_indices() {
            match escape(&valid.as_bytes()[at..]) {
                Some(_) => text.push_str("\\x5c"),
                None => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

pub fn to_bytes(text: &str) -> Vec<u8> {
    let text = text.as_bytes();
    let mut name = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let byte = escape(&text[at..]);
        name.push(byte.unwrap_or(text[at]));
        at += if byte.is_some() { ESCAPE_BYTES } else { 1 };
    }
    name
}

const ESCAPE_BYTES: usize = 4;

/// The byte of an escape at the start of the text: `\x80` to `\xff`, or `\x5c`.
fn escape(text: &[u8]) -> Option<u8> {
    let [b'\\', b'x', high, low, ..] = text else {
        return None;
    };
    let byte = digit(*high)? << 4 | digit(*low)?;
    (byte >= 0x80 || byte == b'\\').then_some(byte)
}

fn digit(c: u8) -> Option<u8> {
    let digit = char::from(c).to_digit(16).filter(|_| !c.is_ascii_uppercase())?;
    Some(digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn only_what_needs_it_is_escaped() {
        for (name, text) in [
            (&b"plain"[..], "plain"),
            ("käse/\u{1f9c0}".as_bytes(), "käse/\u{1f9c0}"),
            (b"a\xffb", "a\\xffb"),
            (b"\xc3(", "\\xc3("),
            (b"a\\b", "a\\b"),
            (b"a\\x5c", "a\\x5cx5c"),
            (b"\\xff", "\\x5cxff"),
            (b"\\xFF", "\\xFF"),
            (b"\\x41", "\\x41"),
            (b"\\\xff", "\\\\xff"),
            (b"line\nbreak", "line\nbreak"),
        ] {
            assert_eq!(to_text(name), text);
            assert_eq!(to_bytes(text), name);
        }
    }

    /// All names of up to six pieces from an alphabet in which every ambiguity can be written.
    #[test]
    fn every_name_comes_back_and_no_two_share_a_text() {
        let pieces: [&[u8]; 9] = [b"\\", b"x", b"5", b"c", b"f", b"8", b"\xff", b"\xc3", b"\xa9"];
        let mut names: Vec<Vec<u8>> = vec![vec![]];
        let mut texts = HashMap::new();
        for _ in 0..6 {
            names = names
                .iter()
                .flat_map(|name| pieces.iter().map(move |piece| [name.as_slice(), piece].concat()))
                .collect();
            for name in &names {
                let text = to_text(name);
                assert_eq!(&to_bytes(&text), name, "{text}");
                let other = texts.insert(text, name.clone());
                assert!(other.is_none_or(|other| &other == name));
            }
        }
    }
}
