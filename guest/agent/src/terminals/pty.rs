//! Reads, writes and controls the agent's end of a pseudo-terminal.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::io::Errno;
use rustix::process::{Signal, kill_process_group};
use rustix::termios::{InputModes, OptionalActions, Winsize};
use rustix::termios::{tcgetattr, tcgetpgrp, tcsetattr, tcsetwinsize};
use tokio::io::unix::AsyncFd;

pub struct Pty {
    master: AsyncFd<Rc<OwnedFd>>,
}

/// Opens a pseudo-terminal, and returns the program's end too. Only the user may open that end again by its name.
pub fn open(uid: u32, gid: u32) -> io::Result<(Pty, OwnedFd)> {
    let (master, slave) = crate::open_pty::open(uid, Some(gid))?;
    let mut modes = tcgetattr(&slave)?;
    // With IUTF8, erasing a character erases all its bytes.
    modes.input_modes |= InputModes::IUTF8;
    tcsetattr(&slave, OptionalActions::Now, &modes)?;
    Ok((Pty { master }, slave))
}

impl Pty {
    /// Waits for output and reads it. 0 when no process has the other end open.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.master.readable().await?;
            // A hang-up keeps the descriptor ready for ever, so waiting again would be a busy loop.
            let is_hung_up = ready.ready().is_read_closed();
            match self.read_now(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && is_hung_up => return Ok(0),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                other => return other,
            }
        }
    }

    pub fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut read = || rustix::io::read(self.master.get_ref(), &mut *buffer);
        // Race: Linux checks for bytes first and for the other end second. If the program writes and closes in between,
        // the read fails with EIO although bytes are there. Only a second EIO means that all bytes have been read.
        match read().or_else(|error| if error == Errno::IO { read() } else { Err(error) }) {
            Err(Errno::IO) => Ok(0),
            other => Ok(other?),
        }
    }

    /// Writes as much as the program's end takes, without waiting.
    pub fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        match rustix::io::write(self.master.get_ref(), bytes) {
            Err(Errno::AGAIN) => Ok(0),
            other => Ok(other?),
        }
    }

    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut ready = self.master.writable().await?;
            let is_hung_up = ready.ready().is_write_closed();
            match self.write_now(bytes)? {
                0 if is_hung_up => return Err(Errno::IO.into()),
                0 => ready.clear_ready(),
                count => bytes = &bytes[count..],
            }
        }
        Ok(())
    }

    pub fn resize(&self, rows: u16, cols: u16) {
        let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
        let _ = tcsetwinsize(self.master.get_ref(), size);
    }

    /// Signals the foreground process group, if there is one.
    pub fn signal(&self, number: i32) {
        if let (Some(signal), Ok(group)) = (Signal::from_named_raw(number), tcgetpgrp(self.master.get_ref()))
        {
            let _ = kill_process_group(group, signal);
        }
    }
}
