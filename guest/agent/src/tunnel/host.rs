//! Implements the SSH server's trait `Host`: one user, whose programs run in a cgroup each.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use ssh::{Failure, Host, HostKey, Later, Started, Streams, Task};
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;

use super::login::Login;
use super::resolve::resolve;
use crate::cgroup::Leaf;
use crate::credentials::{Rights, as_user};
use crate::machine::Machine;
use crate::refusal::plain;
use crate::{launch, log, open_pty, sys};

const NOT_STARTED: u32 = 126;
const NOT_FOUND: u32 = 127;

pub struct Guest {
    pub machine: Rc<Machine>,
    pub login: Login,
    /// Variables of the session.
    pub environment: BTreeMap<String, String>,
    pub has_cgroups: bool,
}

/// The cgroup of one program, released when dropped.
struct Leased {
    machine: Rc<Machine>,
    leaf: Leaf,
}

impl Drop for Leased {
    fn drop(&mut self) {
        self.machine.cgroups.release(&self.leaf);
    }
}

impl Guest {
    fn lease(&self) -> io::Result<Option<Leased>> {
        let lease = || Ok(Leased { leaf: self.machine.cgroups.take_leaf()?, machine: self.machine.clone() });
        self.has_cgroups.then(lease).transpose()
    }
}

impl Host for Guest {
    fn user(&self) -> &str {
        &self.login.name
    }

    fn host_key(&self) -> &HostKey {
        &self.machine.host_key
    }

    fn spawn(
        &self,
        task: &Task,
        variables: &BTreeMap<String, String>,
        streams: &Streams<'_>,
    ) -> io::Result<Started> {
        let environment =
            self.login.environment(self.machine.authority.variables(), &self.environment, variables)?;
        let launch = self.login.launch(task, &environment).ok_or(io::ErrorKind::InvalidInput)?;
        let lease = self.lease()?;
        let fds = sys::ChildFds {
            cgroup: lease.as_ref().map(|lease| lease.leaf.dir.as_fd()),
            stdin: Some(streams.stdin),
            owns_terminal: streams.owns_terminal,
            stdout: streams.stdout,
            stderr: streams.stderr,
        };
        let (pid, mut report) = launch::spawn_on(&launch, &fds)?;
        Ok(Started {
            pid,
            ended: self.machine.reaper.watch_status(pid),
            failure: Box::pin(async move { launch::read_report(&mut report).await.map(explain) }),
            resources: Box::new(lease) as Box<dyn Any>,
        })
    }

    fn open_terminal(&self) -> io::Result<(AsyncFd<Rc<OwnedFd>>, OwnedFd)> {
        // The group stays that of the file system (tty), whose members may write to the terminal.
        open_pty::open(self.login.uid, None)
    }

    fn dial<'a>(&'a self, name: &'a str, port: u16) -> Later<'a, io::Result<TcpStream>> {
        Box::pin(async move {
            let mut failure = io::Error::from(io::ErrorKind::NotFound);
            for address in resolve(name).await? {
                match TcpStream::connect(SocketAddr::new(address, port)).await {
                    Ok(stream) => return Ok(stream),
                    Err(error) => failure = error,
                }
            }
            Err(failure)
        })
    }

    fn as_user(&self, action: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let Login { uid, gid, groups, .. } = &self.login;
        as_user(&Rights::of(*uid, *gid, groups), action)?
    }

    fn log_failure(&self, step: &str, error: io::Error) {
        log::warn(step, Err::<(), _>(error));
    }
}

fn explain(failure: sys::Failure) -> Failure {
    let (exit_code, words) = match failure {
        sys::Failure::Directory(errno) => (NOT_STARTED, format!("its directory: {}", plain(errno))),
        sys::Failure::Setup(errno) => (NOT_STARTED, plain(errno)),
        sys::Failure::Exec(errno) => (NOT_FOUND, plain(errno)),
        sys::Failure::Interpreter(errno, _) => (NOT_FOUND, format!("its interpreter: {}", plain(errno))),
    };
    Failure { exit_code, words: format!("the program cannot be started: {words}\r\n") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Cgroups;
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_socket_of_root_is_not_the_users() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        set_permissions(room.path(), Permissions::from_mode(0o755)).unwrap();
        let machine = Rc::new(Machine::new(Cgroups::of("/nonexistent")).unwrap());
        let login = Login::of_the_user();
        let mut guest = Guest { machine, login, environment: BTreeMap::new(), has_cgroups: false };
        let connect = |guest: &Guest| guest.as_user(&mut || UnixStream::connect(&path).map(drop));
        assert_eq!(connect(&guest).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        (guest.login.uid, guest.login.gid) = (0, 0);
        assert!(connect(&guest).is_ok());
    }
}
