//! The table of named processes, in memory.

use std::cell::RefCell;
use std::collections::HashSet;
use std::path::PathBuf;
use std::rc::Rc;

use hyper::StatusCode;

use super::process::Process;
use crate::refusal::Refusal;

const DIRECTORY: &str = "/var/lib/vivarium/processes";
pub const RUNNING: usize = 32;
/// Limit of entries. Past it the exited processes that began first are removed; others stay until their name is reused.
pub const ENTRIES: usize = 10_000;
/// Limit of all records, as JSON. Past it the exited processes that began first keep only the beginning of their command.
/// A list of `ENTRIES` shortened records and this many bytes fits into an answer.
const RECORDS_BYTES: usize = 8 * 1024 * 1024;
/// Limit of the logs of exited processes. Past it the processes that began first lose their logs and keep their record.
const EXITED_LOGS_BYTES: u64 = 1024 * 1024 * 1024;

pub struct Processes {
    /// The directory of the logs.
    pub directory: PathBuf,
    /// Running and exited processes, in the order of their start.
    pub entries: RefCell<Vec<Rc<Process>>>,
    /// Names of processes that are being started.
    starting: RefCell<HashSet<String>>,
}

/// Reserves a name and a place among the running processes until it is dropped, while the process is being started.
pub struct Reservation<'a> {
    processes: &'a Processes,
    name: String,
}

impl Default for Processes {
    fn default() -> Self {
        Processes::below(DIRECTORY)
    }
}

impl Processes {
    pub fn below(directory: impl Into<PathBuf>) -> Processes {
        Processes { directory: directory.into(), entries: RefCell::default(), starting: RefCell::default() }
    }

    /// Removes logs that are on the disk at boot: their processes are not in the table.
    pub fn forget_old_logs(&self) -> std::io::Result<()> {
        match std::fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub fn find(&self, name: &str) -> Result<Rc<Process>, Refusal> {
        let entries = self.entries.borrow();
        entries.iter().find(|process| process.name == name).cloned().ok_or_else(|| {
            let message = format!("no process is named {name:?}; list the processes for their names");
            Refusal::new(StatusCode::NOT_FOUND, "process_not_found", message)
        })
    }

    pub fn reserve(&self, name: &str, argv: &[String]) -> Result<Reservation<'_>, Refusal> {
        let conflict = |code, message| Err(Refusal::new(StatusCode::CONFLICT, code, message));
        let is_running = self.find(name).is_ok_and(|process| process.is_running());
        let mut starting = self.starting.borrow_mut();
        if is_running || starting.contains(name) {
            let message = format!("name: a process named {name:?} is running; stop it or use another name");
            return conflict("process_exists", message);
        }
        let entries = self.entries.borrow();
        let running = || entries.iter().filter(|process| process.is_running());
        if running().count() + starting.len() >= RUNNING {
            let message = format!("{RUNNING} named processes are running, the most there may be; stop one");
            return conflict("process_limit", message);
        }
        let bytes: usize = argv.iter().map(String::len).sum();
        if running().map(|process| process.record_bytes()).sum::<usize>() + bytes > RECORDS_BYTES {
            let message =
                format!("argv: those of the running processes take {RECORDS_BYTES} bytes; stop one");
            return conflict("process_limit", message);
        }
        starting.insert(name.to_owned());
        Ok(Reservation { processes: self, name: name.to_owned() })
    }

    pub fn add(&self, process: Rc<Process>) {
        self.forget(|entries| entries.iter().position(|entry| entry.name == process.name));
        let oldest_exited = |entries: &[Rc<Process>]| {
            entries.iter().position(|entry| !entry.is_running()).filter(|_| entries.len() >= ENTRIES)
        };
        while self.forget(oldest_exited) {}
        self.entries.borrow_mut().push(process);
        self.bound_records();
    }

    fn bound_records(&self) {
        let entries = self.entries.borrow();
        let mut bytes: usize = entries.iter().map(|entry| entry.record_bytes()).sum();
        for process in entries.iter().filter(|entry| !entry.is_running()) {
            if bytes <= RECORDS_BYTES {
                return;
            }
            bytes -= process.record_bytes();
            process.shorten();
            bytes += process.record_bytes();
        }
    }

    fn forget(&self, which: impl Fn(&[Rc<Process>]) -> Option<usize>) -> bool {
        let mut entries = self.entries.borrow_mut();
        let found = which(&entries);
        if let Some(at) = found {
            entries.remove(at).discard_logs();
        }
        found.is_some()
    }

    pub fn bound_logs(&self) {
        let entries = self.entries.borrow();
        let exited = || entries.iter().filter(|entry| entry.is_over());
        let mut bytes: u64 = exited().map(|entry| entry.log_bytes()).sum();
        for process in exited() {
            if bytes <= EXITED_LOGS_BYTES {
                return;
            }
            bytes -= process.log_bytes();
            process.discard_logs();
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.processes.starting.borrow_mut().remove(&self.name);
    }
}
