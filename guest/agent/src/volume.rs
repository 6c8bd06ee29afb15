//! The volume of a session: a file system of its own on the spare disk, which every machine has, mounted at /volume.
//!
//! The host exchanges the medium behind the spare disk, so the kernel's driver is bound to that disk only while a volume
//! is attached: a disk that is bound anew has the size of its medium, and nothing cached of another one. Saved memory may
//! hold a mounted volume of another time, whose disk ends at the detach: its files fail from then on, and nothing of it
//! is written to the medium.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::{Response, StatusCode};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use serde_json::json;

use crate::body::{self, Body};
use crate::chores::Chores;
use crate::refusal::{Refusal, plain};
use crate::{log, sys, users};

/// Where the file system of the volume is mounted.
const AT: &str = "/volume";
/// The serial number by which the spare disk is known, as the host's device list gives it.
const SERIAL: &str = "volume";
const DISKS: &str = "/sys/block";
const DEVICES: &str = "/sys/bus/virtio/devices";
const DRIVER: &str = "/sys/bus/virtio/drivers/virtio_blk";
/// A journal that has to be replayed takes time.
const ATTACHED_WITHIN: Duration = Duration::from_secs(15);
const RELEASED_WITHIN: Duration = Duration::from_secs(8);
const DETACHED_WITHIN: Duration = Duration::from_secs(10);
/// Explains a volume that cannot be mounted, in its place.
const NOTICE: &str = "VOLUME-NOT-MOUNTED.txt";

pub struct Volume {
    /// The virtio device of the spare disk; None in a machine without one.
    device: Option<String>,
    /// Work on the volume may wait for its disk for ever, and must not delay other chores.
    work: Chores,
    /// Whether the volume was attached here and not released since.
    is_attached: Arc<AtomicBool>,
}

impl Volume {
    pub fn without_disk() -> io::Result<Volume> {
        Ok(Volume { device: None, work: Chores::begin()?, is_attached: Arc::default() })
    }

    /// Finds the spare disk of this machine, and puts it away until a volume is attached.
    pub fn take_spare_disk(&mut self) {
        self.device = log::warn("look for the spare disk", find_spare()).flatten();
        if let Some(device) = &self.device {
            log::warn("put the spare disk away", tell_driver("unbind", device));
        }
    }

    /// Before a capture: all is on disk, and nothing of the volume is in the saved memory, unless some process uses it.
    /// Then it stays mounted, so that the process can use it further if this machine continues.
    pub async fn release(&self) {
        let Some(device) = self.attached_device() else { return };
        let is_attached = self.is_attached.clone();
        let released = self.work.within(RELEASED_WITHIN, move || {
            let is_released = release(&device)?;
            is_attached.store(!is_released, Ordering::Relaxed);
            Ok::<_, io::Error>(())
        });
        match released.await {
            Some(done) => drop(log::warn("release the volume", done)),
            None => log::line("the volume is not released in time"),
        }
    }

    /// The device, if the kernel has a driver for it.
    fn attached_device(&self) -> Option<String> {
        self.device.clone().filter(|device| is_bound(device))
    }

    /// Takes away what is attached, also from processes that use it.
    pub async fn detach(&self) -> Result<(), Refusal> {
        self.is_attached.store(false, Ordering::Relaxed);
        let Some(device) = self.attached_device() else { return Ok(()) };
        let detached = self.work.within(DETACHED_WITHIN, move || detach(&device)).await;
        let detached = detached.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()));
        detached.map_err(|e| Refusal::internal("detach the volume", e))
    }

    /// What keeps the volume from being mounted, if anything does.
    async fn attach(&self) -> Result<Option<String>, Refusal> {
        let device = self.device.clone().ok_or_else(|| {
            Refusal::new(StatusCode::BAD_REQUEST, "invalid", "this machine has no spare disk for a volume")
        })?;
        if self.is_attached.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let attached = self.work.within(ATTACHED_WITHIN, move || attach(&device)).await;
        let attached = attached.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()));
        self.is_attached.store(attached.is_ok(), Ordering::Relaxed);
        Ok(attached.err().map(plain))
    }
}

pub async fn attach_volume(volume: &Volume) -> Result<Response<Body>, Refusal> {
    let failure = volume.attach().await?;
    if let Some(failure) = &failure {
        log::line(&format!("the volume cannot be mounted: {failure}"));
        let failure = failure.clone();
        let noted = volume.work.within(DETACHED_WITHIN, move || put_notice(&failure)).await;
        log::warn("say that the volume is not mounted", noted.unwrap_or(Ok(())));
    }
    body::json(&json!({ "mounted": failure.is_none(), "failure": failure }))
}

pub async fn detach_volume(volume: &Volume) -> Result<Response<Body>, Refusal> {
    volume.detach().await?;
    body::json(&json!({}))
}

fn find_spare() -> io::Result<Option<String>> {
    for disk in fs::read_dir(DISKS)? {
        let disk = disk?.path();
        if fs::read_to_string(disk.join("serial")).is_ok_and(|serial| serial.trim() == SERIAL) {
            let device = fs::canonicalize(disk.join("device"))?;
            return Ok(device.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

fn tell_driver(verb: &str, device: &str) -> io::Result<()> {
    fs::write(Path::new(DRIVER).join(verb), device)
}

fn is_bound(device: &str) -> bool {
    Path::new(DEVICES).join(device).join("driver").exists()
}

/// The disk of the device, such as /dev/vdb.
fn disk_of(device: &str) -> io::Result<PathBuf> {
    let mut disks = fs::read_dir(Path::new(DEVICES).join(device).join("block"))?;
    let disk = disks.next().ok_or(io::ErrorKind::NotFound)??;
    Ok(Path::new("/dev").join(disk.file_name()))
}

/// `major:minor` of the disk, as the list of mounts has it.
fn number_of(device: &str) -> io::Result<String> {
    let disk = disk_of(device)?;
    let name = disk.file_name().unwrap_or_default();
    Ok(fs::read_to_string(Path::new(DISKS).join(name).join("dev"))?.trim().to_owned())
}

fn attach(device: &str) -> io::Result<()> {
    if !is_bound(device) {
        tell_driver("bind", device)?;
    }
    let disk = disk_of(device)?;
    make_mount_point()?;
    take_notice_away();
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    mount(&disk, AT, "ext4", flags, c"discard,errors=remount-ro")?;
    log::warn("grow the volume's file system", grow(&disk));
    log::warn("give the volume to the user", own(Path::new(AT)));
    Ok(())
}

/// The user's number depends on the image, and the volume may come from a session of another one. What is in it stays as it is.
fn own(at: &Path) -> io::Result<()> {
    match users::is_other_sandbox(fs::metadata(at)?.uid()) {
        true => chown(at, Some(users::uid()), Some(users::gid())),
        false => Ok(()),
    }
}

/// A link in place of the directory would mount the volume over another one.
fn make_mount_point() -> io::Result<()> {
    match fs::symlink_metadata(AT) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(io::Error::other(format!("{AT} is not a directory"))),
        Err(_) => fs::create_dir(AT),
    }
}

/// Grows the file system to the disk, which may be larger than at the last attach.
fn grow(disk: &Path) -> io::Result<()> {
    let disk_bytes = File::open(disk)?.seek(SeekFrom::End(0))?;
    let at = File::open(AT)?;
    let stats = rustix::fs::statvfs(AT)?;
    sys::resize_ext4(&at, disk_bytes / stats.f_frsize)
}

/// A read-only file system with an explanation, so that nothing that is meant for the volume is written elsewhere.
fn put_notice(failure: &str) -> io::Result<()> {
    make_mount_point()?;
    take_notice_away();
    mount("tmpfs", AT, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=755,size=64k")?;
    let text = format!(
        "The volume is attached and cannot be mounted: {failure}\n\
         Its disk is there as /dev/vdb. To check it: sudo umount /volume && sudo fsck.ext4 /dev/vdb && \
         sudo mount /dev/vdb /volume\n"
    );
    fs::write(Path::new(AT).join(NOTICE), text)?;
    Ok(mount_remount(AT, MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV, "")?)
}

fn take_notice_away() {
    if Path::new(AT).join(NOTICE).exists() {
        let _ = unmount(AT, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
}

/// Whether the volume could be unmounted, so that the disk was put away.
fn release(device: &str) -> io::Result<bool> {
    let disk = disk_of(device)?;
    for at in mount_points(&number_of(device)?)?.iter().rev() {
        rustix::fs::syncfs(File::open(at)?)?;
        match unmount(at, UnmountFlags::NOFOLLOW) {
            Err(Errno::BUSY) => return Ok(false),
            other => other?,
        }
    }
    // It may be mounted in the mount namespace of some process.
    let exclusively = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(disk);
    if exclusively.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {
        return Ok(false);
    }
    tell_driver("unbind", device)?;
    Ok(true)
}

fn detach(device: &str) -> io::Result<()> {
    let points = number_of(device).and_then(|number| mount_points(&number));
    for at in log::warn("find where the volume is mounted", points).unwrap_or_default().iter().rev() {
        let unmounted = unmount(at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        log::warn("unmount the volume", unmounted);
    }
    take_notice_away();
    tell_driver("unbind", device)
}

/// Where the device with this number is mounted, in the order of the mounts.
fn mount_points(number: &str) -> io::Result<Vec<PathBuf>> {
    Ok(points_in(&fs::read_to_string("/proc/self/mountinfo")?, number))
}

fn points_in(mounts: &str, number: &str) -> Vec<PathBuf> {
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    fields
        .filter(|fields| fields.get(2) == Some(&number))
        .filter_map(|fields| fields.get(4).map(|point| PathBuf::from(unescaped(point))))
        .collect()
}

/// The kernel writes spaces and the like as `\040`.
fn unescaped(point: &str) -> String {
    let mut parts = point.split('\\');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| match part.get(..3).map(|code| u8::from_str_radix(code, 8)) {
        Some(Ok(code)) => text + &char::from(code).to_string() + &part[3..],
        _ => text + "\\" + part,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestMachine, run};

    const MOUNTS: &str = "24 1 254:0 / / rw,noatime - ext4 /dev/root rw\n\
                          60 24 254:16 / /volume rw,nosuid - ext4 /dev/vdb rw\n\
                          61 24 254:16 /sub /srv/my\\040data rw - ext4 /dev/vdb rw\n";

    #[test]
    fn every_mount_of_a_disk_is_found_in_order() {
        let points = [PathBuf::from("/volume"), PathBuf::from("/srv/my data")];
        assert_eq!(points_in(MOUNTS, "254:16"), points);
        assert_eq!(points_in(MOUNTS, "254:1"), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_volume_of_another_images_user_becomes_the_users_and_one_of_root_stays_roots() {
        let room = tempfile::tempdir().unwrap();
        let owner_after = |uid, gid| {
            chown(room.path(), Some(uid), Some(gid)).unwrap();
            own(room.path()).unwrap();
            let meta = fs::metadata(room.path()).unwrap();
            (meta.uid(), meta.gid())
        };
        let user = (users::uid(), users::gid());
        assert_eq!(owner_after(998, 998), user);
        for kept in [(0, 0), (1000, 1000), (users::uid(), 27)] {
            assert_eq!(owner_after(kept.0, kept.1), kept);
        }
    }

    #[test]
    fn a_machine_without_a_spare_disk_says_so() {
        run(async {
            let test = TestMachine::new();
            let host = test.connect().await;
            let (status, body) = host.call("POST", "/v1/volume/attach", json!({})).await;
            assert_eq!((status, &body["code"]), (StatusCode::BAD_REQUEST, &json!("invalid")));
            assert_eq!(host.call("POST", "/v1/volume/detach", json!({})).await.0, StatusCode::OK);
        });
    }
}
