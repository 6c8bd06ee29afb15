//! File operations, each of one or two system calls.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::fs::{Gid, Uid, chownat, futimens, renameat_with, utimensat};

use crate::broken::Broken;
use crate::sftp::attributes::Wanted;
use crate::wire::Reader;

const READ: u32 = 1;
const WRITE: u32 = 2;
const APPEND: u32 = 4;
const CREATE: u32 = 8;
const TRUNCATE: u32 = 16;
const EXCLUSIVE: u32 = 32;

pub fn path<'a>(request: &mut Reader<'a>) -> Result<&'a Path, Broken> {
    request.string().map(path_of)
}

pub fn path_of(bytes: &[u8]) -> &Path {
    // An empty path is the working directory.
    Path::new(if bytes.is_empty() { OsStr::new(".") } else { OsStr::from_bytes(bytes) })
}

pub fn open(path: &Path, how: u32, wanted: &Wanted) -> io::Result<File> {
    let access = match (how & READ != 0, how & WRITE != 0) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    };
    let more = [
        (APPEND, OFlags::APPEND),
        (CREATE, OFlags::CREATE),
        (TRUNCATE, OFlags::TRUNC),
        (EXCLUSIVE, OFlags::EXCL),
    ];
    let more = more.into_iter().filter(|(asked, _)| how & asked != 0);
    // NONBLOCK: a FIFO without its other end must not block the server.
    let always = access | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let flags = more.fold(always, |flags, (_, flag)| flags | flag);
    let mode = Mode::from_raw_mode(wanted.permissions.unwrap_or(0o666));
    Ok(rustix::fs::open(path, flags, mode)?.into())
}

pub fn set(path: &Path, wanted: &Wanted) -> io::Result<()> {
    set_at(path, wanted, AtFlags::empty())
}

fn set_at(path: &Path, wanted: &Wanted, flags: AtFlags) -> io::Result<()> {
    if let Some(size) = wanted.size {
        File::options().write(true).open(path)?.set_len(size)?;
    }
    if let Some(mode) = wanted.permissions {
        fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    if let Some(times) = wanted.times {
        utimensat(CWD, path, &timestamps(times), flags)?;
    }
    if let Some((uid, gid)) = wanted.ids {
        chownat(CWD, path, Some(Uid::from_raw_unchecked(uid)), Some(Gid::from_raw_unchecked(gid)), flags)?;
    }
    Ok(())
}

/// Sets attributes of a link itself, which has no permissions and no size that can be set.
pub fn set_link(path: &Path, wanted: &Wanted) -> io::Result<()> {
    if wanted.size.is_some() || wanted.permissions.is_some() && fs::symlink_metadata(path)?.is_symlink() {
        return Err(rustix::io::Errno::OPNOTSUPP.into());
    }
    set_at(path, wanted, AtFlags::SYMLINK_NOFOLLOW)
}

pub fn set_open(file: &File, wanted: &Wanted) -> io::Result<()> {
    if let Some(size) = wanted.size {
        file.set_len(size)?;
    }
    if let Some(mode) = wanted.permissions {
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    if let Some(times) = wanted.times {
        futimens(file, &timestamps(times))?;
    }
    if let Some((uid, gid)) = wanted.ids {
        fchown(file, Some(uid), Some(gid))?;
    }
    Ok(())
}

fn timestamps((accessed, changed): (u32, u32)) -> Timestamps {
    let at = |seconds: u32| Timespec { tv_sec: seconds.into(), tv_nsec: 0 };
    Timestamps { last_access: at(accessed), last_modification: at(changed) }
}

/// Renames a file. An existing target is an error, as version 3 requires.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

/// Resolves a path. The last part may be missing: clients ask for the path of a file that they are about to create.
pub fn real_path(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = path.file_name().ok_or(error)?;
            let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
            Ok(fs::canonicalize(parent)?.join(name))
        }
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rename_of_version_3_replaces_nothing() {
        let room = tempfile::tempdir().unwrap();
        let at = |name: &str| room.path().join(name);
        fs::write(at("a"), "a").unwrap();
        fs::write(at("b"), "b").unwrap();
        assert_eq!(rename_new(&at("a"), &at("b")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        rename_new(&at("a"), &at("c")).unwrap();
        assert_eq!(fs::read_to_string(at("c")).unwrap(), "a");
    }

    #[test]
    fn the_real_path_of_a_file_to_be_is_known() {
        let room = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(room.path()).unwrap();
        assert_eq!(real_path(&room.path().join("new")).unwrap(), real.join("new"));
        assert!(real_path(&room.path().join("no/new")).is_err());
        assert_eq!(real_path(path_of(b"")).unwrap(), std::env::current_dir().unwrap());
    }

    #[test]
    fn a_named_pipe_does_not_stop_the_server() {
        let room = tempfile::tempdir().unwrap();
        let pipe = room.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(open(&pipe, READ, &Wanted::default()).is_ok());
        assert!(open(&pipe, WRITE, &Wanted::default()).is_err());
    }
}
