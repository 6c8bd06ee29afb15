//! `GET /v1/files/grep`: finds the lines that match a pattern, in one file or in all files below a directory.

use std::cell::Cell;
use std::io::{self, Read};
use std::time::Instant;

use rustix::fs::FileType;
use search::lines::{Ended, Lines, Match};
use search::pace::Pace;
use search::pattern::{Pattern, Search};
use search::walk::{Found, Next, Visitor, walk};
use search::wildcard::Wildcard;
use serde::Serialize;

use super::answers::{Budget, json_bytes};
use super::faults::{Code, Fault};
use super::paths::{Path, Workspace};
use super::query::Query;
use super::resolve::{self, Object};
use super::{find, names, open, unfinished};

const MOST_FILES: u64 = 10_000;
const READ_BYTES: u64 = 256 * 1024 * 1024;
const ANSWER_BYTES: usize = 8 * 1024 * 1024;
const MOST_CONTEXT: u64 = 10;
/// Bytes of JSON around the texts of one match: keys, digits and punctuation.
const FRAME_BYTES: usize = 96;

pub struct Grep {
    pub path: Path,
    pub pattern: String,
    pub is_case_sensitive: bool,
    pub file_pattern: Option<Wildcard>,
    pub exclude_dirs: Vec<Vec<u8>>,
    pub context_lines: usize,
    pub max_results: usize,
}

#[derive(Serialize)]
pub struct GrepMatch {
    pub path: String,
    pub line_number: u64,
    pub line: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Vec<String>>,
}

pub struct GrepResult {
    pub matches: Vec<GrepMatch>,
    pub files_searched: u64,
    pub truncated: bool,
    pub duration_us: u64,
}

impl Grep {
    pub fn parse(workspace: &Workspace, query: &Query) -> Result<Grep, Fault> {
        Ok(Grep {
            path: Path::parse(workspace, &query.text("path")?)?,
            pattern: query.text("pattern")?,
            is_case_sensitive: query.flag("case_sensitive")?,
            file_pattern: query.optional("file_pattern").map(|text| base_names(&text)).transpose()?,
            exclude_dirs: directories(&query.optional("exclude_dirs").unwrap_or_default()),
            context_lines: query.number("context_lines")?.unwrap_or(0).min(MOST_CONTEXT) as usize,
            max_results: query.count("max_results", find::DEFAULT_RESULTS, find::MOST_RESULTS)?,
        })
    }
}

fn base_names(pattern: &str) -> Result<Wildcard, Fault> {
    match pattern.contains('/') {
        true => Err(Fault::new(Code::BAD_PATTERN, "file_pattern: expected a pattern of names, without /")),
        false => Wildcard::parse(pattern)
            .map_err(|bad| Fault::new(Code::BAD_PATTERN, bad.words.replacen("pattern", "file_pattern", 1))),
    }
}

fn directories(list: &str) -> Vec<Vec<u8>> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(names::to_bytes).collect()
}

pub fn grep(workspace: &Workspace, grep: &Grep, pace: &Pace) -> Result<GrepResult, Fault> {
    let began = Instant::now();
    let pattern = Pattern::compile(&grep.pattern, grep.is_case_sensitive)?;
    let place = open::existing(workspace, &grep.path)?;
    let mut hunt = Hunt {
        grep,
        pace,
        search: pattern.search(),
        window: vec![0; pattern.window_bytes()],
        prefix: grep.path.absolute(workspace),
        matches: vec![],
        files: 0,
        files_searched: 0,
        files_matching: 0,
        bytes_left: Cell::new(READ_BYTES),
        budget: Budget::new(ANSWER_BYTES),
        truncated: false,
    };
    if place.is_directory() {
        hunt.truncated |=
            walk(open::directory(&place)?, hunt.prefix.len(), unfinished::is_hidden, &mut hunt, pace)?;
    } else {
        hunt.one_file(&place)?;
    }
    Ok(GrepResult {
        matches: hunt.matches,
        files_searched: hunt.files_searched,
        truncated: hunt.truncated,
        duration_us: began.elapsed().as_micros() as u64,
    })
}

struct Hunt<'a> {
    grep: &'a Grep,
    pace: &'a Pace,
    search: Search<'a>,
    window: Vec<u8>,
    prefix: Vec<u8>,
    matches: Vec<GrepMatch>,
    files: u64,
    files_searched: u64,
    files_matching: usize,
    bytes_left: Cell<u64>,
    budget: Budget,
    truncated: bool,
}

impl Hunt<'_> {
    fn one_file(&mut self, object: &Object) -> Result<(), Fault> {
        let file = open::regular_file(object)?;
        let name = self.grep.path.names.last().map_or(&b""[..], Vec::as_slice);
        if self.is_wanted(name) {
            let path = names::to_text(&self.prefix);
            self.search_file(file, &path);
        }
        Ok(())
    }

    fn is_wanted(&self, name: &[u8]) -> bool {
        self.grep.file_pattern.as_ref().is_none_or(|wildcard| wildcard.matches(name))
    }

    fn search_file(&mut self, file: impl Read, path: &str) -> Next {
        let before = self.matches.len();
        let is_one_too_many = self.files_matching == self.grep.max_results;
        let (matches, budget) = (&mut self.matches, &mut self.budget);
        let with_context = self.grep.context_lines > 0;
        let mut take = |found: Match| {
            let found = shown(found, path, with_context);
            let fits = !is_one_too_many && budget.take(weight(&found));
            if fits {
                matches.push(found);
            }
            fits
        };
        let lines = Lines::new(&mut self.search, self.grep.context_lines, &mut take);
        let metered = Metered { file, bytes_left: &self.bytes_left, pace: self.pace };
        let ended = lines.run(metered, &mut self.window);
        self.files_searched += u64::from(ended != Ended::Binary);
        self.files_matching += usize::from(self.matches.len() > before);
        let is_spent = self.bytes_left.get() == 0 || self.pace.is_over();
        self.truncated |= is_spent || !matches!(ended, Ended::Binary | Ended::Whole { has_cut_line: false });
        if is_spent || ended == Ended::Stopped { Next::Stop } else { Next::GoOn }
    }
}

impl Visitor for Hunt<'_> {
    fn enter(&mut self, name: &[u8]) -> bool {
        !self.grep.exclude_dirs.iter().any(|excluded| excluded == name)
    }

    fn leave(&mut self) {}

    fn visit(&mut self, found: &Found) -> Next {
        if found.kind != FileType::RegularFile || !self.is_wanted(found.name) {
            return Next::GoOn;
        }
        if self.files == MOST_FILES {
            self.truncated = true;
            return Next::Stop;
        }
        self.files += 1;
        // A file that was removed meanwhile, or that the user may not read, is skipped.
        let object = resolve::look(found.parent, found.name).map_err(Fault::from);
        let Ok(file) = object.and_then(|object| open::regular_file(&object)) else {
            return Next::GoOn;
        };
        let path = names::to_text(&[&self.prefix, &b"/"[..], found.path].concat());
        self.search_file(file, &path)
    }
}

fn shown(found: Match, path: &str, with_context: bool) -> GrepMatch {
    GrepMatch {
        path: path.to_owned(),
        line_number: found.line_number,
        line: found.line,
        before: with_context.then_some(found.before),
        after: with_context.then_some(found.after),
    }
}

fn weight(found: &GrepMatch) -> usize {
    let around = [&found.before, &found.after].into_iter().flatten().flatten();
    let texts = around.chain([&found.path, &found.line]);
    texts.map(|text| json_bytes(text)).sum::<usize>() + FRAME_BYTES
}

/// A file that fails to read once the byte limit or the time is used up.
struct Metered<'a, R> {
    file: R,
    bytes_left: &'a Cell<u64>,
    pace: &'a Pace,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.bytes_left.get();
        if left == 0 || self.pace.is_over() {
            return Err(io::Error::other("as much was read as may be"));
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read(&mut buffer[..most])?;
        self.bytes_left.set(left - count as u64);
        Ok(count)
    }
}

#[cfg(test)]
#[path = "grep_test.rs"]
mod tests;
