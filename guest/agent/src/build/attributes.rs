//! Owner, mode, extended attributes and times of what an image has.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags};
use rustix::fs::{chownat, fchmod, fchown, fsetxattr, futimens, utimensat};
use rustix::io::Errno;

use super::archive::Entry;
use super::fault::Fault;
use super::pax::Time;

/// The mode after the owner, whose change takes set-user-id away; capabilities last, for the same reason.
pub fn set(fd: &OwnedFd, entry: &Entry) -> Result<(), Fault> {
    fchown(fd, Some(Uid::from_raw(entry.uid)), Some(Gid::from_raw(entry.gid)))?;
    fchmod(fd, Mode::from_raw_mode(entry.mode))?;
    for (name, value) in &entry.attributes {
        let text = CString::new(name.as_slice()).map_err(|_| Errno::INVAL)?;
        let set = fsetxattr(fd, text.as_c_str(), value, XattrFlags::empty());
        set.map_err(|errno| attribute_fault(errno).about(name))?;
    }
    Ok(())
}

/// An attribute that the file system does not take is the image's fault.
fn attribute_fault(errno: Errno) -> Fault {
    match errno {
        Errno::NOSPC | Errno::TOOBIG | Errno::RANGE | Errno::INVAL | Errno::PERM => {
            Fault::invalid("an extended attribute is malformed or too large")
        }
        errno => errno.into(),
    }
}

pub fn set_of_link(parent: &OwnedFd, name: &[u8], entry: &Entry) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
    chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    utimensat(parent, name, &timestamps(entry.mtime), AtFlags::SYMLINK_NOFOLLOW)
}

pub fn set_time(fd: impl AsFd, time: Time) -> Result<(), Errno> {
    futimens(fd, &timestamps(time))
}

fn timestamps(Time { seconds, nanoseconds }: Time) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
    }
}
