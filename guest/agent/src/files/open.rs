//! Opens the objects that `resolve` found: regular files and directories, and never anything else.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::fs::{accessat, fstat, open, openat, openat2};
use rustix::io::Errno;
use search::directory::READ_DIRECTORY;

use super::faults::{Code, Fault};
use super::resolve::{Last, Object, Parents, resolve};
use super::{paths::Path, paths::Workspace};

/// Opens the object by its handle and not by its name, which may mean a FIFO by now.
pub fn regular_file(object: &Object) -> Result<File, Fault> {
    check_regular(object)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(open(own_link(object), flags, Mode::empty())?.into())
}

pub fn check_regular(object: &Object) -> Result<(), Fault> {
    match object.kind() {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(Errno::ISDIR.into()),
        kind => {
            Err(Fault::new(Code::NOT_A_REGULAR_FILE, format!("expected a regular file, got {}", word(kind))))
        }
    }
}

pub fn check_writable(object: &Object) -> Result<(), Errno> {
    accessat(CWD, own_link(object), Access::WRITE_OK, AtFlags::EACCESS)
}

pub fn directory(object: &Object) -> Result<OwnedFd, Fault> {
    match object.kind() {
        FileType::Directory => Ok(openat(&object.fd, ".", READ_DIRECTORY, Mode::empty())?),
        kind => Err(Fault::new(Code::NOT_A_DIRECTORY, format!("expected a directory, got {}", word(kind)))),
    }
}

pub fn existing(workspace: &Workspace, path: &Path) -> Result<Object, Fault> {
    resolve(workspace, path, Last::Follow, Parents::Expect)?.object()
}

/// Whether a link in a path stands for its target, or ends the search for it.
#[derive(Clone, Copy)]
pub enum Links {
    Follow,
    Refuse,
}

/// The object of a path in which no name is a link.
pub fn plain(workspace: &Workspace, path: &Path) -> Result<Object, Fault> {
    let root =
        openat(CWD, &workspace.path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let below = if path.names.is_empty() { b".".to_vec() } else { path.names.join(&b'/') };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let fd = openat2(&root, below.as_slice(), flags, Mode::empty(), within)?;
    Ok(Object { stat: fstat(&fd)?, fd })
}

fn own_link(object: &Object) -> String {
    format!("/proc/self/fd/{}", object.fd.as_raw_fd())
}

fn word(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "something else",
    }
}
