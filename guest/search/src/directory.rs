//! Reads the names of one directory in sorted order, with bounded memory.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, OFlags, RawDir, statat};
use rustix::io::Errno;

use crate::pace::Pace;

/// Limit of the names that are returned of one directory.
pub const NAMES: usize = 100_000;
const BUFFER_BYTES: usize = 32 * 1024;
/// Names between two checks of the pace.
const STRIDE: usize = 1024;

pub const READ_DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

#[derive(Debug, PartialEq, Eq)]
pub struct Name {
    pub bytes: Vec<u8>,
    pub kind: FileType,
}

pub struct Names {
    /// The first names in the requested order.
    pub first: Vec<Name>,
    /// Whether names are missing.
    pub is_cut: bool,
}

/// How the names of a directory are sorted.
#[derive(Clone, Copy, PartialEq)]
pub enum Order {
    /// By the bytes of the names.
    Names,
    /// As a walk visits whole paths: a directory `a` counts as `a/` and comes after `a.txt`.
    Paths,
}

/// Returns true for names to leave out.
pub type Hidden = fn(&Name) -> bool;

pub fn read(
    directory: &OwnedFd,
    order: Order,
    is_hidden: Hidden,
    most: usize,
    pace: &Pace,
) -> Result<Names, Errno> {
    let mut sorted = BTreeMap::new();
    let mut is_cut = false;
    let mut seen = 0_usize;
    each(directory, |mut name| {
        if !is_hidden(&name) {
            if order == Order::Paths && name.kind == FileType::Directory {
                name.bytes.push(b'/');
            }
            sorted.insert(name.bytes, name.kind);
        }
        if sorted.len() > most {
            sorted.pop_last();
            is_cut = true;
        }
        seen += 1;
        let is_over = seen % STRIDE == 0 && pace.is_over();
        is_cut |= is_over;
        !is_over
    })?;
    let name = |(mut bytes, kind): (Vec<u8>, FileType)| {
        if bytes.last() == Some(&b'/') {
            bytes.pop();
        }
        Name { bytes, kind }
    };
    Ok(Names { first: sorted.into_iter().map(name).collect(), is_cut })
}

/// Calls `take` for each name, in no particular order, until it returns false.
pub fn each(directory: &OwnedFd, mut take: impl FnMut(Name) -> bool) -> Result<(), Errno> {
    let mut buffer = Vec::with_capacity(BUFFER_BYTES);
    let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let bytes = entry.file_name().to_bytes();
        if bytes == b"." || bytes == b".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => kind_of(directory, bytes),
            kind => kind,
        };
        if !take(Name { bytes: bytes.to_vec(), kind }) {
            break;
        }
    }
    Ok(())
}

fn kind_of(directory: &OwnedFd, name: &[u8]) -> FileType {
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
}
