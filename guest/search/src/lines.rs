//! Finds the matching lines of one file, with lines of context. Memory does not grow with the file or its lines.

use std::collections::VecDeque;
use std::io::{self, Read};

use memchr::{memchr, memchr_iter, memrchr};

use crate::pattern::Search;

/// Limit of a line in an answer; the rest is cut.
const SHOWN_BYTES: usize = 4096;
/// Bytes at the beginning of a file that are searched for a NUL.
const SEARCHED_FOR_NUL: usize = 8 * 1024;

#[derive(Debug, PartialEq)]
pub struct Match {
    pub line_number: u64,
    pub line: String,
    pub before: Vec<String>,
    pub after: Vec<String>,
}

#[derive(Debug, PartialEq)]
pub enum Ended {
    /// The file has a NUL near its beginning, so it is not text and was not searched.
    Binary,
    /// The whole file was searched; some line may have been longer than the window.
    Whole { has_cut_line: bool },
    /// `take` returned false.
    Stopped,
}

pub struct Lines<'a, 'b> {
    search: &'a mut Search<'b>,
    context: usize,
    /// Number of the line that was read last.
    number: u64,
    /// The last lines, as context of a match that may come.
    before: VecDeque<String>,
    /// Matches whose context after them is incomplete, oldest first.
    waiting: VecDeque<Match>,
    take: &'a mut dyn FnMut(Match) -> bool,
    is_stopped: bool,
    has_cut_line: bool,
}

impl<'a, 'b> Lines<'a, 'b> {
    /// `take` gets the matches in the order of their lines, and returns whether it wants more.
    pub fn new(search: &'a mut Search<'b>, context: usize, take: &'a mut dyn FnMut(Match) -> bool) -> Self {
        Lines {
            search,
            context,
            number: 0,
            before: VecDeque::new(),
            waiting: VecDeque::new(),
            take,
            is_stopped: false,
            has_cut_line: false,
        }
    }

    /// Searches a file. The window is the limit of a line. A failed read ends the file before the incomplete line.
    pub fn run(mut self, file: impl Read, window: &mut [u8]) -> Ended {
        let mut source = Source { file, is_broken: false };
        let mut filled = source.fill(window, 0);
        if memchr(0, &window[..filled.min(SEARCHED_FOR_NUL)]).is_some() {
            return Ended::Binary;
        }
        while filled > 0 && !self.is_stopped {
            let kept = match memrchr(b'\n', &window[..filled]) {
                Some(last) => {
                    self.lines(&window[..=last]);
                    window.copy_within(last + 1..filled, 0);
                    filled - last - 1
                }
                None if source.is_broken => break,
                None => {
                    self.line(&window[..filled], false);
                    self.has_cut_line |= filled == window.len();
                    if filled < window.len() { 0 } else { source.skip_line(window) }
                }
            };
            filled = source.fill(window, kept);
        }
        while let Some(waiting) = self.waiting.pop_front() {
            self.deliver(waiting);
        }
        match self.is_stopped {
            true => Ended::Stopped,
            false => Ended::Whole { has_cut_line: self.has_cut_line },
        }
    }

    /// Handles complete lines, each with its newline. The engine finds the next line that may match.
    fn lines(&mut self, lines: &[u8]) {
        let mut at = 0;
        while at < lines.len() && !self.is_stopped {
            let found = self.search.first(lines, at).filter(|found| *found < lines.len());
            let Some(found) = found else {
                return self.pass(&lines[at..]);
            };
            let start = memrchr(b'\n', &lines[at..found]).map_or(at, |newline| at + newline + 1);
            let end = memchr(b'\n', &lines[found..]).map_or(lines.len(), |newline| found + newline);
            self.pass(&lines[at..start]);
            self.line(&lines[start..end], true);
            at = end + 1;
        }
    }

    /// Counts lines that do not match, and shows them as context.
    fn pass(&mut self, lines: &[u8]) {
        if self.context == 0 {
            self.number += memchr_iter(b'\n', lines).count() as u64;
            return;
        }
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            self.number += 1;
            self.show(line.strip_suffix(b"\n").unwrap_or(line));
        }
    }

    /// Handles one line without its newline. A line found by `first` still has to match without its carriage return.
    fn line(&mut self, line: &[u8], is_found: bool) {
        self.number += 1;
        let text = line.strip_suffix(b"\r").unwrap_or(line);
        let is_match = is_found && text.len() == line.len() || self.search.matches(text);
        let before = self.before.iter().cloned().collect();
        let shown = self.show(line);
        if is_match {
            let (line_number, line) = (self.number, shown.unwrap_or_else(|| text_of(text)));
            self.waiting.push_back(Match { line_number, line, before, after: vec![] });
            if self.context == 0 {
                self.deliver_complete();
            }
        }
    }

    /// Adds a line to the context of the matches before it, and of a match that may come. None without context.
    fn show(&mut self, line: &[u8]) -> Option<String> {
        if self.context == 0 {
            return None;
        }
        let text = text_of(line.strip_suffix(b"\r").unwrap_or(line));
        for waiting in &mut self.waiting {
            waiting.after.push(text.clone());
        }
        self.deliver_complete();
        self.before.push_back(text.clone());
        if self.before.len() > self.context {
            self.before.pop_front();
        }
        Some(text)
    }

    fn deliver_complete(&mut self) {
        while self.waiting.front().is_some_and(|oldest| oldest.after.len() == self.context) {
            if let Some(oldest) = self.waiting.pop_front() {
                self.deliver(oldest);
            }
        }
    }

    fn deliver(&mut self, found: Match) {
        if !self.is_stopped {
            self.is_stopped = !(self.take)(found);
        }
    }
}

struct Source<R> {
    file: R,
    is_broken: bool,
}

impl<R: Read> Source<R> {
    /// Reads behind the `filled` bytes until the window is full or the file ends.
    fn fill(&mut self, window: &mut [u8], mut filled: usize) -> usize {
        while filled < window.len() && !self.is_broken {
            match self.file.read(&mut window[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.is_broken = true,
            }
        }
        filled
    }

    /// Skips the rest of a line. Returns the number of bytes read behind it, which are at the window's front.
    fn skip_line(&mut self, window: &mut [u8]) -> usize {
        loop {
            let filled = self.fill(window, 0);
            match memchr(b'\n', &window[..filled]) {
                Some(newline) => {
                    window.copy_within(newline + 1..filled, 0);
                    return filled - newline - 1;
                }
                None if filled < window.len() => return 0,
                None => {}
            }
        }
    }
}

/// The part of a line that an answer shows, cut between two characters.
fn text_of(line: &[u8]) -> String {
    // 3 more bytes complete a character that begins within the limit.
    let head = &line[..line.len().min(SHOWN_BYTES + 3)];
    let mut text = String::from_utf8_lossy(head).into_owned();
    while text.len() > SHOWN_BYTES {
        text.pop();
    }
    text
}

#[cfg(test)]
#[path = "lines_test.rs"]
mod tests;
