//! The one place that waits for children: PID 1 inherits every orphan, so statuses are collected for all processes and
//! handed to whoever watches one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use rustix::process::{Pid, WaitOptions, WaitStatus};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

#[derive(Default)]
pub struct Reaper {
    watched: RefCell<HashMap<Pid, oneshot::Sender<i32>>>,
}

impl Reaper {
    /// Must follow the spawn without an await between, or the status could be collected unwatched.
    pub fn watch(&self, pid: Pid) -> oneshot::Receiver<i32> {
        let (sender, receiver) = oneshot::channel();
        self.watched.borrow_mut().insert(pid, sender);
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
                let _ = watcher.send(exit_code(status));
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

/// As a shell counts: 128 + signal for a command ended by one.
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
