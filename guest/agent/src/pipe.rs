//! The reading end of a command's pipe. While the writer writes continuously, a timer polls the pipe: the event loop
//! would be woken by each write, even of a few bytes, and each wake-up costs two context switches.

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

/// Longest time between two reads of a writer that counts as continuous.
const CONTINUOUS_WITHIN: Duration = Duration::from_millis(5);
/// Continuous reads in a row before a timer polls the pipe. A short command with a few lines does not reach it.
const CONTINUOUS_READS: u32 = 3;
/// Interval of the timer that polls a pipe.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Capacity of the pipe: the bytes that a writer may write between two polls before it blocks.
const PIPE_BYTES: usize = 256 * 1024;

pub struct Pipe {
    fd: Rc<OwnedFd>,
    /// Registration with the event loop; None while a timer polls the pipe.
    watch: Option<AsyncFd<Rc<OwnedFd>>>,
    read_at: Option<Instant>,
    /// Continuous reads in a row so far.
    row: u32,
    /// Whether the last read took all that it had room for.
    is_filled: bool,
}

impl Pipe {
    pub fn new(fd: OwnedFd) -> io::Result<Pipe> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        // An error is ignored: a smaller pipe is only slower.
        let _ = fcntl_setpipe_size(&fd, PIPE_BYTES);
        Ok(Pipe { fd: Rc::new(fd), watch: None, read_at: None, row: 0, is_filled: false })
    }

    /// Reads available bytes into the spare capacity of `into`; 0 at the end. A dropped future has read nothing.
    pub async fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        // Also while bytes are there: a reader as fast as the writer would read each of its small writes by itself.
        if self.is_polled() && !self.is_filled {
            self.poll_later().await;
        }
        loop {
            let room = into.capacity() - into.len();
            match rustix::io::read(&self.fd, spare_capacity(into)) {
                Ok(count) => {
                    self.note(count == room);
                    return Ok(count);
                }
                Err(Errno::AGAIN) => self.wait().await?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Number of bytes in the pipe.
    pub fn waiting(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.fd).unwrap_or(0)
    }

    fn note(&mut self, is_filled: bool) {
        self.is_filled = is_filled;
        let now = Instant::now();
        let is_continuous = self.read_at.replace(now).is_some_and(|before| now - before < CONTINUOUS_WITHIN);
        self.row = if is_continuous { self.row + 1 } else { 0 };
    }

    fn is_polled(&self) -> bool {
        let is_recent = self.read_at.is_some_and(|at| at.elapsed() < CONTINUOUS_WITHIN);
        is_recent && self.row >= CONTINUOUS_READS
    }

    async fn poll_later(&mut self) {
        self.watch = None;
        sleep(POLL_INTERVAL).await;
    }

    async fn wait(&mut self) -> io::Result<()> {
        if self.is_polled() {
            self.poll_later().await;
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
                    sleep(2 * CONTINUOUS_WITHIN).await;
                }
            }
            sleep(2 * CONTINUOUS_WITHIN).await;
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
