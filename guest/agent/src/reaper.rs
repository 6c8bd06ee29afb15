//! The only place that waits for children. PID 1 inherits every orphan, so statuses are collected for all processes
//! and passed to the watcher of each.

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
    /// Must follow the spawn without an await between, or the status could be collected unwatched.
    pub fn watch(&self, pid: Pid) -> oneshot::Receiver<i32> {
        self.watch_as(pid, exit_code)
    }

    /// As `watch`, for those to whom a signal is not an exit code.
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

    /// Tests run beside each other in one process: each leaves the others' children alone.
    #[cfg(test)]
    fn next_ended(&self) -> Option<(Pid, WaitStatus)> {
        let ended = |pid| rustix::process::waitpid(Some(pid), WaitOptions::NOHANG).ok().flatten();
        self.watched.borrow().keys().find_map(|pid| ended(*pid))
    }
}

/// Like a shell: 128 + signal for a command ended by a signal.
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
