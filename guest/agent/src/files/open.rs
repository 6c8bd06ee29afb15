//! Opens the objects that `resolve` found: regular files and directories, and never anything else.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, accessat, open, openat};
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
