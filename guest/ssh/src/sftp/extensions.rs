//! Handles OpenSSH's extensions of SFTP version 3.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::StatVfs;

use crate::sftp::answer::{self, Answer, Code, REQUEST_BYTES, Refused, done};
use crate::sftp::attributes::Wanted;
use crate::sftp::files::{self, path};
use crate::sftp::handles::{self, Handles};
use crate::wire::{Message, Reader};

pub const OFFERED: [(&str, &str); 9] = [
    ("posix-rename@openssh.com", "1"),
    ("statvfs@openssh.com", "2"),
    ("fstatvfs@openssh.com", "2"),
    ("hardlink@openssh.com", "1"),
    ("fsync@openssh.com", "1"),
    ("lsetstat@openssh.com", "1"),
    ("limits@openssh.com", "1"),
    ("expand-path@openssh.com", "1"),
    ("home-directory", "1"),
];

pub fn answer(handles: &Handles, id: u32, name: &str, details: &mut Reader) -> Answer {
    match name {
        "posix-rename@openssh.com" => done(id, fs::rename(path(details)?, path(details)?)),
        "hardlink@openssh.com" => done(id, fs::hard_link(path(details)?, path(details)?)),
        "fsync@openssh.com" => done(id, handles.file(details)?.sync_all()),
        "lsetstat@openssh.com" => done(id, files::set_link(path(details)?, &Wanted::read(details)?)),
        "statvfs@openssh.com" => Ok(space(id, &rustix::fs::statvfs(path(details)?)?)),
        "fstatvfs@openssh.com" => Ok(space(id, &rustix::fs::fstatvfs(handles.file(details)?)?)),
        "limits@openssh.com" => {
            let most = REQUEST_BYTES as u64;
            let limits = [most + 1024, most, most, handles::MOST as u64];
            let message = Message::new(answer::EXTENDED).u32(id);
            Ok(limits.into_iter().fold(message, Message::u64).into_bytes())
        }
        "expand-path@openssh.com" => answer::name(id, expand(details.string()?)?.as_os_str().as_bytes()),
        "home-directory" => answer::name(id, home()?.as_os_str().as_bytes()),
        _ => Err(Refused::new(Code::Unsupported, "this extension is not known here")),
    }
}

fn space(id: u32, stat: &StatVfs) -> Vec<u8> {
    let numbers = [
        stat.f_bsize,
        stat.f_frsize,
        stat.f_blocks,
        stat.f_bfree,
        stat.f_bavail,
        stat.f_files,
        stat.f_ffree,
        stat.f_favail,
        stat.f_fsid,
        stat.f_flag.bits(),
        stat.f_namemax,
    ];
    numbers.into_iter().fold(Message::new(answer::EXTENDED).u32(id), Message::u64).into_bytes()
}

fn home() -> Result<PathBuf, Refused> {
    std::env::var_os("HOME")
        .map(PathBuf::from)
        .ok_or_else(|| Refused::new(Code::NoSuchFile, "no home directory"))
}

fn expand(bytes: &[u8]) -> Result<PathBuf, Refused> {
    let expanded = match bytes.strip_prefix(b"~") {
        Some(b"") => home()?,
        Some([b'/', rest @ ..]) => home()?.join(files::path_of(rest)),
        Some(_) => return Err(Refused::new(Code::NoSuchFile, "only the user's own home directory is known")),
        None => files::path_of(bytes).to_owned(),
    };
    Ok(files::real_path(&expanded)?)
}
