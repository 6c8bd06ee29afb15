//! A temporary file in the directory of its target. It gets the target's name when finished, and is removed otherwise.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, fstat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use search::directory::Name;

use crate::credentials::as_root;

const PREFIX: &str = ".vivarium-";
const RANDOM_DIGITS: usize = 16;

/// Whether this may be the name of a temporary file.
pub fn is_name(name: &[u8]) -> bool {
    name.strip_prefix(PREFIX.as_bytes()).is_some_and(|digits| {
        digits.len() == RANDOM_DIGITS && digits.iter().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Whether lists and searches leave this file out.
pub fn is_hidden(name: &Name) -> bool {
    name.kind == FileType::RegularFile && is_name(&name.bytes)
}

pub struct Unfinished {
    parent: OwnedFd,
    name: String,
    pub file: File,
    is_finished: bool,
}

impl Unfinished {
    /// Creates the file for the calling thread's user, who alone can read it until it is finished.
    pub fn create(parent: OwnedFd) -> Result<Unfinished, Errno> {
        let mut random = [0; 8];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let name = format!("{PREFIX}{:0RANDOM_DIGITS$x}", u64::from_ne_bytes(random));
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

    /// Whether the name still means this file: another process may have replaced it.
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
        // As root: the user may have lost the right to remove or find the file.
        as_root(|| {
            if self.has_its_name() {
                let _ = unlinkat(&self.parent, self.name.as_str(), AtFlags::empty());
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::testing::Place;

    #[test]
    fn only_exactly_the_names_it_gives_are_its_names() {
        let place = Place::new();
        for _ in 0..8 {
            let parent = std::fs::File::open(place.path("")).unwrap().into();
            let unfinished = Unfinished::create(parent).unwrap();
            assert!(is_name(unfinished.name.as_bytes()), "{}", unfinished.name);
        }
        for other in [
            "",
            ".vivarium-",
            ".vivarium-0123456789abcde",
            ".vivarium-0123456789abcdef0",
            ".vivarium-0123456789ABCDEF",
            ".vivarium-0123456789abcdeg",
            "vivarium-0123456789abcdef",
            "x.vivarium-0123456789abcdef",
            ".vivarium-0123456789abcdef/",
        ] {
            assert!(!is_name(other.as_bytes()), "{other}");
        }
    }
}
