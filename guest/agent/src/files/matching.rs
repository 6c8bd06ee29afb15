//! `GET /v1/files/match`: finds the regular files below the workspace whose paths match a glob, with their sizes. No link
//! is followed, and none is found.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::fs::FileType;
use search::directory::READ_DIRECTORY;
use search::glob::{Glob, Positions};
use search::pace::Pace;
use search::walk::{Found, Next, PATH_BYTES, Visitor, open_beneath, walk};
use serde::Serialize;

use super::answers::{ANSWER_BYTES, Budget};
use super::faults::Fault;
use super::paths::{Path, Workspace};
use super::query::Query;
use super::{names, open, resolve, unfinished};

/// Bytes of JSON around the path of one file: keys, punctuation, and the size.
const FRAME_BYTES: usize = 48;
pub const MOST_FILES: usize = 10_001;

pub struct Match {
    pub glob: Glob,
    pub max_results: usize,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct MatchedFile {
    /// Below the workspace.
    pub path: String,
    pub bytes: u64,
}

pub struct MatchResult {
    pub files: Vec<MatchedFile>,
    pub truncated: bool,
    pub duration_us: u64,
}

impl Match {
    pub fn parse(query: &Query) -> Result<Match, Fault> {
        Ok(Match {
            glob: Glob::parse(&query.text("pattern")?)?,
            max_results: query.count("max_results", MOST_FILES, MOST_FILES)?,
        })
    }
}

pub fn match_files(workspace: &Workspace, wanted: &Match, pace: &Pace) -> Result<MatchResult, Fault> {
    let began = Instant::now();
    let mut directory = open::directory(&open::existing(workspace, &Path { names: vec![] })?)?;
    let mut search = Search {
        wanted,
        positions: vec![],
        prefix: vec![],
        files: vec![],
        truncated: false,
        budget: Budget::new(ANSWER_BYTES),
    };
    let literals = wanted.glob.literal_start();
    search.positions.push(wanted.glob.positions_after(literals.len()));
    let mut is_walked = true;
    for (at, name) in literals.iter().enumerate() {
        if wanted.glob.ends_with(at) {
            search.look_at(&directory, &[], name);
            is_walked = false;
            break;
        }
        // Nothing matches below a name that is no directory, or that the user may not read.
        let Ok(below) = open_beneath(&directory, name, READ_DIRECTORY) else {
            is_walked = false;
            break;
        };
        directory = below;
        search.prefix.extend_from_slice(name);
        search.prefix.push(b'/');
    }
    if is_walked {
        let front = workspace.text().len() + 1 + search.prefix.len();
        search.truncated |= walk(directory, front, unfinished::is_hidden, &mut search, pace)?;
    }
    let (files, truncated) = (search.files, search.truncated);
    Ok(MatchResult { files, truncated, duration_us: began.elapsed().as_micros() as u64 })
}

struct Search<'a> {
    wanted: &'a Match,
    /// The glob's positions in each directory of the path down to the present one.
    positions: Vec<Positions>,
    /// The glob's leading names, each with a slash.
    prefix: Vec<u8>,
    files: Vec<MatchedFile>,
    truncated: bool,
    budget: Budget,
}

impl Search<'_> {
    /// Takes a name if it is a regular file. A file that has gone meanwhile is left out.
    fn look_at(&mut self, parent: &OwnedFd, below: &[u8], name: &[u8]) -> Next {
        let Ok(object) = resolve::look(parent, name) else {
            return Next::GoOn;
        };
        if object.kind() != FileType::RegularFile || unfinished::is_name(name) {
            return Next::GoOn;
        }
        let path = [&self.prefix, below, name].concat();
        if path.len() > PATH_BYTES {
            self.truncated = true;
            return Next::GoOn;
        }
        let path = names::to_text(&path);
        if self.files.len() == self.wanted.max_results
            || !self.budget.take(FRAME_BYTES)
            || !self.budget.takes(&path)
        {
            self.truncated = true;
            return Next::Stop;
        }
        self.files.push(MatchedFile { path, bytes: object.stat.st_size as u64 });
        Next::GoOn
    }
}

impl Visitor for Search<'_> {
    fn enter(&mut self, name: &[u8]) -> bool {
        let positions = self.wanted.glob.enter(self.positions.last().unwrap_or(&vec![]), name);
        let is_possible = !positions.is_empty();
        if is_possible {
            self.positions.push(positions);
        }
        is_possible
    }

    fn leave(&mut self) {
        self.positions.pop();
    }

    fn visit(&mut self, found: &Found) -> Next {
        let glob = &self.wanted.glob;
        let is_match = self.positions.last().is_some_and(|positions| glob.matches(positions, found.name));
        if !is_match || found.kind == FileType::Symlink {
            return Next::GoOn;
        }
        let below = &found.path[..found.path.len() - found.name.len()];
        self.look_at(found.parent, below, found.name)
    }
}

#[cfg(test)]
#[path = "matching_test.rs"]
mod tests;
