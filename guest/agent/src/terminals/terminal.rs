//! The state of one terminal: its program, its output and its clients.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use rustix::process::{Pid, Signal, getsid, kill_process};
use tokio::sync::{Notify, watch};

use super::backlog::{Backlog, ClientId};
use super::frames;
use super::pty::Pty;
use crate::cgroup::Leaf;

pub struct Terminal {
    pub name: Option<String>,
    pub leaf: Leaf,
    /// The program, which leads the session.
    leader: Pid,
    /// The agent's end. Dropped when the terminal ends, so that a client that does not read cannot keep it open.
    pty: RefCell<Option<Rc<Pty>>>,
    backlog: RefCell<Backlog>,
    end: Cell<Option<End>>,
    /// Notified when there is output, or the end.
    grew: Notify,
    /// Notified when a client read or left.
    was_read: Notify,
    is_hung_up: watch::Sender<bool>,
}

#[derive(Clone, Copy)]
pub enum End {
    Exit(i32),
    Lost,
}

impl Terminal {
    pub fn new(name: Option<String>, leaf: Leaf, leader: Pid, pty: Pty) -> Terminal {
        Terminal {
            backlog: RefCell::new(Backlog::new(name.is_some())),
            name,
            leaf,
            leader,
            pty: RefCell::new(Some(Rc::new(pty))),
            end: Cell::new(None),
            grew: Notify::new(),
            was_read: Notify::new(),
            is_hung_up: watch::Sender::new(false),
        }
    }

    pub fn pty(&self) -> Option<Rc<Pty>> {
        self.pty.borrow().clone()
    }

    pub fn join(&self) -> ClientId {
        self.backlog.borrow_mut().join()
    }

    pub fn leave(&self, client: ClientId) {
        self.backlog.borrow_mut().leave(client);
        self.was_read.notify_waiters();
    }

    pub fn resize(&self, rows: u16, cols: u16) {
        if let Some(pty) = self.pty().filter(|_| rows > 0 && cols > 0) {
            pty.resize(rows, cols);
        }
    }

    pub async fn wait_for_space(&self) {
        while !self.backlog.borrow().has_space() {
            self.was_read.notified().await;
        }
    }

    pub fn push(&self, output: &[u8]) {
        self.backlog.borrow_mut().push(output);
        self.grew.notify_waiters();
    }

    pub fn end(&self, end: End) {
        self.end.set(Some(end));
        self.pty.take();
        self.grew.notify_waiters();
    }

    /// The next frame for a client, and whether it is the last.
    pub async fn next_frame(&self, client: ClientId) -> (Bytes, bool) {
        loop {
            let output = self.backlog.borrow_mut().read(client, crate::frames::PAYLOAD_BYTES);
            if let Some(output) = output {
                self.was_read.notify_waiters();
                return (frames::data(&output), false);
            }
            match self.end.get() {
                Some(End::Exit(code)) => return (frames::exit(code), true),
                Some(End::Lost) => return (frames::error("the program's end was lost"), true),
                None => self.grew.notified().await,
            }
        }
    }

    pub fn ask_to_hang_up(&self) {
        self.is_hung_up.send_replace(true);
    }

    pub fn is_hung_up(&self) -> bool {
        *self.is_hung_up.borrow()
    }

    pub async fn wait_for_hang_up(&self) {
        let _ = self.is_hung_up.subscribe().wait_for(|is_hung_up| *is_hung_up).await;
    }

    /// Sends SIGHUP to all processes of the session. Stopped processes are continued, so that they get it.
    pub fn hang_up(&self) {
        let in_session = |pid: &Pid| getsid(Some(*pid)).is_ok_and(|session| session == self.leader);
        for pid in self.leaf.members().into_iter().filter(in_session) {
            let _ = kill_process(pid, Signal::HUP);
            let _ = kill_process(pid, Signal::CONT);
        }
    }
}
