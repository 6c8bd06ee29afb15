//! Visits every name below a directory, in the byte order of the whole paths. Each directory is opened beneath its parent;
//! links are not followed, so there are no loops. Directories that the user may not read are skipped.

use std::os::fd::OwnedFd;
use std::vec::IntoIter;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use crate::directory::{self, Hidden, Name, Order, READ_DIRECTORY};
use crate::pace::Pace;

/// Limit of a path, prefix included: the longest path that a request can name.
pub const PATH_BYTES: usize = 4096;
const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

pub enum Next {
    GoOn,
    Stop,
}

pub struct Found<'a> {
    /// The path below the directory where the walk began.
    pub path: &'a [u8],
    pub name: &'a [u8],
    pub kind: FileType,
    pub parent: &'a OwnedFd,
}

pub trait Visitor {
    /// Whether to walk a directory. `leave` is called after each directory that is walked.
    fn enter(&mut self, name: &[u8]) -> bool;
    fn leave(&mut self);
    /// Called for each name that is not a directory.
    fn visit(&mut self, found: &Found) -> Next;
}

struct Level {
    directory: OwnedFd,
    names: IntoIter<Name>,
    /// Length of the directory's path.
    path_bytes: usize,
}

/// Walks the directory `root`, whose own path has `front` bytes. Returns whether names were left out: too many, too long
/// paths, or too little time. The limit of paths also limits how many directories are open.
pub fn walk(
    root: OwnedFd,
    front: usize,
    is_hidden: Hidden,
    visitor: &mut impl Visitor,
    pace: &Pace,
) -> Result<bool, Errno> {
    let mut path = Vec::new();
    let mut left_out = false;
    let mut levels = vec![level(root, 0, is_hidden, &mut left_out, pace)?];
    while let Some(top) = levels.last_mut() {
        path.truncate(top.path_bytes);
        let Some(Name { bytes, kind }) = top.names.next() else {
            levels.pop();
            if !levels.is_empty() {
                visitor.leave();
            }
            continue;
        };
        if pace.is_over() {
            return Ok(true);
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&bytes);
        if front + 1 + path.len() > PATH_BYTES {
            left_out = true;
        } else if kind != FileType::Directory {
            let found = Found { path: &path, name: &bytes, kind, parent: &top.directory };
            if let Next::Stop = visitor.visit(&found) {
                return Ok(left_out);
            }
        } else if visitor.enter(&bytes) {
            let opened = open_beneath(&top.directory, &bytes, READ_DIRECTORY);
            match opened.and_then(|dir| level(dir, path.len(), is_hidden, &mut left_out, pace)) {
                Ok(level) => levels.push(level),
                Err(_) => visitor.leave(),
            }
        }
    }
    Ok(left_out)
}

fn level(
    directory: OwnedFd,
    path_bytes: usize,
    is_hidden: Hidden,
    left_out: &mut bool,
    pace: &Pace,
) -> Result<Level, Errno> {
    let names = directory::read(&directory, Order::Paths, is_hidden, directory::NAMES, pace)?;
    *left_out |= names.is_cut;
    Ok(Level { directory, names: names.first.into_iter(), path_bytes })
}

pub fn open_beneath(parent: &OwnedFd, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    openat2(parent, name, flags, Mode::empty(), BENEATH)
}
