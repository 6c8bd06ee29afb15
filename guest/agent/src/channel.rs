//! The virtio-serial port to the host: found by name, opened once, resynced for every connection.
//!
//! While no host is connected, a read returns 0 at once and polling reports a hang-up that never clears. So a timer polls
//! for a host, and each connection registers the port with the event loop anew.

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
use tokio::time::{Sleep, sleep};

use crate::frame_lengths::FrameLengths;
use crate::log;
use crate::resync::{Resync, Step, is_only_greetings};
use crate::sys;

const PORT_NAME: &str = "vivarium.agent";
const PORTS: &str = "/sys/class/virtio-ports";
/// Interval of the checks whether the port exists.
const PORT_CHECK: Duration = Duration::from_millis(20);
/// Wait before the second read of a port without a host, and after a connection that failed.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// Interval of further reads of a port without a host.
const LATER_WAIT: Duration = Duration::from_millis(100);
/// How long to wait for the rest of a payload that contains greetings, before they count as those of a new host.
const PAYLOAD_CONTINUES_WITHIN: Duration = Duration::from_secs(1);
/// Limit of the bytes that the driver takes in one write.
const WRITE_BYTES: usize = 32 * 1024;

pub struct Port {
    fd: Rc<OwnedFd>,
    /// Greetings of the next host, which arrived on the connection before.
    early: Rc<RefCell<Vec<u8>>>,
}

impl Port {
    pub async fn open() -> Port {
        loop {
            if let Some(path) = find_port() {
                let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let opened = rustix::fs::open(&path, flags, Mode::empty());
                if let Some(fd) = log::warn("open the port", opened) {
                    return Port { fd: Rc::new(fd), early: Rc::default() };
                }
            }
            sleep(PORT_CHECK).await;
        }
    }

    /// Returns when a host has greeted and begun HTTP/2.
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

    /// Returns the bytes that the host has already sent, perhaps none.
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
            lengths: FrameLengths::new(),
            held: Vec::new(),
            held_since: None,
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
    /// Bytes for HTTP/2 that were read from the port but not taken yet.
    unread: Vec<u8>,
    lengths: FrameLengths,
    /// Greetings in the middle of a payload, held back: they are a new host's, or part of the payload.
    held: Vec<u8>,
    held_since: Option<Pin<Box<Sleep>>>,
    /// Buffer for the parts of a vectored write.
    gathered: Vec<u8>,
}

impl Connection {
    async fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut into = ReadBuf::new(buffer);
        std::future::poll_fn(|cx| self.poll_port_read(cx, &mut into)).await?;
        Ok(into.filled().len())
    }

    /// Reads until the buffer is full or the port is empty: the driver returns at most a page per read.
    fn poll_port_read(&self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut is_empty = true;
        loop {
            let mut ready = match self.fd.poll_read_ready(cx)? {
                Poll::Ready(ready) => ready,
                Poll::Pending if is_empty => return Poll::Pending,
                Poll::Pending => return Poll::Ready(Ok(())),
            };
            match sys::read_into(self.fd.get_ref(), into) {
                Err(Errno::AGAIN) if !is_empty => return Poll::Ready(Ok(())),
                Err(Errno::AGAIN) if ready.ready().is_read_closed() => return hung_up(),
                Err(Errno::AGAIN) => ready.clear_ready(),
                Ok(count) if count > 0 && into.remaining() > 0 => is_empty = false,
                Err(error) if is_empty => return Poll::Ready(Err(error.into())),
                _ => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Ready when no more bytes came in time: the held greetings are a new host's, and are passed to its connection. A
    /// host sends a payload without a pause; a new host repeats one greeting and sends nothing else.
    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let since = self.held_since.get_or_insert_with(|| Box::pin(sleep(PAYLOAD_CONTINUES_WITHIN)));
        ready!(since.as_mut().poll(cx));
        self.held_since = None;
        self.early.borrow_mut().append(&mut self.held);
        Poll::Ready(())
    }

    /// Holds a chunk back while it may be a new host's greetings, and forwards all once it is part of the payload.
    fn hold(&mut self, chunk: &[u8]) {
        self.held.extend_from_slice(chunk);
        if !is_only_greetings(&self.held) || self.held.len() >= self.lengths.payload_left() {
            self.held_since = None;
            self.unread.append(&mut self.held);
        }
    }

    fn take_unread(&mut self, into: &mut ReadBuf<'_>) {
        let count = self.unread.len().min(into.remaining());
        into.put_slice(&self.unread[..count]);
        self.lengths.pass(&self.unread[..count]);
        self.unread.drain(..count);
    }
}

/// The error that ends a connection: the host went, and bytes that follow belong to a new connection.
fn hung_up<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.unread.is_empty() {
            let before = into.filled().len();
            match self.poll_port_read(cx, into) {
                Poll::Pending if !self.held.is_empty() => {
                    ready!(self.poll_held(cx));
                    return hung_up();
                }
                other => ready!(other)?,
            }
            let chunk = &into.filled()[before..];
            if self.held.is_empty() && !is_only_greetings(chunk) {
                self.lengths.pass(chunk);
                return Poll::Ready(Ok(()));
            }
            if chunk.is_empty() || self.lengths.payload_left() == 0 {
                self.early.borrow_mut().extend_from_slice(chunk);
                into.set_filled(before);
                return hung_up();
            }
            self.hold(chunk);
            into.set_filled(before);
        }
        self.take_unread(into);
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

    /// Sends the slices in one write where they fit: each write is one buffer and one wake-up of the host.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // A single slice, or a first slice that fills a write, is sent without a copy.
        let mut parts = slices.iter().filter(|slice| !slice.is_empty());
        if let (Some(first), next) = (parts.next(), parts.next()) {
            if next.is_none() || first.len() >= WRITE_BYTES {
                return self.poll_write(cx, first);
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::run;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use tokio::io::AsyncReadExt;

    const HELLO: &[u8] = b"HELLO 0123456789abcdef0123456789abcdef\n";
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    fn frame_header(bytes: usize) -> [u8; 9] {
        [0, (bytes >> 8) as u8, bytes as u8, 0, 0, 0, 0, 0, 1]
    }

    /// The host's end, and the agent's that HTTP/2 has begun on.
    async fn begun() -> (UnixStream, Connection) {
        let (mut host, port) = UnixStream::pair().unwrap();
        port.set_nonblocking(true).unwrap();
        let port = Port { fd: Rc::new(port.into()), early: Rc::default() };
        host.write_all(PREFACE).unwrap();
        let mut connection = port.connect().unwrap();
        connection.read_exact(&mut [0; PREFACE.len()]).await.unwrap();
        (host, connection)
    }

    async fn read(connection: &mut Connection, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        connection.read_exact(&mut read).await.unwrap();
        read
    }

    #[test]
    fn a_payload_made_of_greetings_passes_however_it_is_cut() {
        run(async {
            let (mut host, mut connection) = begun().await;
            let payload = HELLO.repeat(20);
            for first in [1, 2, 19] {
                host.write_all(&frame_header(payload.len())).unwrap();
                assert_eq!(read(&mut connection, 9).await, frame_header(payload.len()));
                let (now, later) = payload.split_at(first * HELLO.len());
                host.write_all(now).unwrap();
                let mut rest = host.try_clone().unwrap();
                let later = later.to_vec();
                let sending = tokio::task::spawn_local(async move {
                    sleep(Duration::from_millis(20)).await;
                    rest.write_all(&later).unwrap();
                });
                assert_eq!(read(&mut connection, payload.len()).await, payload, "{first}");
                sending.await.unwrap();
            }
        });
    }

    #[test]
    fn a_greeting_between_frames_or_that_nothing_follows_is_a_new_hosts() {
        run(async {
            for bytes_of_payload in [0, 100] {
                let (mut host, mut connection) = begun().await;
                host.write_all(&frame_header(bytes_of_payload)).unwrap();
                read(&mut connection, 9).await;
                host.write_all(HELLO).unwrap();
                let ended = connection.read(&mut [0; 4096]).await.unwrap_err();
                assert_eq!(ended.kind(), io::ErrorKind::ConnectionReset);
                assert_eq!(*connection.early.borrow(), HELLO);
            }
        });
    }
}
