//! Handles the requests on a session channel (RFC 4254, 6), before and after its program starts.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::rc::Rc;

use rustix::process::{Pid, kill_process_group};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::io::unix::AsyncFd;
use tokio::task::{AbortHandle, spawn_local};

use crate::broken::Broken;
use crate::channel::Channel;
use crate::host::{Host, Task};
use crate::mux::Mux;
use crate::pty::{self, Size};
use crate::wire::Reader;
use crate::{forward, program, signals};

/// Limit of variables, more than clients send.
const VARIABLES: usize = 64;
const VALUE_BYTES: usize = 4096;
/// Name of a forwarded agent's socket in its directory.
const SOCKET: &str = "agent";

pub struct Session {
    channel: Rc<Channel>,
    environment: RefCell<BTreeMap<String, String>>,
    terminal: RefCell<Option<Rc<AsyncFd<Rc<OwnedFd>>>>>,
    /// The program's end of the terminal, until the program starts.
    command_end: RefCell<Option<OwnedFd>>,
    agent: RefCell<Option<Agent>>,
    is_started: Cell<bool>,
    /// The running program.
    pid: Cell<Option<Pid>>,
}

impl Session {
    pub fn new(channel: Rc<Channel>) -> Self {
        Session {
            channel,
            environment: RefCell::default(),
            terminal: RefCell::default(),
            command_end: RefCell::default(),
            agent: RefCell::default(),
            is_started: Cell::new(false),
            pid: Cell::new(None),
        }
    }

    /// Does a request. Returns false for one that is refused.
    pub fn request(
        self: &Rc<Self>,
        mux: &Rc<Mux>,
        name: &[u8],
        details: &mut Reader,
    ) -> Result<bool, Broken> {
        let is_early = !self.is_started.get();
        Ok(match name {
            b"env" if is_early => match (details.text()?, details.text()?) {
                (Some(name), Some(value)) => self.set_variable(name, value),
                _ => false,
            },
            b"pty-req" if is_early => self.open_terminal(mux, details)?,
            b"auth-agent-req@openssh.com" if is_early => self.forward_agent(mux),
            b"shell" if is_early => self.start(mux, Task::Shell),
            b"exec" if is_early => self.start(mux, Task::Command(details.string()?.into())),
            b"subsystem" if is_early => details.string()? == b"sftp" && self.start(mux, Task::Sftp),
            b"window-change" => self.resize(size(details)?),
            b"signal" => details.text()?.is_some_and(|name| self.signal(name)),
            b"eow@openssh.com" => {
                self.channel.receive_unread();
                true
            }
            _ => false,
        })
    }

    fn set_variable(&self, name: &str, value: &str) -> bool {
        let mut environment = self.environment.borrow_mut();
        let fits = environment.len() < VARIABLES && value.len() <= VALUE_BYTES && !value.contains('\0');
        let is_set = fits && may_set(name) && !name.contains('\0');
        if is_set {
            environment.insert(name.into(), value.into());
        }
        is_set
    }

    fn open_terminal(&self, mux: &Mux, details: &mut Reader) -> Result<bool, Broken> {
        let kind = details.text()?;
        let size = size(details)?;
        let modes = details.string()?;
        if !kind.is_some_and(|kind| self.set_variable("TERM", kind)) || self.terminal.borrow().is_some() {
            return Ok(false);
        }
        let opened = mux.host.open_terminal();
        let Some((end, command_end)) = warn(mux, "open a terminal", opened) else { return Ok(false) };
        let set_up = pty::set_up(end.get_ref(), &command_end, size, modes);
        let Some(path) = warn(mux, "set up a terminal", set_up) else { return Ok(false) };
        self.environment.borrow_mut().insert("SSH_TTY".into(), path);
        self.terminal.replace(Some(Rc::new(end)));
        self.command_end.replace(Some(command_end));
        Ok(true)
    }

    fn resize(&self, size: Size) -> bool {
        self.terminal.borrow().as_ref().is_some_and(|end| pty::resize(end.get_ref(), size).is_ok())
    }

    /// Signals the program's process group, as a terminal's keys would.
    fn signal(&self, name: &str) -> bool {
        let (Some(pid), Some(signal)) = (self.pid.get(), signals::named(name)) else { return false };
        kill_process_group(pid, signal).is_ok()
    }

    fn forward_agent(&self, mux: &Rc<Mux>) -> bool {
        let Some(agent) = warn(mux, "forward an agent", Agent::listen(mux)) else { return false };
        self.environment.borrow_mut().insert("SSH_AUTH_SOCK".into(), agent.socket().display().to_string());
        self.agent.replace(Some(agent));
        true
    }

    fn start(self: &Rc<Self>, mux: &Rc<Mux>, task: Task) -> bool {
        let terminal = self.terminal.borrow().clone().zip(self.command_end.take());
        let started = program::start(&*mux.host, &task, &self.environment.borrow(), terminal);
        let Some(program) = warn(mux, "start a program", started) else { return false };
        self.is_started.set(true);
        self.pid.set(Some(program.pid()));
        let session = self.clone();
        spawn_local(async move {
            program.follow(&session.channel, &session.pid).await;
            session.agent.take();
            session.terminal.take();
        });
        true
    }
}

fn warn<T>(mux: &Mux, step: &str, result: std::io::Result<T>) -> Option<T> {
    result.map_err(|error| mux.host.log_failure(step, error)).ok()
}

/// The variables that a client may set: language and terminal.
fn may_set(variable: &str) -> bool {
    matches!(variable, "LANG" | "TERM" | "COLORTERM") || variable.starts_with("LC_")
}

fn size(details: &mut Reader) -> Result<Size, Broken> {
    let size = Size { columns: details.u32()?, rows: details.u32()? };
    // The size in pixels is ignored.
    details.u32()?;
    details.u32()?;
    Ok(size)
}

/// A socket that is forwarded to the client's SSH agent, removed when dropped.
struct Agent {
    directory: PathBuf,
    serving: AbortHandle,
    host: Rc<dyn Host>,
}

impl Agent {
    fn listen(mux: &Rc<Mux>) -> std::io::Result<Agent> {
        let mut random = [0; 8];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let directory = PathBuf::from(format!("/tmp/ssh-{:016x}", u64::from_ne_bytes(random)));
        let host = mux.host.clone();
        host.as_user(&mut || fs::DirBuilder::new().mode(0o700).create(&directory))?;
        let listener = forward::listen_unix(directory.join(SOCKET).as_os_str().as_bytes(), &*host)?;
        let serving = forward::serve_unix(mux.clone(), listener, "auth-agent@openssh.com", None);
        Ok(Agent { serving: spawn_local(serving).abort_handle(), directory, host })
    }

    fn socket(&self) -> PathBuf {
        self.directory.join(SOCKET)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.serving.abort();
        // As the user: the path may have been replaced by a link.
        let _ = self.host.as_user(&mut || {
            fs::remove_file(self.socket())?;
            fs::remove_dir(&self.directory)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_set_their_language_and_terminal_and_nothing_else() {
        assert!(["LANG", "LC_ALL", "TERM", "COLORTERM"].into_iter().all(may_set));
        assert!(!["PATH", "LD_PRELOAD", "LANGUAGE", ""].into_iter().any(may_set));
    }
}
