//! Puts the entries of a layer into the image's root.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::fs::{ftruncate, linkat, mkdirat, openat, symlinkat};
use rustix::io::Errno;

use super::archive::{Entry, Kind};
use super::attributes;
use super::brought::Brought;
use super::fault::Fault;
use super::limits::{LINK_BYTES, Limits};
use super::names::{Mark, mark_of, names_of};
use super::pax::Time;
use super::root::{self, Directory, Root};

/// Bytes that are read and written at once.
const PIECE_BYTES: usize = 128 * 1024;

/// Counts of an image, over all of its layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Totals {
    pub entries: u64,
    /// Bytes of files.
    pub bytes: u64,
    pub inodes: u64,
    /// Devices and FIFOs, which are left out.
    pub skipped: u64,
}

/// One layer while it is put into the root.
pub struct Layer<'a> {
    root: &'a Root,
    limits: &'a Limits,
    totals: &'a mut Totals,
    brought: Brought,
    /// Times of directories, which change with every name in them, so that they are set last.
    times: Vec<(Vec<u8>, Time)>,
    piece: Vec<u8>,
}

impl<'a> Layer<'a> {
    pub fn begin(root: &'a Root, limits: &'a Limits, totals: &'a mut Totals) -> Layer<'a> {
        let brought = Brought::new(limits.names);
        Layer { root, limits, totals, brought, times: Vec::new(), piece: vec![0; PIECE_BYTES] }
    }

    pub fn put(&mut self, entry: &Entry, data: &mut impl Read) -> Result<(), Fault> {
        self.totals.entries += 1;
        self.try_put(entry, data).map_err(|fault| fault.about(&entry.path))
    }

    fn try_put(&mut self, entry: &Entry, data: &mut impl Read) -> Result<(), Fault> {
        let names = names_of(&entry.path)?;
        let Some((name, parents)) = names.split_last() else { return self.put_root(entry) };
        match mark_of(name)? {
            Mark::Plain => {}
            Mark::Ignored => return Ok(()),
            Mark::Opaque => return self.clear(parents, root::empty),
            Mark::Whiteout(hidden) => {
                return self.clear(parents, |parent, brought| root::remove(parent, hidden, Some(brought)));
            }
        }
        if entry.kind == Kind::Special {
            self.totals.skipped += 1;
            return Ok(());
        }
        let parent = self.root.make(parents, &mut self.brought)?;
        match entry.kind {
            Kind::Directory => self.put_directory(&parent, name, entry)?,
            Kind::HardLink => self.put_hard_link(&parent, name, entry)?,
            Kind::SymbolicLink => self.put_symbolic_link(&parent, name, entry)?,
            Kind::File | Kind::Special => self.put_file(&parent, name, entry, data)?,
        }
        self.brought.add(parent.inode, name)
    }

    fn put_root(&mut self, entry: &Entry) -> Result<(), Fault> {
        if entry.kind != Kind::Directory {
            return Err(Fault::invalid("the root of an image is a directory"));
        }
        let root = self.root.directory()?;
        let fd = openat(&root.fd, ".", OFlags::DIRECTORY, Mode::empty())?;
        attributes::set(&fd, entry)?;
        self.times.push((entry.path.clone(), entry.mtime));
        // It counts like any other name: each entry is remembered until the layer's end.
        self.brought.add(root.inode, b".")
    }

    /// Removes something in a directory. One that is missing has nothing to remove, and is not made.
    fn clear(
        &self,
        names: &[&[u8]],
        work: impl FnOnce(&Directory, &Brought) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        match self.root.find(names)? {
            Some(directory) => work(&directory, &self.brought),
            None => Ok(()),
        }
    }

    fn put_directory(&mut self, parent: &Directory, name: &[u8], entry: &Entry) -> Result<(), Fault> {
        if !parent.look(name)?.is_some_and(|found| kind_of(&found) == FileType::Directory) {
            self.make_way(parent, name)?;
            mkdirat(&parent.fd, name, Mode::RWXU)?;
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        attributes::set(&openat(&parent.fd, name, flags, Mode::empty())?, entry)?;
        self.times.push((entry.path.clone(), entry.mtime));
        Ok(())
    }

    fn put_file(
        &mut self,
        parent: &Directory,
        name: &[u8],
        entry: &Entry,
        data: &mut impl Read,
    ) -> Result<(), Fault> {
        self.make_way(parent, name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(&parent.fd, name, flags, Mode::RUSR | Mode::WUSR)?);
        for (offset, length) in &entry.content.parts {
            self.write(&file, *offset, *length, data)?;
        }
        ftruncate(&file, entry.content.size)?;
        let file = OwnedFd::from(file);
        // After the data: a write takes capabilities away.
        attributes::set(&file, entry)?;
        Ok(attributes::set_time(&file, entry.mtime)?)
    }

    /// Zeros stay a hole. The limit is checked before anything is written.
    fn write(&mut self, file: &File, offset: u64, length: u64, data: &mut impl Read) -> Result<(), Fault> {
        self.totals.bytes = self.totals.bytes.saturating_add(length);
        if self.totals.bytes > self.limits.bytes {
            return Err(Fault::too_large("the image's files are over their limit"));
        }
        let end = offset + length;
        let mut at = offset;
        while at < end {
            let most = PIECE_BYTES.min(usize::try_from(end - at).unwrap_or(PIECE_BYTES));
            let piece = &mut self.piece[..most];
            data.read_exact(piece)?;
            if !is_zero(piece) {
                file.write_all_at(piece, at)?;
            }
            at += most as u64;
        }
        Ok(())
    }

    fn put_symbolic_link(&mut self, parent: &Directory, name: &[u8], entry: &Entry) -> Result<(), Fault> {
        if entry.link.is_empty() || entry.link.len() > LINK_BYTES || entry.link.contains(&0) {
            return Err(Fault::invalid("a symbolic link leads to no path"));
        }
        self.make_way(parent, name)?;
        symlinkat(entry.link.as_slice(), &parent.fd, name)?;
        Ok(attributes::set_of_link(&parent.fd, name, entry)?)
    }

    /// The target is looked up before anything is replaced: it may be what is there.
    fn put_hard_link(&mut self, parent: &Directory, name: &[u8], entry: &Entry) -> Result<(), Fault> {
        let missing = || Fault::invalid("a hard link leads to no file of the image");
        let names = names_of(&entry.link)?;
        let (target, target_parents) = names.split_last().ok_or_else(missing)?;
        let target_parent = self.root.find(target_parents)?.ok_or_else(missing)?;
        let found = target_parent.look(target)?.ok_or_else(missing)?;
        if !matches!(kind_of(&found), FileType::RegularFile | FileType::Symlink) {
            return Err(missing());
        }
        if parent.look(name)?.is_some_and(|there| there.st_ino == found.st_ino) {
            return Ok(());
        }
        self.make_way(parent, name)?;
        match linkat(&target_parent.fd, *target, &parent.fd, name, AtFlags::empty()) {
            // It was within what had the name.
            Err(Errno::NOENT) => Err(missing()),
            linked => Ok(linked?),
        }
    }

    /// Removes what has the name of a new object, and counts the object.
    fn make_way(&mut self, parent: &Directory, name: &[u8]) -> Result<(), Fault> {
        self.totals.inodes += 1;
        if self.totals.inodes > self.limits.inodes {
            return Err(Fault::too_large("the image has too many files"));
        }
        root::remove(parent, name, None)
    }

    /// Ends the layer: from now on it is a lower one.
    pub fn finish(self) -> Result<(), Fault> {
        for (path, time) in &self.times {
            let names = names_of(path)?;
            // A later entry may have put something else there.
            if let Some(directory) = self.root.find(&names)? {
                let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
                attributes::set_time(&openat(&directory.fd, ".", flags, Mode::empty())?, *time)?;
            }
        }
        Ok(())
    }
}

fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// By comparing the piece with itself, shifted by a byte, which the library does many bytes at once.
fn is_zero(piece: &[u8]) -> bool {
    piece.first().is_none_or(|first| *first == 0)
        && piece[1.min(piece.len())..] == piece[..piece.len().saturating_sub(1)]
}

#[cfg(test)]
#[path = "entries_test.rs"]
mod tests;
