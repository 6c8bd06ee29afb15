//! The boot steps of `main`: from the initramfs to a machine with a root disk.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount, mount_move};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::places::own_directory;
use crate::{log, sys, users};

pub const DISK: &str = "/dev/vda";
const DISK_WITHIN: Duration = Duration::from_secs(10);
const NEW_ROOT: &str = "/newroot";
const OPEN_FILES: (u64, u64) = (65_536, 524_288);

pub fn mount_first() -> io::Result<()> {
    mount_fs("devtmpfs", "/dev", MountFlags::NOSUID, "mode=755")?;
    mount_fs("proc", "/proc", hardened(), "")?;
    mount_fs("sysfs", "/sys", hardened(), "")
}

/// Loads the kernel modules in the order of their file names, which is the order of their dependencies.
pub fn load_modules() {
    let mut modules: Vec<PathBuf> = fs::read_dir("/modules")
        .map(|files| files.flatten().map(|file| file.path()).collect())
        .unwrap_or_default();
    modules.sort();
    for module in modules {
        log::warn(&format!("load {}", module.display()), load_module(&module));
    }
}

fn load_module(path: &Path) -> io::Result<()> {
    match rustix::system::finit_module(File::open(path)?, c"", 0) {
        Err(rustix::io::Errno::EXIST) => Ok(()),
        other => Ok(other?),
    }
}

pub fn wait_for_disk(disk: &str) -> io::Result<()> {
    let began = Instant::now();
    while !Path::new(disk).exists() {
        if began.elapsed() > DISK_WITHIN {
            return Err(io::Error::other(format!("{disk} did not appear within {DISK_WITHIN:?}")));
        }
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

pub fn mount_root() -> io::Result<()> {
    fs::create_dir_all(NEW_ROOT)?;
    // With init_itable the kernel would write inode tables in the background, and every snapshot would contain them.
    mount(DISK, NEW_ROOT, "ext4", MountFlags::NOATIME, c"noinit_itable")?;
    log::warn("grow the root file system", grow_root());
    Ok(())
}

/// Grows the file system to the disk: a template's file system has the size of its content, a machine's disk is larger.
fn grow_root() -> io::Result<()> {
    let disk_bytes = File::open(DISK)?.seek(SeekFrom::End(0))?;
    let block_bytes = rustix::fs::statvfs(NEW_ROOT)?.f_frsize;
    sys::resize_ext4(&File::open(NEW_ROOT)?, disk_bytes / block_bytes)
}

/// Deletes the initramfs to free its memory, then makes the disk the root.
pub fn switch_root() -> io::Result<()> {
    for name in ["dev", "proc", "sys"] {
        let target = Path::new(NEW_ROOT).join(name);
        own_directory(&target)?;
        mount_move(Path::new("/").join(name), target)?;
    }
    for leftover in ["/init", "/modules"] {
        let path = Path::new(leftover);
        let removed = match path.is_dir() {
            true => fs::remove_dir_all(path),
            false => fs::remove_file(path),
        };
        log::warn("free the initramfs", removed);
    }
    std::env::set_current_dir(NEW_ROOT)?;
    mount_move(".", "/")?;
    rustix::process::chroot(".")?;
    std::env::set_current_dir("/")
}

pub fn mount_rest() {
    let plain = MountFlags::NOSUID | MountFlags::NODEV;
    for (kind, target, flags, options) in [
        ("devpts", "/dev/pts", MountFlags::NOSUID | MountFlags::NOEXEC, "gid=5,mode=620,ptmxmode=666"),
        ("tmpfs", "/dev/shm", plain, "mode=1777"),
        ("tmpfs", "/run", plain, "mode=755,size=20%"),
        ("cgroup2", "/sys/fs/cgroup", hardened(), "nsdelegate"),
    ] {
        log::warn(&format!("mount {target}"), mount_fs(kind, target, flags, options));
    }
    for (link, target) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
        let made = symlink(format!("/proc/self/fd{target}"), format!("/dev/{link}"));
        log::warn(&format!("link /dev/{link}"), made);
    }
    log::warn("open /tmp", ensure_dir("/tmp", 0o1777));
    log::warn("open /run/lock", ensure_dir("/run/lock", 0o1777));
    log::warn("open /run/vivarium", ensure_dir("/run/vivarium", 0o755));
}

pub fn raise_limits() {
    let limit = Rlimit { current: Some(OPEN_FILES.0), maximum: Some(OPEN_FILES.1) };
    log::warn("allow open files", setrlimit(Resource::Nofile, limit));
}

pub fn ensure_workspace() {
    let made = ensure_dir("/workspace", 0o755)
        .and_then(|()| chown("/workspace", Some(users::uid()), Some(users::gid())));
    log::warn("make /workspace", made);
}

fn hardened() -> MountFlags {
    MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC
}

fn mount_fs(kind: &str, target: &str, flags: MountFlags, options: &str) -> io::Result<()> {
    own_directory(Path::new(target))?;
    let options = std::ffi::CString::new(options)?;
    Ok(mount(kind, target, kind, flags, options.as_c_str())?)
}

/// Makes a directory with this mode. One that exists with the mode is not written: every write adds to every snapshot.
fn ensure_dir(path: &str, mode: u32) -> io::Result<()> {
    own_directory(Path::new(path))?;
    if fs::metadata(path)?.permissions().mode() & 0o7777 != mode {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}
