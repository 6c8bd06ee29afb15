//! `GET /v1/files/find`: finds the files and links whose paths below a directory match a glob.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::fs::FileType;
use search::directory::READ_DIRECTORY;
use search::glob::{Glob, Positions};
use search::pace::Pace;
use search::walk::{Found, Next, PATH_BYTES, Visitor, open_beneath, walk};

use super::answers::{ANSWER_BYTES, Budget};
use super::faults::Fault;
use super::paths::{Path, Workspace};
use super::query::Query;
use super::{names, open, resolve, unfinished};

pub const DEFAULT_RESULTS: usize = 1000;
pub const MOST_RESULTS: usize = 10_000;
pub const MOST_VISITS: usize = 10_000;

pub struct Find {
    pub path: Path,
    pub glob: Glob,
    pub max_results: usize,
}

pub struct FindResult {
    pub paths: Vec<String>,
    pub truncated: bool,
    pub duration_us: u64,
}

impl Find {
    pub fn parse(workspace: &Workspace, query: &Query) -> Result<Find, Fault> {
        Ok(Find {
            path: Path::parse(workspace, &query.text("path")?)?,
            glob: Glob::parse(&query.text("pattern")?)?,
            max_results: query.count("max_results", DEFAULT_RESULTS, MOST_RESULTS)?,
        })
    }
}

pub fn find(workspace: &Workspace, find: &Find, pace: &Pace) -> Result<FindResult, Fault> {
    let began = Instant::now();
    let root = open::directory(&open::existing(workspace, &find.path)?)?;
    let mut search = Search {
        glob: &find.glob,
        positions: vec![],
        prefix: find.path.absolute(workspace),
        max_results: find.max_results,
        paths: vec![],
        visits: 0,
        budget: Budget::new(ANSWER_BYTES),
        truncated: false,
    };
    search.run(root, pace)?;
    let (paths, truncated) = (search.paths, search.truncated);
    Ok(FindResult { paths, truncated, duration_us: began.elapsed().as_micros() as u64 })
}

struct Search<'a> {
    glob: &'a Glob,
    /// The glob's positions in each directory of the path down to the present one.
    positions: Vec<Positions>,
    prefix: Vec<u8>,
    max_results: usize,
    paths: Vec<String>,
    visits: usize,
    budget: Budget,
    truncated: bool,
}

impl Search<'_> {
    /// Opens the glob's leading names without wildcards directly, and walks the directory below them.
    fn run(&mut self, mut directory: OwnedFd, pace: &Pace) -> Result<(), Fault> {
        let literals = self.glob.literal_start();
        self.positions.push(self.glob.positions_after(literals.len()));
        for (at, name) in literals.iter().enumerate() {
            if self.glob.ends_with(at) {
                self.take_if_there(&directory, name);
                return Ok(());
            }
            // Nothing matches below a name that is no directory, or that the user may not read.
            let Ok(below) = open_beneath(&directory, name, READ_DIRECTORY) else {
                return Ok(());
            };
            directory = below;
            self.prefix.push(b'/');
            self.prefix.extend_from_slice(name);
        }
        self.truncated |= walk(directory, self.prefix.len(), unfinished::is_hidden, self, pace)?;
        Ok(())
    }

    fn take_if_there(&mut self, directory: &OwnedFd, name: &[u8]) {
        let fits = self.prefix.len() + 1 + name.len() <= PATH_BYTES;
        let is_shown = |kind| match kind {
            FileType::Directory => false,
            FileType::RegularFile => !unfinished::is_name(name),
            _ => true,
        };
        if fits && resolve::look(directory, name).is_ok_and(|object| is_shown(object.kind())) {
            self.take(name);
        }
    }

    fn take(&mut self, path: &[u8]) -> Next {
        let text = names::to_text(&[&self.prefix, &b"/"[..], path].concat());
        if self.paths.len() == self.max_results || !self.budget.takes(&text) {
            self.truncated = true;
            return Next::Stop;
        }
        self.paths.push(text);
        Next::GoOn
    }
}

impl Visitor for Search<'_> {
    fn enter(&mut self, name: &[u8]) -> bool {
        let positions = self.glob.enter(self.positions.last().unwrap_or(&vec![]), name);
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
        if self.visits == MOST_VISITS {
            self.truncated = true;
            return Next::Stop;
        }
        self.visits += 1;
        let is_match =
            self.positions.last().is_some_and(|positions| self.glob.matches(positions, found.name));
        if is_match { self.take(found.path) } else { Next::GoOn }
    }
}

#[cfg(test)]
#[path = "find_test.rs"]
mod tests;
