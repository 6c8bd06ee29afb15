//! A temporary file beside its target, which takes its name when it is finished and else goes away.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, fchmod, fstat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::credentials::as_root;

pub struct Unfinished {
    parent: OwnedFd,
    name: String,
    pub file: File,
    is_finished: bool,
}

impl Unfinished {
    /// Owned by whoever makes it, and nobody else's to read before it is finished.
    pub fn create(parent: OwnedFd) -> Result<Unfinished, Errno> {
        let mut random = [0; 8];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let name = format!(".vivarium-{:016x}", u64::from_ne_bytes(random));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&parent, name.as_str(), flags, Mode::from_raw_mode(0o600))?.into();
        Ok(Unfinished { parent, name, file, is_finished: false })
    }

    pub fn finish(mut self, name: &[u8], mode: u32) -> Result<(), Errno> {
        fchmod(&self.file, Mode::from_raw_mode(mode))?;
        renameat(&self.parent, self.name.as_str(), &self.parent, name)?;
        self.is_finished = true;
        Ok(())
    }

    /// Whether the name still means this file: who may write to the directory may have put another there.
    fn has_its_name(&self) -> bool {
        let (named, own) =
            (statat(&self.parent, self.name.as_str(), AtFlags::SYMLINK_NOFOLLOW), fstat(&self.file));
        matches!((named, own), (Ok(named), Ok(own)) if (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        // The user may have lost the right to remove what was made with it, or to look for it.
        as_root(|| {
            if self.has_its_name() {
                let _ = unlinkat(&self.parent, self.name.as_str(), AtFlags::empty());
            }
        });
    }
}
