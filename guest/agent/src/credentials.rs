//! Runs work with the rights of the guest user, on one thread of a process that stays root.

use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid, getgroups};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::users;

pub struct Rights {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl Rights {
    pub fn of(uid: u32, gid: u32, groups: &[u32]) -> Rights {
        let groups = groups.iter().copied().map(Gid::from_raw).collect();
        Rights { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid), groups }
    }

    /// The user's ids and groups. The groups are read each time, as for a new command: they may have changed.
    pub fn of_sandbox() -> Rights {
        Rights::of(users::uid(), users::gid(), &users::supplementary_groups())
    }
}

/// Runs `work` with the effective ids and groups of a user. The kernel keeps credentials per thread, and only this
/// thread's are changed. The effective ids are enough: file access is checked against them, and the effective
/// capabilities are dropped and restored with them.
pub fn as_user<T>(rights: &Rights, work: impl FnOnce() -> T) -> Result<T, Errno> {
    let groups = getgroups()?;
    set_thread_groups(&rights.groups)?;
    let _root = RootAgain { groups };
    set_thread_res_gid(Gid::ROOT, rights.gid, Gid::ROOT)?;
    set_thread_res_uid(Uid::ROOT, rights.uid, Uid::ROOT)?;
    Ok(work())
}

/// Runs one step as root in the middle of work done as the user.
pub fn as_root<T>(step: impl FnOnce() -> T) -> T {
    let _user = UserAgain { uid: geteuid() };
    if set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).is_err() {
        std::process::abort();
    }
    step()
}

struct UserAgain {
    uid: Uid,
}

impl Drop for UserAgain {
    fn drop(&mut self) {
        if set_thread_res_uid(Uid::ROOT, self.uid, Uid::ROOT).is_err() {
            std::process::abort();
        }
    }
}

/// Restores root's credentials when the work ends, also by a panic.
struct RootAgain {
    groups: Vec<Gid>,
}

impl Drop for RootAgain {
    fn drop(&mut self) {
        let back = set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)
            .and_then(|()| set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT))
            .and_then(|()| set_thread_groups(&self.groups));
        if back.is_err() {
            // A pool thread that kept the user's rights would do the next request's work with them.
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getegid;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn room() -> tempfile::TempDir {
        let room = tempfile::tempdir().unwrap();
        fs::set_permissions(room.path(), fs::Permissions::from_mode(0o777)).unwrap();
        room
    }

    #[test]
    fn the_user_neither_reads_what_is_roots_nor_keeps_roots_abilities() {
        let room = room();
        let secret = room.path().join("secret");
        fs::write(&secret, "x").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let own = room.path().join("own");
        as_user(&Rights::of_sandbox(), || {
            assert!(fs::read(&secret).is_err());
            assert!(std::os::unix::fs::chown(&secret, Some(users::uid()), None).is_err());
            fs::write(&own, "mine").unwrap();
        })
        .unwrap();
        let made = fs::metadata(&own).unwrap();
        assert_eq!((made.uid(), made.gid()), (users::uid(), users::gid()));
        assert_eq!(fs::read(&secret).unwrap(), b"x");
    }

    #[test]
    fn a_step_of_roots_in_the_users_work_leaves_the_rest_the_users() {
        let room = room();
        let secret = room.path().join("secret");
        fs::write(&secret, "x").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        as_user(&Rights::of_sandbox(), || {
            assert!(fs::read(&secret).is_err());
            assert_eq!(as_root(|| fs::read(&secret)).unwrap(), b"x");
            assert!(fs::read(&secret).is_err());
            assert_eq!(geteuid().as_raw(), users::uid());
        })
        .unwrap();
        assert!(as_root(|| geteuid().is_root()) && geteuid().is_root());
    }

    #[test]
    fn other_threads_stay_root_meanwhile() {
        let (ask, asked) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || asked.recv().map(|()| geteuid().is_root()));
        as_user(&Rights::of_sandbox(), || {
            assert_eq!(geteuid().as_raw(), users::uid());
            ask.send(()).unwrap();
            assert_eq!(other.join().unwrap(), Ok(true));
        })
        .unwrap();
        assert!(geteuid().is_root());
    }

    #[test]
    fn a_panic_gives_the_rights_back_before_the_thread_continues() {
        let groups = getgroups().unwrap();
        let panicked = std::panic::catch_unwind(|| as_user(&Rights::of_sandbox(), || panic!("on purpose")));
        assert!(panicked.is_err());
        assert!(geteuid().is_root() && getegid().is_root());
        assert_eq!(getgroups().unwrap(), groups);
        fs::read("/etc/shadow").unwrap();
    }
}
