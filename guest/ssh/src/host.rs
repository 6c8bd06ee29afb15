//! The trait by which the SSH server uses the machine.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;

use rustix::process::{Pid, WaitStatus};
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::host_key::HostKey;

pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

pub trait Host {
    /// The only user who may log in.
    fn user(&self) -> &str;
    fn host_key(&self) -> &HostKey;
    /// Starts a task as the user. `variables` override the environment that every command of the machine has.
    fn spawn(
        &self,
        task: &Task,
        variables: &BTreeMap<String, String>,
        streams: &Streams<'_>,
    ) -> io::Result<Started>;
    /// Opens a terminal for the user. Returns the server's end, which does not block, and the program's end.
    fn open_terminal(&self) -> io::Result<(AsyncFd<Rc<OwnedFd>>, OwnedFd)>;
    /// Connects to an address or a name, as the machine resolves it.
    fn dial<'a>(&'a self, name: &'a str, port: u16) -> Later<'a, io::Result<TcpStream>>;
    /// Runs `action` on this thread with the user's rights.
    fn as_user(&self, action: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()>;
    /// Logs the error of a step without which the connection still works.
    fn log_failure(&self, step: &str, error: io::Error);
}

pub enum Task {
    Shell,
    /// A command line, which need not be UTF-8.
    Command(Vec<u8>),
    Sftp,
}

pub struct Streams<'a> {
    pub stdin: BorrowedFd<'a>,
    pub stdout: BorrowedFd<'a>,
    pub stderr: BorrowedFd<'a>,
    /// Whether all three are one terminal, which becomes the program's controlling terminal.
    pub owns_terminal: bool,
}

pub struct Started {
    pub pid: Pid,
    pub ended: oneshot::Receiver<WaitStatus>,
    /// Why the program could not be started; None once it runs.
    pub failure: Later<'static, Option<Failure>>,
    /// What the host holds for the program, dropped when its channel has closed.
    pub resources: Box<dyn Any>,
}

pub struct Failure {
    pub exit_code: u32,
    pub words: String,
}
