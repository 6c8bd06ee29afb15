//! Copies between a channel and a pipe, a terminal or a socket.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};

use crate::channel::Channel;

/// More than the kernel keeps for a terminal or a pipe.
const REST_BYTES: usize = 128 * 1024;
const QUIET: Duration = Duration::from_millis(100);
/// How long a client's last bytes wait to be taken after it has gone.
const LINGERS: Duration = Duration::from_secs(10);

/// Takes `&self`, so that both directions run at the same time.
pub trait Source {
    async fn has_bytes(&self) -> io::Result<()>;
    /// Does not wait.
    fn read(&self, into: &mut [u8]) -> io::Result<usize>;
}

pub trait Sink {
    async fn has_space(&self) -> io::Result<()>;
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;
}

/// Returns when the source ends or the client goes, and with an error when the source fails.
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

/// The bytes left in a source whose writer has ended. Other processes may keep it open and continue writing.
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

/// Returns when the client has sent everything, and with an error when the sink takes no more.
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

/// A sink that takes nothing is given up some time after the client has gone.
async fn lingered(channel: &Channel) {
    channel.gone().await;
    sleep(LINGERS).await;
}

/// Discards what the client sends, so that the client does not wait for ever to send it.
pub async fn drain(channel: &Channel) {
    while channel.has_input().await {
        let _ = channel.take(|bytes| Ok(bytes.len()));
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

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

/// A terminal's own end; it must not block.
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
