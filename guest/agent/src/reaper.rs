//! Collects the exit statuses of all children, and passes each to its watcher. PID 1 inherits every orphan, so nothing
//! else in this program waits for children.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use rustix::process::{Pid, WaitOptions, WaitStatus};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

#[derive(Default)]
pub struct Reaper {
    watched: RefCell<HashMap<Pid, Watcher>>,
}

type Watcher = Box<dyn FnOnce(WaitStatus)>;

impl Reaper {
    /// Receives a child's exit code. Must follow the spawn without an await, before the status can be collected.
    pub fn watch(&self, pid: Pid) -> oneshot::Receiver<i32> {
        self.watch_as(pid, exit_code)
    }

    /// As `watch`, but receives the wait status, where a signal is not an exit code.
    pub fn watch_status(&self, pid: Pid) -> oneshot::Receiver<WaitStatus> {
        self.watch_as(pid, |status| status)
    }

    fn watch_as<T: 'static>(&self, pid: Pid, convert: fn(WaitStatus) -> T) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        let watcher = Box::new(move |status| drop(sender.send(convert(status))));
        self.watched.borrow_mut().insert(pid, watcher);
        receiver
    }

    pub fn run(self: Rc<Self>) -> io::Result<impl Future<Output = ()>> {
        let mut ended = signal(SignalKind::child())?;
        Ok(async move {
            loop {
                self.reap_all();
                ended.recv().await;
            }
        })
    }

    fn reap_all(&self) {
        while let Some((pid, status)) = self.next_ended() {
            if let Some(watcher) = self.watched.borrow_mut().remove(&pid) {
                watcher(status);
            }
        }
    }

    #[cfg(not(test))]
    fn next_ended(&self) -> Option<(Pid, WaitStatus)> {
        rustix::process::wait(WaitOptions::NOHANG).ok().flatten()
    }

    /// For tests, which run in parallel in one process: waits for watched children only.
    #[cfg(test)]
    fn next_ended(&self) -> Option<(Pid, WaitStatus)> {
        let ended = |pid| rustix::process::waitpid(Some(pid), WaitOptions::NOHANG).ok().flatten();
        self.watched.borrow().keys().find_map(|pid| ended(*pid))
    }
}

/// The exit code as a shell reports it: 128 + signal for a process ended by a signal.
fn exit_code(status: WaitStatus) -> i32 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 255,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::waitpid;
    use std::process::Command;

    #[test]
    fn exit_codes_count_like_a_shell() {
        for (script, expected) in [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
        {
            #[allow(clippy::zombie_processes, reason = "waited for below")]
            let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            let pid = Pid::from_raw(child.id() as i32);
            let (_, status) = waitpid(pid, WaitOptions::empty()).unwrap().unwrap();
            assert_eq!(exit_code(status), expected, "{script}");
        }
    }
}
