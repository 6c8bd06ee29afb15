//! The port to the host: found by name, opened once, resynced for every connection.
//!
//! While no host is connected a read returns 0 at once and polling reports a hang-up that never clears, so an
//! absent host is awaited by the clock and each connection registers the port with the event loop anew.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::sleep;

use crate::log;
use crate::resync::{Resync, Step, is_only_greetings};
use crate::sys;

const PORT_NAME: &str = "vivarium.agent";
const PORTS: &str = "/sys/class/virtio-ports";
const APPEARS_WITHIN: Duration = Duration::from_millis(20);
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LATER_WAIT: Duration = Duration::from_millis(100);
/// The driver takes at most this much in one write.
const WRITE_BYTES: usize = 32 * 1024;

pub struct Port {
    fd: Rc<OwnedFd>,
    /// Greetings that arrived on a connection that was still served.
    early: Rc<RefCell<Vec<u8>>>,
}

impl Port {
    pub async fn open() -> Port {
        loop {
            if let Some(path) = find_port() {
                let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let opened = rustix::fs::open(&path, flags, Mode::empty());
                if let Some(fd) = log::warn("open the port", opened) {
                    let (fd, early) = (Rc::new(fd), Rc::default());
                    return Port { fd, early };
                }
            }
            sleep(APPEARS_WITHIN).await;
        }
    }

    /// Returns when a host has said hello and begun HTTP/2.
    pub async fn accept(&self) -> Connection {
        loop {
            let mut first = self.early.take();
            if first.is_empty() {
                first = self.wait_for_host().await;
            }
            let resynced = match self.connect() {
                Ok(connection) => resync(connection, &first).await,
                Err(error) => Err(error),
            };
            match resynced {
                Ok(connection) => return connection,
                Err(_) => sleep(FIRST_WAIT).await,
            }
        }
    }

    /// Returns what the host has already said, perhaps nothing.
    async fn wait_for_host(&self) -> Vec<u8> {
        let mut buffer = [0; 4096];
        let mut wait = FIRST_WAIT;
        loop {
            match rustix::io::read(&*self.fd, &mut buffer) {
                Ok(count) if count > 0 => return buffer[..count].to_vec(),
                Err(Errno::AGAIN) => return Vec::new(),
                _ => sleep(std::mem::replace(&mut wait, LATER_WAIT)).await,
            }
        }
    }

    fn connect(&self) -> io::Result<Connection> {
        Ok(Connection {
            fd: sys::watch(self.fd.clone())?,
            early: self.early.clone(),
            unread: Vec::new(),
            gathered: Vec::new(),
        })
    }
}

fn find_port() -> Option<PathBuf> {
    let ports = std::fs::read_dir(PORTS).ok()?.flatten();
    let mut named = ports.filter(|port| {
        std::fs::read_to_string(port.path().join("name")).is_ok_and(|name| name.trim_end() == PORT_NAME)
    });
    named.next().map(|port| Path::new("/dev").join(port.file_name()))
}

async fn resync(mut connection: Connection, first: &[u8]) -> io::Result<Connection> {
    let mut resync = Resync::default();
    resync.push(first);
    let mut buffer = [0; 4096];
    loop {
        match resync.step() {
            Step::Answer(line) => connection.write_all(&line).await?,
            Step::Begin(bytes) => {
                connection.unread = bytes;
                return Ok(connection);
            }
            Step::NeedMore => match connection.fill(&mut buffer).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => resync.push(&buffer[..count]),
            },
        }
    }
}

pub struct Connection {
    fd: AsyncFd<Rc<OwnedFd>>,
    early: Rc<RefCell<Vec<u8>>>,
    /// Read during the resync, belongs to HTTP/2.
    unread: Vec<u8>,
    gathered: Vec<u8>,
}

impl Connection {
    async fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_port_read(cx, buffer)).await
    }

    /// The driver hands out at most a page at a time, so it is asked until there is no room or nothing left.
    fn poll_port_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut filled = 0;
        loop {
            let mut ready = match self.fd.poll_read_ready(cx)? {
                Poll::Ready(ready) => ready,
                Poll::Pending if filled > 0 => return Poll::Ready(Ok(filled)),
                Poll::Pending => return Poll::Pending,
            };
            match rustix::io::read(self.fd.get_ref(), &mut into[filled..]) {
                Err(Errno::AGAIN) if ready.ready().is_read_closed() && filled == 0 => return hung_up(),
                Err(Errno::AGAIN) if filled > 0 => return Poll::Ready(Ok(filled)),
                Err(Errno::AGAIN) => ready.clear_ready(),
                Ok(count) if count > 0 && filled + count < into.len() => filled += count,
                Ok(count) => return Poll::Ready(Ok(filled + count)),
                Err(error) if filled == 0 => return Poll::Ready(Err(error.into())),
                Err(_) => return Poll::Ready(Ok(filled)),
            }
        }
    }
}

/// The host went and perhaps came back: what it says now is no continuation.
fn hung_up<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            let count = self.unread.len().min(into.remaining());
            into.put_slice(&self.unread[..count]);
            self.unread.drain(..count);
            return Poll::Ready(Ok(()));
        }
        let space = into.initialize_unfilled();
        let count = ready!(self.poll_port_read(cx, space))?;
        if is_only_greetings(&space[..count]) {
            self.early.borrow_mut().extend_from_slice(&space[..count]);
            return hung_up();
        }
        into.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let bytes = &bytes[..bytes.len().min(WRITE_BYTES)];
        loop {
            let mut ready = ready!(self.fd.poll_write_ready(cx))?;
            match rustix::io::write(self.fd.get_ref(), bytes) {
                Err(Errno::AGAIN) if ready.ready().is_write_closed() => return hung_up(),
                Err(Errno::AGAIN) => ready.clear_ready(),
                other => return Poll::Ready(other.map_err(io::Error::from)),
            }
        }
    }

    /// One write is one buffer and one wake-up of the host, so a frame's header and payload go together.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.clear();
        for slice in slices {
            let space = WRITE_BYTES - gathered.len();
            gathered.extend_from_slice(&slice[..slice.len().min(space)]);
        }
        let written = self.as_mut().poll_write(cx, &gathered);
        self.gathered = gathered;
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
