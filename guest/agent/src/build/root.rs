//! The image's root while it is made: opens directories inside of it, makes those that are missing, and removes. Every
//! path is resolved from the root by the kernel, so that links of the image lead nowhere else.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::fs::{fstat, mkdirat, openat, openat2, statat, unlinkat};
use rustix::io::Errno;

use super::brought::Brought;
use super::fault::Fault;
use super::limits::REMOVAL_LEVELS;

const INSIDE: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Mode of a directory that no entry describes.
const DIRECTORY_MODE: u32 = 0o755;
/// Times that a path is resolved again when another process renames something meanwhile.
const RESOLUTIONS: usize = 1000;

pub struct Root(OwnedFd);

/// A directory by its handle, and its inode.
pub struct Directory {
    pub fd: OwnedFd,
    pub inode: u64,
}

impl Directory {
    fn of(fd: OwnedFd) -> Result<Directory, Errno> {
        Ok(Directory { inode: fstat(&fd)?.st_ino, fd })
    }

    /// The object of this name, links not followed. None if there is nothing.
    pub fn look(&self, name: &[u8]) -> Result<Option<Stat>, Errno> {
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// The directory of this name, which is no link.
    pub fn enter(&self, name: &[u8]) -> Result<Directory, Errno> {
        Directory::of(openat(&self.fd, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?)
    }

    fn names(&self) -> Result<Vec<Vec<u8>>, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut names = Vec::new();
        for entry in Dir::new(openat(&self.fd, ".", flags, Mode::empty())?)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(name.to_vec());
            }
        }
        Ok(names)
    }
}

impl Root {
    pub fn open(path: &Path) -> Result<Root, Errno> {
        Ok(Root(openat(CWD, path, DIRECTORY, Mode::empty())?))
    }

    pub fn directory(&self) -> Result<Directory, Errno> {
        Directory::of(self.0.try_clone().map_err(|_| Errno::MFILE)?)
    }

    pub fn is_empty(&self) -> Result<bool, Errno> {
        Ok(self.directory()?.names()?.is_empty())
    }

    /// The directory with these names, if there is one.
    pub fn find(&self, names: &[&[u8]]) -> Result<Option<Directory>, Errno> {
        if names.is_empty() {
            return self.directory().map(Some);
        }
        self.resolve(names, DIRECTORY)?.map(Directory::of).transpose()
    }

    /// The regular file that these names lead to, links followed.
    pub fn find_file(&self, names: &[&[u8]]) -> Result<Option<Stat>, Errno> {
        let found = self.resolve(names, OFlags::PATH | OFlags::CLOEXEC)?.map(fstat).transpose()?;
        Ok(found.filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile))
    }

    /// None if the names lead to nothing.
    fn resolve(&self, names: &[&[u8]], flags: OFlags) -> Result<Option<OwnedFd>, Errno> {
        match self.open_at(&names.join(&b'/'), flags) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            opened => opened.map(Some),
        }
    }

    fn open_at(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = OsStr::from_bytes(path);
        for _ in 1..RESOLUTIONS {
            match openat2(&self.0, path, flags, Mode::empty(), INSIDE) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }

    /// The directory with these names. Whatever is in its place is replaced; a link to a directory is one.
    pub fn make(&self, names: &[&[u8]], brought: &mut Brought) -> Result<Directory, Fault> {
        if let Some(found) = self.find(names)? {
            return Ok(found);
        }
        let mut at = self.directory()?;
        for end in 1..=names.len() {
            at = match self.find(&names[..end])? {
                Some(found) => found,
                None => make_in(&at, names[end - 1], brought)?,
            };
        }
        Ok(at)
    }
}

fn make_in(parent: &Directory, name: &[u8], brought: &mut Brought) -> Result<Directory, Fault> {
    if parent.look(name)?.is_some() {
        unlinkat(&parent.fd, name, AtFlags::empty())?;
    }
    mkdirat(&parent.fd, name, Mode::from_raw_mode(DIRECTORY_MODE))?;
    brought.add(parent.inode, name)?;
    Ok(parent.enter(name)?)
}

/// Removes a name with everything below it, but not what the layer at work has `brought`.
pub fn remove(parent: &Directory, name: &[u8], brought: Option<&Brought>) -> Result<(), Fault> {
    remove_at(parent, name, brought, 0)
}

/// Removes everything in a directory, but not what the layer at work has brought.
pub fn empty(directory: &Directory, brought: &Brought) -> Result<(), Fault> {
    empty_at(directory, Some(brought), 0)
}

fn empty_at(directory: &Directory, brought: Option<&Brought>, level: usize) -> Result<(), Fault> {
    if level > REMOVAL_LEVELS {
        return Err(Fault::too_large("directories are nested too deep to remove them"));
    }
    directory.names()?.iter().try_for_each(|name| remove_at(directory, name, brought, level))
}

fn remove_at(parent: &Directory, name: &[u8], brought: Option<&Brought>, level: usize) -> Result<(), Fault> {
    let Some(stat) = parent.look(name)? else { return Ok(()) };
    let is_kept = brought.is_some_and(|brought| brought.has(parent.inode, name));
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return if is_kept { Ok(()) } else { Ok(unlinkat(&parent.fd, name, AtFlags::empty())?) };
    }
    empty_at(&parent.enter(name)?, brought, level + 1)?;
    if is_kept {
        return Ok(());
    }
    match unlinkat(&parent.fd, name, AtFlags::REMOVEDIR) {
        // Something in it is kept.
        Err(Errno::NOTEMPTY) if brought.is_some() => Ok(()),
        removed => Ok(removed?),
    }
}

/// Removes an empty directory that `mkfs` makes in the root of a file system, and no image has.
pub fn remove_lost_and_found(root: &Root) -> Result<(), Errno> {
    match unlinkat(root.0.as_fd(), "lost+found", AtFlags::REMOVEDIR) {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}
