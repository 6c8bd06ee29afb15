//! One named process: what is told of it, and its logs.

use std::cell::Cell;
use std::path::Path;

use rustix::process::Pid;
use serde::Serialize;
use tokio::sync::{Notify, watch};

use super::log::Log;
use crate::clock;

pub struct Process {
    pub name: String,
    argv: Vec<String>,
    keep_alive: bool,
    pub pid: Option<Pid>,
    started_at_ms: u64,
    end: watch::Sender<Option<End>>,
    pub stdout: Log,
    pub stderr: Log,
    /// The logs say no more.
    is_drained: Cell<bool>,
    /// The logs grew or were drained.
    changed: Notify,
    stop: Notify,
    is_stopping: Cell<bool>,
    pub record_bytes: usize,
}

#[derive(Clone, Copy)]
struct End {
    exit_code: i32,
    ended_at_ms: u64,
}

/// As the host is told of it.
#[derive(Serialize)]
pub struct Told<'a> {
    name: &'a str,
    argv: &'a [String],
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
    pub fn new(room: &Path, name: String, argv: Vec<String>, keep_alive: bool, pid: Option<Pid>) -> Process {
        let log = |stream| Log::new(room.join(format!("{name}.{stream}")));
        let (stdout, stderr) = (log("stdout"), log("stderr"));
        let mut process = Process {
            name,
            argv,
            keep_alive,
            pid,
            started_at_ms: clock::wall_clock_ms(),
            end: watch::Sender::new(None),
            stdout,
            stderr,
            is_drained: Cell::new(false),
            changed: Notify::new(),
            stop: Notify::new(),
            is_stopping: Cell::new(false),
            record_bytes: 0,
        };
        // The end's two numbers come later.
        let record = serde_json::to_vec(&process.told()).map_or(0, |record| record.len());
        process.record_bytes = record + 64;
        process
    }

    pub fn told(&self) -> Told<'_> {
        let end = *self.end.borrow();
        Told {
            name: &self.name,
            argv: &self.argv,
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
        self.is_stopping.set(true);
        self.stop.notify_one();
    }

    pub async fn wait_for_stop(&self) {
        self.stop.notified().await;
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping.get()
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

    /// Exited, and its output is complete.
    pub fn is_over(&self) -> bool {
        self.is_drained.get()
    }

    /// Returns at the next change of the logs. Must follow the look at them without an await between.
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
