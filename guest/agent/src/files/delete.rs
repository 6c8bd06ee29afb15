//! `DELETE /v1/files`: removes a file, an empty directory or a tree. A tree is removed from its leaves up, by handles of
//! its directories: no link is followed, and no file system boundary is crossed.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, ResolveFlags, openat2, unlinkat};
use rustix::io::Errno;
use search::directory::{self, Name, READ_DIRECTORY};
use search::pace::Pace;

use super::faults::{Code, Fault};
use super::paths::{Path, Workspace};
use super::resolve::{Last, Parents, resolve};

/// Limit of nested directories, which are all open at a time.
const DEPTH: usize = 4096;
/// Names that are read from a directory before they are removed.
const NAMES: usize = 4096;
/// Flags for a directory of the tree: no link, and no other file system.
const WITHIN: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

pub fn delete(workspace: &Workspace, path: &Path, recursive: bool, pace: &Pace) -> Result<(), Fault> {
    let below = resolve(workspace, path, Last::Keep, Parents::Expect)?.below_root()?;
    let object = below.object.ok_or(Errno::NOENT)?;
    if !object.is_directory() {
        unlinkat(&below.parent, below.name.as_slice(), AtFlags::empty())?;
    } else if recursive {
        remove_tree(&below.parent, below.name, pace)?;
    } else {
        unlinkat(&below.parent, below.name.as_slice(), AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

struct Level {
    directory: OwnedFd,
    name: Vec<u8>,
    below: Vec<Name>,
}

fn remove_tree(parent: &OwnedFd, name: Vec<u8>, pace: &Pace) -> Result<(), Fault> {
    // An empty directory is removed without being read: the user may not read it.
    if unlinkat(parent, name.as_slice(), AtFlags::REMOVEDIR).is_ok() {
        return Ok(());
    }
    let mut levels = vec![open_level(parent, name)?];
    while let Some(depth) = levels.len().checked_sub(1) {
        let top = &mut levels[depth];
        if pace.is_gone() {
            return Err(Fault::new(Code::INTERNAL, "nobody waits for the removal any more"));
        }
        if top.below.is_empty() {
            top.below = some_names(&top.directory)?;
        }
        let Some(next) = top.below.pop() else {
            remove_empty(parent, &mut levels)?;
            continue;
        };
        if next.kind != FileType::Directory {
            gone(unlinkat(&top.directory, next.bytes.as_slice(), AtFlags::empty()))?;
        } else if depth + 1 == DEPTH {
            return Err(Fault::new(Code::BAD_PATH, format!("more than {DEPTH} directories in each other")));
        } else if unlinkat(&top.directory, next.bytes.as_slice(), AtFlags::REMOVEDIR).is_err() {
            let below = open_level(&top.directory, next.bytes)?;
            levels.push(below);
        }
    }
    Ok(())
}

fn remove_empty(parent: &OwnedFd, levels: &mut Vec<Level>) -> Result<(), Errno> {
    let Some(Level { name, .. }) = levels.pop() else {
        return Ok(());
    };
    let above = levels.last().map_or(parent, |level| &level.directory);
    gone(unlinkat(above, name.as_slice(), AtFlags::REMOVEDIR))
}

fn open_level(parent: &OwnedFd, name: Vec<u8>) -> Result<Level, Errno> {
    let directory = openat2(parent, name.as_slice(), READ_DIRECTORY, Mode::empty(), WITHIN)?;
    Ok(Level { below: some_names(&directory)?, directory, name })
}

/// The next names of a directory, read from its start: the names before have been removed.
fn some_names(directory: &OwnedFd) -> Result<Vec<Name>, Errno> {
    rustix::fs::seek(directory, rustix::fs::SeekFrom::Start(0))?;
    let mut names = Vec::new();
    directory::each(directory, |name| {
        names.push(name);
        names.len() < NAMES
    })?;
    Ok(names)
}

/// Accepts that another process has removed the name first.
fn gone(removed: Result<(), Errno>) -> Result<(), Errno> {
    if removed == Err(Errno::NOENT) { Ok(()) } else { removed }
}

#[cfg(test)]
#[path = "delete_test.rs"]
mod tests;
