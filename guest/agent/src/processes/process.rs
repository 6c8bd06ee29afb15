//! One named process: its record and its logs.

use std::cell::{Cell, Ref, RefCell};
use std::path::Path;

use rustix::process::Pid;
use serde::{Serialize, Serializer};
use tokio::sync::{Notify, watch};

use super::log::Log;
use crate::clock;

/// Bytes of the command, as JSON, that a shortened record keeps.
const SHORT_ARGV_BYTES: usize = 256;
const CUT: char = '…';

pub struct Process {
    pub name: String,
    argv: RefCell<Vec<String>>,
    keep_alive: bool,
    pub pid: Option<Pid>,
    started_at_ms: u64,
    end: watch::Sender<Option<End>>,
    pub stdout: Log,
    pub stderr: Log,
    is_drained: Cell<bool>,
    /// Notified when the logs grew, were completed or were discarded.
    changed: Notify,
    is_stopping: watch::Sender<bool>,
    record_bytes: Cell<usize>,
    is_short: Cell<bool>,
}

#[derive(Clone, Copy)]
struct End {
    exit_code: i32,
    ended_at_ms: u64,
}

/// The record of a process in answers.
#[derive(Serialize)]
pub struct Report<'a> {
    name: &'a str,
    #[serde(serialize_with = "as_list")]
    argv: Ref<'a, Vec<String>>,
    keep_alive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    state: &'static str,
    started_at_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
}

impl Process {
    pub fn new(
        directory: &Path,
        name: String,
        argv: Vec<String>,
        keep_alive: bool,
        pid: Option<Pid>,
    ) -> Process {
        let log = |stream| Log::new(directory.join(format!("{name}.{stream}")));
        let (stdout, stderr) = (log("stdout"), log("stderr"));
        let process = Process {
            name,
            argv: RefCell::new(argv),
            keep_alive,
            pid,
            started_at_ms: clock::wall_clock_ms(),
            end: watch::Sender::new(None),
            stdout,
            stderr,
            is_drained: Cell::new(false),
            changed: Notify::new(),
            is_stopping: watch::Sender::new(false),
            record_bytes: Cell::new(0),
            is_short: Cell::new(false),
        };
        process.weigh();
        process
    }

    pub fn record_bytes(&self) -> usize {
        self.record_bytes.get()
    }

    fn weigh(&self) {
        let record = serde_json::to_vec(&self.report()).map_or(0, |record| record.len());
        // 64 bytes for the two numbers that the end adds.
        self.record_bytes.set(record + 64);
    }

    /// Replaces the command by its beginning, with a mark where it was cut.
    pub fn shorten(&self) {
        if self.is_short.replace(true) {
            return;
        }
        let short = shortened(&self.argv.borrow());
        if let Some(short) = short {
            self.argv.replace(short);
            self.weigh();
        }
    }

    pub fn report(&self) -> Report<'_> {
        let end = *self.end.borrow();
        Report {
            name: &self.name,
            argv: self.argv.borrow(),
            keep_alive: self.keep_alive,
            pid: self.pid.map(|pid| pid.as_raw_nonzero().get()),
            state: if end.is_some() { "exited" } else { "running" },
            started_at_ms: self.started_at_ms,
            ended_at_ms: end.map(|end| end.ended_at_ms),
            exit_code: end.map(|end| end.exit_code),
        }
    }

    pub fn is_running(&self) -> bool {
        self.end.borrow().is_none()
    }

    pub fn ended(&self, exit_code: i32) {
        let ended_at_ms = clock::wall_clock_ms().max(self.started_at_ms);
        self.end.send_replace(Some(End { exit_code, ended_at_ms }));
    }

    pub async fn wait_for_end(&self) {
        let _ = self.end.subscribe().wait_for(Option::is_some).await;
    }

    pub fn stop(&self) {
        self.is_stopping.send_replace(true);
    }

    pub async fn wait_for_stop(&self) {
        let _ = self.is_stopping.subscribe().wait_for(|is_stopping| *is_stopping).await;
    }

    pub fn is_stopping(&self) -> bool {
        *self.is_stopping.borrow()
    }

    pub fn log_grew(&self) {
        self.changed.notify_waiters();
    }

    pub fn drained(&self) {
        self.stdout.close();
        self.stderr.close();
        self.is_drained.set(true);
        self.changed.notify_waiters();
    }

    /// Whether the process has exited and its logs are complete.
    pub fn is_over(&self) -> bool {
        self.is_drained.get()
    }

    /// Returns at the next change of the logs. Must follow the check of the logs without an await between.
    pub async fn next_change(&self) {
        self.changed.notified().await;
    }

    pub fn log_bytes(&self) -> u64 {
        self.stdout.kept() + self.stderr.kept()
    }

    pub fn discard_logs(&self) {
        self.stdout.discard();
        self.stderr.discard();
        self.changed.notify_waiters();
    }
}

fn as_list<S: Serializer>(argv: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    argv.serialize(serializer)
}

/// The beginning of a command; None if the command is short enough.
fn shortened(argv: &[String]) -> Option<Vec<String>> {
    let mut left = SHORT_ARGV_BYTES;
    let mut short = Vec::new();
    for arg in argv {
        // The argument's quotes and comma.
        left = left.saturating_sub(3);
        let fits = prefix(arg, left);
        if left == 0 || fits.len() < arg.len() {
            short.push(format!("{fits}{CUT}"));
            return Some(short);
        }
        left -= arg.chars().map(json_bytes_of).sum::<usize>();
        short.push(arg.clone());
    }
    None
}

fn prefix(arg: &str, mut left: usize) -> &str {
    let end = arg.char_indices().find(|(_, char)| {
        let is_past = json_bytes_of(*char) > left;
        left = left.saturating_sub(json_bytes_of(*char));
        is_past
    });
    &arg[..end.map_or(arg.len(), |(at, _)| at)]
}

/// Upper bound of the bytes that JSON needs for a character.
fn json_bytes_of(char: char) -> usize {
    if char.is_ascii_control() || matches!(char, '"' | '\\') { 6 } else { char.len_utf8() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortened_command_keeps_its_beginning_and_shows_where_it_was_cut() {
        let argv = |args: &[&str]| args.iter().map(|arg| arg.to_string()).collect::<Vec<_>>();
        assert_eq!(shortened(&argv(&["sh", "-c", &"x".repeat(240)])), None);
        let long = shortened(&argv(&["sh", "-c", &"ä".repeat(1_000), "end"])).unwrap();
        assert_eq!(long, argv(&["sh", "-c", &format!("{}…", "ä".repeat(121))]));
        for hostile in [argv(&["\u{1}"; 1_000]), argv(&[""; 1_000]), vec!["\"".repeat(1_000)]] {
            let short = shortened(&hostile).unwrap();
            assert!(serde_json::to_vec(&short).unwrap().len() <= SHORT_ARGV_BYTES + 8, "{short:?}");
        }
    }

    #[test]
    fn a_command_is_shortened_once() {
        let process = Process::new(Path::new("/nowhere"), "x".into(), vec!["x".repeat(1_000)], false, None);
        process.shorten();
        let once = (process.argv.borrow().clone(), process.record_bytes());
        process.shorten();
        assert_eq!((process.argv.borrow().clone(), process.record_bytes()), once);
        assert!(once.0[0].ends_with(CUT) && once.1 < 600);
    }
}
