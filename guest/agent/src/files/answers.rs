//! Counts the bytes of an answer while it is made.

/// Limit of the names of a list or a find. The host takes 32 MiB, framing included.
pub const ANSWER_BYTES: usize = 31 * 1024 * 1024;

/// The bytes left of an answer's limit.
pub struct Budget(usize);

impl Budget {
    pub fn new(bytes: usize) -> Budget {
        Budget(bytes)
    }

    /// Takes the bytes of a string in an array. Returns false if they do not fit.
    pub fn takes(&mut self, text: &str) -> bool {
        self.take(json_bytes(text))
    }

    pub fn take(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// Size of the JSON string with its quotes and a comma.
pub fn json_bytes(text: &str) -> usize {
    let of_byte = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(of_byte).sum::<usize>() + 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_what_the_text_weighs() {
        let all: String = (0..0x250_u32).filter_map(char::from_u32).collect();
        for text in ["", "plain", &all, "\u{7f}\u{1f9c0}\\x80"] {
            assert_eq!(json_bytes(text), serde_json::to_string(text).unwrap().len() + 1);
        }
    }

    #[test]
    fn a_full_answer_takes_no_more() {
        let mut budget = Budget::new(8);
        assert!(budget.takes("abc"));
        assert!(!budget.takes("abc"));
    }
}
