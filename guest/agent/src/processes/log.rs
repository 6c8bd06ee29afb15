//! Stores one output stream of a process on the guest's disk. On a full disk the log loses bytes; the process never waits.

use std::cell::{Cell, RefCell};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::spawn_blocking;

use super::ring::Ring;

pub const LOG_BYTES: u64 = 10 * 1024 * 1024;

pub struct Log {
    path: PathBuf,
    /// The file, created with the first byte: most commands leave one stream empty.
    file: RefCell<Option<Arc<File>>>,
    ring: RefCell<Ring>,
    has_lost: Cell<bool>,
    is_gone: Cell<bool>,
}

impl Log {
    pub fn new(path: PathBuf) -> Log {
        let (file, ring) = (RefCell::default(), RefCell::new(Ring::new(LOG_BYTES)));
        Log { path, file, ring, has_lost: Cell::new(false), is_gone: Cell::new(false) }
    }

    pub fn start(&self) -> u64 {
        self.ring.borrow().start()
    }

    pub fn end(&self) -> u64 {
        self.ring.borrow().end()
    }

    pub fn kept(&self) -> u64 {
        self.ring.borrow().kept()
    }

    /// Whether bytes are missing at an unknown position in the stream.
    pub fn has_lost(&self) -> bool {
        self.has_lost.get()
    }

    pub async fn append(&self, mut bytes: Bytes) {
        while !bytes.is_empty() && !self.is_gone.get() {
            match self.write_some(&bytes).await {
                Ok(count) => drop(bytes.split_to(count)),
                Err(_) if self.ring.borrow_mut().shrink() => {}
                Err(_) => return self.has_lost.set(true),
            }
        }
    }

    async fn write_some(&self, bytes: &Bytes) -> io::Result<usize> {
        let file = self.open()?;
        let span = self.ring.borrow_mut().make_space(bytes.len());
        let bytes = bytes.slice(..span.bytes);
        let written =
            spawn_blocking(move || file.write_at(&bytes, span.at)).await.map_err(io::Error::other)??;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        if !self.is_gone.get() {
            self.ring.borrow_mut().written(written);
        }
        Ok(written)
    }

    fn open(&self) -> io::Result<Arc<File>> {
        let mut open = self.file.borrow_mut();
        if let Some(file) = &*open {
            return Ok(file.clone());
        }
        // The user may read the logs but not write them.
        if let Some(directory) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
        }
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true).mode(0o644).open(&self.path)?;
        Ok(open.insert(Arc::new(file)).clone())
    }

    /// Reads up to `bytes` from a position in the stream, or from the oldest byte left. Returns where they begin too.
    pub async fn read(&self, from: u64, bytes: usize) -> io::Result<(u64, Bytes)> {
        let from = from.max(self.start());
        let span = self.ring.borrow().find(from, bytes);
        let file = match &*self.file.borrow() {
            _ if span.bytes == 0 => return Ok((from, Bytes::new())),
            Some(file) => file.clone(),
            None => Arc::new(File::open(&self.path)?),
        };
        let read = move || {
            let mut buffer = vec![0; span.bytes];
            file.read_exact_at(&mut buffer, span.at).map(|()| Bytes::from(buffer))
        };
        let mut read = spawn_blocking(read).await.map_err(io::Error::other)??;
        // Race: the first bytes may have been overwritten during the read. They are dropped.
        let spoiled = self.start().saturating_sub(from).min(read.len() as u64);
        drop(read.split_to(spoiled as usize));
        Ok((from + spoiled, read))
    }

    /// Closes the file, once no more bytes come.
    pub fn close(&self) {
        self.file.take();
    }

    pub fn discard(&self) {
        self.is_gone.set(true);
        self.has_lost.set(self.has_lost.get() || self.end() > 0);
        self.ring.borrow_mut().forget();
        if self.end() > 0 {
            let _ = fs::remove_file(&self.path);
        }
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::run;

    fn log_in(room: &tempfile::TempDir) -> Log {
        Log::new(room.path().join("processes/a.stdout"))
    }

    async fn read_all(log: &Log) -> Vec<u8> {
        let (mut at, mut all) = (log.start(), Vec::new());
        while at < log.end() {
            let (from, bytes) = log.read(at, 32 * 1024).await.unwrap();
            assert_eq!(from, at);
            at += bytes.len() as u64;
            all.extend_from_slice(&bytes);
        }
        all
    }

    fn pattern(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at / 251 + at) as u8).collect()
    }

    #[test]
    fn a_log_keeps_the_most_recent_10_mib_and_its_file_grows_no_further() {
        run(async {
            let room = tempfile::tempdir().unwrap();
            let log = log_in(&room);
            let all = pattern(LOG_BYTES as usize + 1_234_567);
            for chunk in all.chunks(30_000) {
                log.append(Bytes::copy_from_slice(chunk)).await;
            }
            assert_eq!((log.start(), log.end()), (1_234_567, all.len() as u64));
            assert!(read_all(&log).await == all[1_234_567..]);
            assert_eq!(fs::metadata(&log.path).unwrap().len(), LOG_BYTES);
            log.close();
            assert!(read_all(&log).await == all[1_234_567..]);
        });
    }

    #[test]
    fn a_reader_that_was_overtaken_continues_with_the_oldest_bytes() {
        run(async {
            let room = tempfile::tempdir().unwrap();
            let log = log_in(&room);
            log.append(Bytes::from(vec![b'a'; LOG_BYTES as usize])).await;
            log.append(Bytes::from_static(b"tail")).await;
            let (from, bytes) = log.read(0, 3).await.unwrap();
            assert_eq!((from, &bytes[..]), (4, &b"aaa"[..]));
            let (from, bytes) = log.read(LOG_BYTES, 100).await.unwrap();
            assert_eq!((from, &bytes[..]), (LOG_BYTES, &b"tail"[..]));
        });
    }

    #[test]
    fn a_silent_stream_has_no_file_and_a_discarded_one_neither() {
        run(async {
            let room = tempfile::tempdir().unwrap();
            let log = log_in(&room);
            assert!(!log.path.exists() && read_all(&log).await.is_empty());
            log.append(Bytes::from_static(b"x")).await;
            assert!(log.path.exists() && !log.has_lost());
            log.discard();
            assert!(!log.path.exists() && log.has_lost());
            log.append(Bytes::from_static(b"late")).await;
            assert!(!log.path.exists() && read_all(&log).await.is_empty());
        });
    }

    /// A file system of the given size in memory, gone with its mount.
    struct SmallDisk(tempfile::TempDir);

    impl SmallDisk {
        fn of(bytes: u64) -> SmallDisk {
            let room = tempfile::tempdir().unwrap();
            let options = std::ffi::CString::new(format!("size={bytes}")).unwrap();
            rustix::mount::mount(
                "tmpfs",
                room.path(),
                "tmpfs",
                rustix::mount::MountFlags::empty(),
                &*options,
            )
            .expect("mount a small disk; these tests run as root");
            SmallDisk(room)
        }
    }

    impl Drop for SmallDisk {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
        }
    }

    #[test]
    fn on_a_full_disk_a_log_goes_round_in_what_it_has() {
        run(async {
            let disk = SmallDisk::of(512 * 1024);
            let log = log_in(&disk.0);
            let all = pattern(3_000_000);
            for chunk in all.chunks(32 * 1024) {
                log.append(Bytes::copy_from_slice(chunk)).await;
            }
            assert_eq!(log.end(), all.len() as u64);
            assert!(log.kept() > 400_000);
            assert!(read_all(&log).await == all[log.start() as usize..]);
            assert!(!log.has_lost());
        });
    }

    #[test]
    fn a_log_without_any_space_loses_bytes_and_continues_when_there_is_some() {
        run(async {
            let disk = SmallDisk::of(64 * 1024);
            let filler = disk.0.path().join("filler");
            let log = log_in(&disk.0);
            log.append(Bytes::from_static(b"before ")).await;
            let _ = fs::write(&filler, vec![0; 128 * 1024]);
            log.append(Bytes::from(vec![b'x'; 32 * 1024])).await;
            assert!(log.has_lost());
            fs::remove_file(&filler).unwrap();
            log.append(Bytes::from_static(b"after")).await;
            let all = read_all(&log).await;
            assert!(all.starts_with(b"before x") && all.ends_with(b"after"));
        });
    }
}
