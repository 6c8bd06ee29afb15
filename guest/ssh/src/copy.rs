//! Copies bytes between a channel and a pipe, a terminal or a socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};

use crate::channel::Channel;

/// Limit of the bytes sent after a program's end, more than the kernel buffers for a terminal or a pipe.
const REST_BYTES: usize = 128 * 1024;
/// How long to wait for more bytes after a program's end.
const QUIET: Duration = Duration::from_millis(100);
/// How long bytes of a client that has gone are kept for a sink that does not take them.
const LINGERS: Duration = Duration::from_secs(10);

/// A descriptor to read from. Its methods take `&self`, so that both directions run at the same time.
pub trait Source {
    async fn has_bytes(&self) -> io::Result<()>;
    /// Reads without waiting.
    fn read(&self, into: &mut [u8]) -> io::Result<usize>;
}

pub trait Sink {
    async fn has_space(&self) -> io::Result<()>;
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;
}

/// Copies until the source ends or the client goes. Returns an error of the source.
pub async fn to_client(channel: &Channel, kind: Option<u32>, source: &impl Source) -> io::Result<()> {
    while channel.has_space().await {
        let has_bytes = tokio::select! {
            has_bytes = source.has_bytes() => has_bytes,
            () = channel.gone() => return Ok(()),
        };
        let sent = has_bytes.and_then(|()| channel.send_piece(kind, |into| source.read(into)));
        match sent {
            Ok(0) => return Ok(()),
            Err(error) if !is_passing(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Copies the bytes left in a source whose program has ended. Other processes may still write to it.
pub async fn rest_to_client(channel: &Channel, source: &impl Source) {
    let mut left = REST_BYTES;
    while left > 0 && channel.has_space().await {
        let Ok(Ok(())) = timeout(QUIET, source.has_bytes()).await else { return };
        match channel.send_piece(None, |into| {
            let most = left.min(into.len());
            source.read(&mut into[..most])
        }) {
            Ok(0) => return,
            Ok(count) => left -= count,
            Err(error) if !is_passing(&error) => return,
            _ => {}
        }
    }
}

/// Copies until the client's input ends. Returns an error of the sink.
pub async fn from_client(channel: &Channel, sink: &impl Sink) -> io::Result<()> {
    while channel.has_input().await {
        let has_space = tokio::select! {
            has_space = sink.has_space() => has_space,
            () = lingered(channel) => return Ok(()),
        };
        match has_space.and_then(|()| channel.take(|bytes| sink.write(bytes))) {
            Err(error) if !is_passing(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Returns some time after the client has gone, when a sink that takes nothing is given up.
async fn lingered(channel: &Channel) {
    channel.gone().await;
    sleep(LINGERS).await;
}

/// Discards the client's input, so that the client does not wait for ever to send it.
pub async fn drain(channel: &Channel) {
    while channel.has_input().await {
        let _ = channel.take(|bytes| Ok(bytes.len()));
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

pub trait Socket: Source + Sink + AsFd + 'static {}
impl Socket for TcpStream {}
impl Socket for UnixStream {}

macro_rules! sources {
    ($($kind:ty),*) => {$(
        impl Source for $kind {
            async fn has_bytes(&self) -> io::Result<()> {
                self.readable().await
            }

            fn read(&self, into: &mut [u8]) -> io::Result<usize> {
                self.try_read(into)
            }
        }
    )*};
}

macro_rules! sinks {
    ($($kind:ty),*) => {$(
        impl Sink for $kind {
            async fn has_space(&self) -> io::Result<()> {
                self.writable().await
            }

            fn write(&self, bytes: &[u8]) -> io::Result<usize> {
                self.try_write(bytes)
            }
        }
    )*};
}

sources!(pipe::Receiver, TcpStream, UnixStream);
sinks!(pipe::Sender, TcpStream, UnixStream);

/// The server's end of a terminal, which does not block.
impl Source for AsyncFd<Rc<OwnedFd>> {
    async fn has_bytes(&self) -> io::Result<()> {
        self.readable().await.map(|mut ready| ready.retain_ready())
    }

    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        self.try_io(tokio::io::Interest::READABLE, |fd| Ok(rustix::io::read(fd, into)?))
    }
}

impl Sink for AsyncFd<Rc<OwnedFd>> {
    async fn has_space(&self) -> io::Result<()> {
        self.writable().await.map(|mut ready| ready.retain_ready())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_io(tokio::io::Interest::WRITABLE, |fd| Ok(rustix::io::write(fd, bytes)?))
    }
}
