//! Matches one name of a path with `*`, `?` and `[...]`, and `\` before a literal character. Characters are Unicode; a byte
//! that is not UTF-8 counts as one character that no pattern can name. The crate `globset` does not fit: its `?` and classes
//! match bytes, `{a,b}` is an alternation, and it rejects `[\]]`.

use crate::BadPattern;

#[derive(Debug, PartialEq)]
pub struct Wildcard(Vec<Token>);

#[derive(Debug, PartialEq)]
enum Token {
    One(char),
    AnyOne,
    AnyMany,
    Class { ranges: Vec<(char, char)>, is_negated: bool },
}

impl Wildcard {
    pub fn parse(pattern: &str) -> Result<Wildcard, BadPattern> {
        let mut tokens = Vec::new();
        let mut rest = pattern.chars();
        while let Some(c) = rest.next() {
            tokens.push(match c {
                '*' => Token::AnyMany,
                '?' => Token::AnyOne,
                '[' => class(&mut rest)?,
                '\\' => Token::One(rest.next().ok_or_else(|| bad("a character after \\"))?),
                c => Token::One(c),
            });
        }
        // Two `*` in a row match the same as one, and cost more.
        tokens.dedup_by(|a, b| *a == Token::AnyMany && *b == Token::AnyMany);
        Ok(Wildcard(tokens))
    }

    /// The only name that matches, for a pattern without wildcards.
    pub fn literal(&self) -> Option<Vec<u8>> {
        let one = |token: &Token| match token {
            Token::One(c) => Some(*c),
            _ => None,
        };
        Some(self.0.iter().map(one).collect::<Option<String>>()?.into_bytes())
    }

    /// Backtracks to the last `*` only, which is enough: the time is at most the product of both lengths.
    pub fn matches(&self, name: &[u8]) -> bool {
        let name: Vec<char> = String::from_utf8_lossy(name).chars().collect();
        let (mut at, mut token) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        while at < name.len() {
            match self.0.get(token) {
                Some(Token::AnyMany) => {
                    retry = Some((token + 1, at));
                    token += 1;
                }
                Some(one) if one.takes(name[at]) => {
                    token += 1;
                    at += 1;
                }
                _ => match retry {
                    Some((after, from)) => {
                        retry = Some((after, from + 1));
                        (token, at) = (after, from + 1);
                    }
                    None => return false,
                },
            }
        }
        self.0[token..].iter().all(|token| *token == Token::AnyMany)
    }
}

impl Token {
    fn takes(&self, c: char) -> bool {
        match self {
            Token::One(own) => *own == c,
            Token::AnyOne | Token::AnyMany => true,
            Token::Class { ranges, is_negated } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *is_negated
            }
        }
    }
}

/// Parses a class, from behind its `[`. A `]` that comes first is one of its characters.
fn class(rest: &mut std::str::Chars) -> Result<Token, BadPattern> {
    let is_negated = rest.as_str().starts_with(['!', '^']);
    if is_negated {
        rest.next();
    }
    let mut ranges = Vec::new();
    loop {
        if rest.as_str().starts_with(']') && !ranges.is_empty() {
            rest.next();
            return Ok(Token::Class { ranges, is_negated });
        }
        let low = class_character(rest)?;
        let is_range = rest.as_str().starts_with('-') && !rest.as_str().starts_with("-]");
        let high = if is_range {
            rest.next();
            class_character(rest)?
        } else {
            low
        };
        if low > high {
            return Err(bad(&format!("a range that rises, not {low}-{high}")));
        }
        ranges.push((low, high));
    }
}

fn class_character(rest: &mut std::str::Chars) -> Result<char, BadPattern> {
    let c = rest.next().filter(|c| *c != '\\').or_else(|| rest.next());
    c.ok_or_else(|| bad("] at the end of a class"))
}

fn bad(expected: &str) -> BadPattern {
    BadPattern::new(format!("expected {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Wildcard::parse(pattern).unwrap().matches(name.as_bytes())
    }

    #[test]
    fn stars_marks_and_classes_match_characters() {
        for (pattern, yes, no) in [
            ("a", vec!["a"], vec!["", "A", "aa", "b"]),
            ("*", vec!["", "a", ".hidden", "käse"], vec![]),
            ("*.rs", vec![".rs", "a.rs", "a.rs.rs"], vec!["rs", "a.rsx", "a.rs.x"]),
            ("a*b*c", vec!["abc", "a-b-b-c", "abcbc"], vec!["ab", "abcd", "acb"]),
            ("?", vec!["a", "é", "\u{1f9c0}"], vec!["", "ab"]),
            ("[a-c]x", vec!["ax", "cx"], vec!["dx", "x", "-x"]),
            ("[!a-c]", vec!["d", "é"], vec!["a", ""]),
            ("[^a]", vec!["b", "^"], vec!["a"]),
            ("[]a]", vec!["]", "a"], vec!["b"]),
            ("[a-]", vec!["a", "-"], vec!["b"]),
            ("[[]", vec!["["], vec!["a"]),
            ("[\\]]", vec!["]"], vec!["\\"]),
            ("\\*", vec!["*"], vec!["a", "\\*"]),
            ("{a,b}", vec!["{a,b}"], vec!["a"]),
            ("", vec![""], vec!["a"]),
        ] {
            for name in yes {
                assert!(matches(pattern, name), "{pattern} and {name:?}");
            }
            for name in no {
                assert!(!matches(pattern, name), "{pattern} but {name:?}");
            }
        }
    }

    #[test]
    fn a_name_that_is_no_text_matches_by_its_shape() {
        let wildcard = Wildcard::parse("a?b*").unwrap();
        assert!(wildcard.matches(b"a\xffb\xfe"));
        assert!(!wildcard.matches(b"a\xff\xffb"));
    }

    #[test]
    fn unfinished_patterns_are_refused() {
        for pattern in ["[", "[a", "[]", "[!]", "[a-", "\\", "[\\", "[z-a]"] {
            assert!(Wildcard::parse(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn nasty_patterns_end_at_once() {
        let name = "a".repeat(255);
        assert!(!matches(&"*a".repeat(2000), &name));
        assert!(!matches(&("*a".repeat(200) + "b"), &name));
        assert!(matches(&"*".repeat(4000), &name));
    }
}
