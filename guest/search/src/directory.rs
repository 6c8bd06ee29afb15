//! The names of one directory in an order, in bounded memory however many there are.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, OFlags, RawDir, statat};
use rustix::io::Errno;

use crate::pace::Pace;

/// The most names that are shown of one directory.
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
    /// The first ones in their order.
    pub first: Vec<Name>,
    pub is_cut: bool,
}

/// How a directory's names are ordered among each other.
pub type Order = fn(&Name, &Name) -> Ordering;

/// Files that are left out, as if they were not there.
pub type Hidden = fn(&Name) -> bool;

pub fn by_bytes(a: &Name, b: &Name) -> Ordering {
    a.bytes.cmp(&b.bytes)
}

/// The order of whole paths in a walk: the entries of `a/` come after `a.txt`.
pub fn by_path(a: &Name, b: &Name) -> Ordering {
    let path = |name: &Name| (name.kind == FileType::Directory).then_some(b'/');
    let a = a.bytes.iter().copied().chain(path(a));
    a.cmp(b.bytes.iter().copied().chain(path(b)))
}

pub fn read(
    directory: &OwnedFd,
    order: Order,
    is_hidden: Hidden,
    most: usize,
    pace: &Pace,
) -> Result<Names, Errno> {
    let mut heap = BinaryHeap::new();
    let mut is_cut = false;
    let mut seen = 0_usize;
    each(directory, |name| {
        if !is_hidden(&name) {
            heap.push(Ordered { name, order });
        }
        if heap.len() > most {
            heap.pop();
            is_cut = true;
        }
        seen += 1;
        let is_over = seen % STRIDE == 0 && pace.is_over();
        is_cut |= is_over;
        !is_over
    })?;
    let first = heap.into_sorted_vec().into_iter().map(|ordered| ordered.name).collect();
    Ok(Names { first, is_cut })
}

/// In no order, until `take` has enough.
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

struct Ordered {
    name: Name,
    order: Order,
}

impl PartialEq for Ordered {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ordered {}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.order)(&self.name, &other.name)
    }
}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
