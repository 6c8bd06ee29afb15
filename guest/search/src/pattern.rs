//! Compiles a pattern for grep. The engine's time is linear in the text, for any pattern. A larger pattern gets a smaller
//! window of text, so that no single search takes long.

use regex_automata::meta::{Cache, Config, Regex};
use regex_automata::nfa::thompson::{Compiler, Config as NfaConfig, WhichCaptures};
use regex_automata::{Input, MatchKind};
use regex_syntax::ParserBuilder;

use crate::BadPattern;
use crate::re2;

const PATTERN_BYTES: usize = 8 * 1024;
/// Limit of the compiled pattern.
const NFA_BYTES: usize = 2 * 1024 * 1024;
/// Limit of the states that the engine caches while it searches.
const DFA_BYTES: usize = 2 * 1024 * 1024;
/// Stack size of a thread that compiles patterns. Only the used part takes memory.
pub const STACK_BYTES: usize = 2 * 1024 * 1024;
/// Limit of nesting, because the engine's compiler is recursive. A group may count up to four times.
const NESTING: u32 = 250;
/// Limit of the states of a pattern times the bytes of its window.
const STEPS: usize = 1 << 26;
const WINDOW_BYTES: std::ops::RangeInclusive<usize> = 16 * 1024..=1024 * 1024;

pub struct Pattern {
    regex: Regex,
    window_bytes: usize,
}

pub struct Search<'a> {
    regex: &'a Regex,
    cache: Cache,
}

impl Pattern {
    pub fn compile(pattern: &str, is_case_sensitive: bool) -> Result<Pattern, BadPattern> {
        if pattern.len() > PATTERN_BYTES {
            return Err(BadPattern::new(format!(
                "expected at most {PATTERN_BYTES} bytes, got {}",
                pattern.len()
            )));
        }
        let translated = re2::translate(pattern).map_err(BadPattern::new)?;
        let hir = ParserBuilder::new()
            .utf8(false)
            .case_insensitive(!is_case_sensitive)
            .nest_limit(NESTING)
            .build()
            .parse(&translated)
            .map_err(|error| BadPattern::new(plain(&error)))?;
        let nfa = NfaConfig::new()
            .utf8(false)
            .which_captures(WhichCaptures::Implicit)
            .nfa_size_limit(Some(NFA_BYTES));
        let nfa = Compiler::new().configure(nfa).build_from_hir(&hir).map_err(too_large)?;
        let states = nfa.states().len().max(1);
        drop(nfa);
        let config = Config::new()
            .utf8_empty(false)
            .match_kind(MatchKind::LeftmostFirst)
            .which_captures(WhichCaptures::Implicit)
            .nfa_size_limit(Some(NFA_BYTES))
            .hybrid_cache_capacity(DFA_BYTES);
        let regex = Regex::builder().configure(config).build_from_hir(&hir).map_err(too_large)?;
        let window_bytes = (STEPS / states).clamp(*WINDOW_BYTES.start(), *WINDOW_BYTES.end());
        Ok(Pattern { regex, window_bytes })
    }

    /// Bytes that one search looks at. A longer line is cut to them.
    pub fn window_bytes(&self) -> usize {
        self.window_bytes
    }

    pub fn search(&self) -> Search<'_> {
        Search { regex: &self.regex, cache: self.regex.create_cache() }
    }
}

impl Search<'_> {
    /// A position in the next line that may match. A line with a carriage return still has to be matched alone.
    pub fn first(&mut self, lines: &[u8], start: usize) -> Option<usize> {
        let input = Input::new(lines).range(start..).earliest(true);
        self.regex.search_half_with(&mut self.cache, &input).map(|found| found.offset())
    }

    pub fn matches(&mut self, line: &[u8]) -> bool {
        self.first(line, 0).is_some()
    }
}

fn too_large(error: impl std::fmt::Display) -> BadPattern {
    BadPattern::new(format!("larger than this machine compiles: {error}"))
}

/// The text of an error without its position, which belongs to the translated pattern.
fn plain(error: &regex_syntax::Error) -> String {
    match error {
        regex_syntax::Error::Parse(error) => error.kind().to_string(),
        regex_syntax::Error::Translate(error) => error.kind().to_string(),
        other => other.to_string(),
    }
}
