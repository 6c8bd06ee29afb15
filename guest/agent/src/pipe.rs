//! The reading end of a command's pipe. While the writer writes continuously, the pipe is read by a timer: the event
//! loop would be woken by each write, also of a few bytes, and each wake costs two switches.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::pipe::fcntl_setpipe_size;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep};

use crate::sys;

/// A writer with new bytes within this time counts as continuous.
const GOES_ON_WITHIN: Duration = Duration::from_millis(5);
/// How often in a row until it is read by the clock: the few lines and the end of a short command are not to wait.
const GOES_ON_FOR: u32 = 3;
const GATHERS_FOR: Duration = Duration::from_millis(1);
/// The bytes it may write in that time before it blocks.
const PIPE_BYTES: usize = 256 * 1024;

pub struct Pipe {
    fd: Rc<OwnedFd>,
    /// Registered with the event loop, unless it is read by the clock.
    watch: Option<AsyncFd<Rc<OwnedFd>>>,
    read_at: Option<Instant>,
    /// Reads in a row that came shortly after one another.
    row: u32,
}

impl Pipe {
    pub fn new(fd: OwnedFd) -> io::Result<Pipe> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        // A smaller one is as good, only slower.
        let _ = fcntl_setpipe_size(&fd, PIPE_BYTES);
        Ok(Pipe { fd: Rc::new(fd), watch: None, read_at: None, row: 0 })
    }

    /// Fills the spare capacity of `into` with the bytes that are there; 0 at the end. When the future is dropped
    /// early, nothing has been read.
    pub async fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            match rustix::io::read(&self.fd, spare_capacity(into)) {
                Ok(count) => {
                    self.note();
                    return Ok(count);
                }
                Err(Errno::AGAIN) => self.wait().await?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Bytes that are not read yet.
    pub fn waiting(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.fd).unwrap_or(0)
    }

    fn note(&mut self) {
        let now = Instant::now();
        let goes_on = self.read_at.replace(now).is_some_and(|before| now - before < GOES_ON_WITHIN);
        self.row = if goes_on { self.row + 1 } else { 0 };
    }

    async fn wait(&mut self) -> io::Result<()> {
        let is_recent = self.read_at.is_some_and(|at| at.elapsed() < GOES_ON_WITHIN);
        if is_recent && self.row >= GOES_ON_FOR {
            self.watch = None;
            sleep(GATHERS_FOR).await;
            return Ok(());
        }
        if self.watch.is_none() {
            self.watch = Some(sys::watch(self.fd.clone())?);
        }
        if let Some(watch) = &self.watch {
            watch.readable().await?.clear_ready();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::thread;

    use crate::testing::run;

    fn pipe() -> (Pipe, io::PipeWriter) {
        let (reader, writer) = io::pipe().unwrap();
        (Pipe::new(reader.into()).unwrap(), writer)
    }

    async fn read_all(mut pipe: Pipe) -> (Vec<u8>, u32) {
        let (mut all, mut reads) = (Vec::new(), 0);
        loop {
            let mut piece = Vec::with_capacity(4096);
            if pipe.read(&mut piece).await.unwrap() == 0 {
                return (all, reads);
            }
            assert!(!piece.is_empty());
            all.extend_from_slice(&piece);
            reads += 1;
        }
    }

    #[test]
    fn written_bytes_come_out_in_order_and_then_the_end() {
        run(async {
            let (pipe, mut writer) = pipe();
            let written: Vec<u8> = (0..1_000_003_u32).map(|n| (n * 7 % 251) as u8).collect();
            let sent = written.clone();
            let writing = thread::spawn(move || {
                for piece in sent.chunks(997) {
                    writer.write_all(piece).unwrap();
                }
            });
            assert!(read_all(pipe).await.0 == written);
            writing.join().unwrap();
        });
    }

    #[test]
    fn a_writer_of_many_small_pieces_is_read_in_large_ones() {
        run(async {
            let (pipe, mut writer) = pipe();
            let writing = thread::spawn(move || {
                for _ in 0..20_000 {
                    writer.write_all(b"sixteen bytes...").unwrap();
                }
            });
            let (all, reads) = read_all(pipe).await;
            writing.join().unwrap();
            assert_eq!(all.len(), 320_000);
            assert!(reads < 5_000, "{reads}");
        });
    }

    #[test]
    fn a_writer_that_pauses_is_waited_for_by_the_event_loop() {
        run(async {
            let (mut pipe, mut writer) = pipe();
            for round in 0..20 {
                writer.write_all(&[round]).unwrap();
                let mut piece = Vec::with_capacity(8);
                assert_eq!(pipe.read(&mut piece).await.unwrap(), 1);
                assert_eq!(piece, [round]);
                if round % 5 == 4 {
                    sleep(2 * GOES_ON_WITHIN).await;
                }
            }
            sleep(2 * GOES_ON_WITHIN).await;
            let writing = thread::spawn(move || {
                thread::sleep(Duration::from_millis(50));
                drop(writer);
            });
            assert_eq!(pipe.read(&mut Vec::with_capacity(8)).await.unwrap(), 0);
            assert!(pipe.watch.is_some());
            writing.join().unwrap();
        });
    }
}
