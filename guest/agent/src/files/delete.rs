//! `DELETE /v1/files`: a link is removed, never its target. A tree is removed from its leaves up, by handles: no link
//! is followed, and no file system boundary is crossed.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, ResolveFlags, openat2, unlinkat};
use rustix::io::Errno;
use search::directory::{self, Name, READ_DIRECTORY};
use search::pace::Pace;

use super::faults::{Code, Fault};
use super::paths::{Path, Workspace};
use super::resolve::{Last, Parents, resolve};
use super::work::Done;

/// Nested directories that are open at a time.
const DEPTH: usize = 4096;
/// Names read at a time, before they go.
const NAMES: usize = 4096;
const WITHIN: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

pub fn delete(workspace: &Workspace, path: &Path, recursive: bool, pace: &Pace) -> Result<Done, Fault> {
    let below = resolve(workspace, path, Last::Keep, Parents::Expect)?.below_root()?;
    let object = below.object.ok_or(Errno::NOENT)?;
    if !object.is_directory() {
        unlinkat(&below.parent, below.name.as_slice(), AtFlags::empty())?;
    } else if recursive {
        remove_tree(&below.parent, below.name, pace)?;
    } else {
        unlinkat(&below.parent, below.name.as_slice(), AtFlags::REMOVEDIR)?;
    }
    Ok(Done {})
}

struct Level {
    directory: OwnedFd,
    name: Vec<u8>,
    below: Vec<Name>,
}

fn remove_tree(parent: &OwnedFd, name: Vec<u8>, pace: &Pace) -> Result<(), Fault> {
    // An empty one need not be readable.
    if unlinkat(parent, name.as_slice(), AtFlags::REMOVEDIR).is_ok() {
        return Ok(());
    }
    let mut levels = vec![open_level(parent, name)?];
    while let Some(depth) = levels.len().checked_sub(1) {
        let top = &mut levels[depth];
        if pace.is_gone() {
            return Err(Fault::new(Code::Internal, "nobody waits for the removal any more"));
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
            return Err(Fault::new(Code::BadPath, format!("more than {DEPTH} directories in each other")));
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

/// Seeks to the start each time: removed names do not come again.
fn some_names(directory: &OwnedFd) -> Result<Vec<Name>, Errno> {
    rustix::fs::seek(directory, rustix::fs::SeekFrom::Start(0))?;
    let mut names = Vec::new();
    directory::each(directory, |name| {
        names.push(name);
        names.len() < NAMES
    })?;
    Ok(names)
}

/// Another process may have removed it first.
fn gone(removed: Result<(), Errno>) -> Result<(), Errno> {
    if removed == Err(Errno::NOENT) { Ok(()) } else { removed }
}

#[cfg(test)]
#[path = "delete_test.rs"]
mod tests;
