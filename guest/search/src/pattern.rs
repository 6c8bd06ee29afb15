//! A compiled pattern of grep. The engine takes linear time, whatever the pattern. The window is bounded by the
//! pattern's size, so that no single search takes long.

use regex_automata::meta::{Cache, Config, Regex};
use regex_automata::nfa::thompson::{Compiler, Config as NfaConfig, WhichCaptures};
use regex_automata::{Input, MatchKind};
use regex_syntax::ParserBuilder;

use crate::bad_pattern::BadPattern;
use crate::re2;

const PATTERN_BYTES: usize = 8 * 1024;
const NFA_BYTES: usize = 2 * 1024 * 1024;
const DFA_BYTES: usize = 2 * 1024 * 1024;
/// The stack of a thread that compiles patterns. Only the part that is used costs memory.
pub const STACK_BYTES: usize = 2 * 1024 * 1024;
/// A group counts up to four times. The engine's compiler recurses this deep.
const NESTING: u32 = 250;
/// States times bytes of one look at most.
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
        let nfa = Compiler::new().configure(nfa.utf8(false)).build_from_hir(&hir).map_err(too_large)?;
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

    /// How much of a file is looked at in one go, and of a line at all.
    pub fn window_bytes(&self) -> usize {
        self.window_bytes
    }

    pub fn search(&self) -> Search<'_> {
        Search { regex: &self.regex, cache: self.regex.create_cache() }
    }
}

impl Search<'_> {
    /// A position in the first line, from `start` on, that may match. A line that ends with a carriage return still
    /// has to be checked alone.
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

/// The engine's positions belong to the translated pattern, so only its text is used.
fn plain(error: &regex_syntax::Error) -> String {
    match error {
        regex_syntax::Error::Parse(error) => error.kind().to_string(),
        regex_syntax::Error::Translate(error) => error.kind().to_string(),
        other => other.to_string(),
    }
}
