//! Globs for paths below a directory: names with wildcards, and `**` for any number of directories or, at the end, for
//! everything below. Paths are matched name by name, so that directories where nothing can match are not entered.

use crate::BadPattern;
use crate::wildcard::Wildcard;

const PATTERN_BYTES: usize = 4096;

pub struct Glob(Vec<Segment>);

enum Segment {
    Name(Wildcard),
    AnyDepth,
}

/// Indices of the segments that the next name of a path may match, ascending.
pub type Positions = Vec<usize>;

impl Glob {
    pub fn parse(pattern: &str) -> Result<Glob, BadPattern> {
        let bad = |words: &str| Err(BadPattern::new(words));
        if pattern.is_empty() || pattern.len() > PATTERN_BYTES {
            return bad("expected 1 to 4096 bytes");
        }
        if pattern.starts_with('/') {
            return bad("expected a pattern relative to the path, without / in front");
        }
        if pattern.ends_with('/') {
            return bad("expected a pattern for files, without / at the end");
        }
        let mut segments = Vec::new();
        for part in pattern.split('/').filter(|part| !part.is_empty() && *part != ".") {
            match part {
                "**" if matches!(segments.last(), Some(Segment::AnyDepth)) => {}
                "**" => segments.push(Segment::AnyDepth),
                part => segments.push(Segment::Name(Wildcard::parse(part)?)),
            }
        }
        Ok(Glob(segments))
    }

    /// The leading names of the glob that have no wildcards.
    pub fn literal_start(&self) -> Vec<Vec<u8>> {
        let literal = |segment: &Segment| match segment {
            Segment::Name(wildcard) => wildcard.literal(),
            Segment::AnyDepth => None,
        };
        self.0.iter().map_while(literal).collect()
    }

    pub fn positions_after(&self, literals: usize) -> Positions {
        self.with_skipped(vec![literals])
    }

    /// Whether this segment is the last, which stands for the file itself.
    pub fn ends_with(&self, segment: usize) -> bool {
        segment + 1 == self.0.len()
    }

    pub fn enter(&self, positions: &Positions, name: &[u8]) -> Positions {
        let mut next = Vec::with_capacity(positions.len() + 1);
        for &position in positions {
            match self.0.get(position) {
                Some(Segment::AnyDepth) => next.push(position),
                Some(Segment::Name(wildcard)) if position + 1 < self.0.len() && wildcard.matches(name) => {
                    next.push(position + 1)
                }
                _ => {}
            }
        }
        self.with_skipped(next)
    }

    pub fn matches(&self, positions: &Positions, name: &[u8]) -> bool {
        let last = self.0.len().checked_sub(1);
        positions.iter().filter(|position| Some(**position) == last).any(|position| {
            match &self.0[*position] {
                Segment::AnyDepth => true,
                Segment::Name(wildcard) => wildcard.matches(name),
            }
        })
    }

    /// Adds the segment after each `**` that may stand for no directory, which is any but the last.
    fn with_skipped(&self, positions: Positions) -> Positions {
        let mut all = Vec::with_capacity(positions.len() + 1);
        for position in positions {
            all.push(position);
            if matches!(self.0.get(position), Some(Segment::AnyDepth)) && position + 1 < self.0.len() {
                all.push(position + 1);
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let glob = Glob::parse(pattern).unwrap();
        let mut positions = glob.positions_after(0);
        let mut names: Vec<&[u8]> = path.as_bytes().split(|byte| *byte == b'/').collect();
        let file = names.pop().unwrap();
        for name in names {
            positions = glob.enter(&positions, name);
        }
        glob.matches(&positions, file)
    }

    #[test]
    fn wildcards_stay_within_a_name_and_two_stars_do_not() {
        for (pattern, yes, no) in [
            ("a/b.txt", vec!["a/b.txt"], vec!["b.txt", "a/b.txt/c", "x/a/b.txt"]),
            ("*.txt", vec!["a.txt", ".txt"], vec!["a/b.txt"]),
            ("*/*", vec!["a/b"], vec!["a", "a/b/c"]),
            ("a?b", vec!["axb"], vec!["a/b"]),
            ("a[!x]b", vec!["a-b"], vec!["a/b"]),
            ("a[+-9]b", vec!["a.b"], vec!["a/b"]),
            ("a/**", vec!["a/b", "a/b/c", "a/.b/c"], vec!["a", "ab/c", "b/a/c"]),
            ("**", vec!["a", "a/b/c", ".git/x"], vec![]),
            ("**/x", vec!["x", "a/x", "a/b/x"], vec!["ax", "x/y"]),
            ("a/**/x", vec!["a/x", "a/b/x", "a/b/c/x"], vec!["x", "b/a/x", "a/x/y"]),
            ("**/a/**/b*", vec!["a/b", "x/a/y/z/bb"], vec!["a", "b", "x/b"]),
            ("**/**/x", vec!["x", "a/x"], vec!["a/y"]),
            ("./a//b", vec!["a/b"], vec!["a"]),
            ("a**b", vec!["ab", "axxb"], vec!["a/b"]),
        ] {
            for path in yes {
                assert!(matches(pattern, path), "{pattern} and {path}");
            }
            for path in no {
                assert!(!matches(pattern, path), "{pattern} but {path}");
            }
        }
    }

    #[test]
    fn patterns_that_can_match_no_file_are_refused() {
        for pattern in ["", "/a", "a/", "a/[", &"a".repeat(4097)] {
            assert!(Glob::parse(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn the_literal_start_is_what_needs_no_search() {
        let start = |pattern| Glob::parse(pattern).unwrap().literal_start().join(&b'/');
        assert_eq!(start("a/b/*.c"), b"a/b");
        assert_eq!(start("a/b"), b"a/b");
        assert_eq!(start("a/\\[x]/**"), b"a/[x]");
        assert_eq!(start("**/a"), b"");
    }
}
