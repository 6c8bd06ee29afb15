//! Opens a new pseudo-terminal.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::fs::{Gid, Uid, fchown};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use tokio::io::unix::AsyncFd;

use crate::sys;

/// Returns the agent's end, which does not block, and the program's end, which belongs to the user.
pub fn open(uid: u32, gid: Option<u32>) -> io::Result<(AsyncFd<Rc<OwnedFd>>, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    rustix::io::ioctl_fionbio(&master, true)?;
    unlockpt(&master)?;
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    fchown(&slave, Some(Uid::from_raw(uid)), gid.map(Gid::from_raw))?;
    Ok((sys::watch(Rc::new(master))?, slave))
}
