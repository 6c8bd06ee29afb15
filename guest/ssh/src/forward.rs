//! Forwards channels to sockets, and connections of listening sockets to the client.

use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, shutdown,
    socket_with,
};
use rustix::process::umask;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use crate::channel::Channel;
use crate::copy::{self, Socket};
use crate::host::Host;
use crate::mux::Mux;
use crate::wire::Message;

/// Time limit of a connection to a forwarded address.
const CONNECTS_WITHIN: Duration = Duration::from_secs(20);
/// Pause after a failed accept, for example for want of descriptors.
const TRIES_AGAIN: Duration = Duration::from_millis(100);
const BACKLOG: i32 = 128;
const LAST_PRIVILEGED_PORT: u16 = 1023;

/// Copies in both directions until both have ended; the end of one direction is passed on as an end of file. A socket that
/// cannot be read has lost its far end: the channel is closed at once, so that the client stops sending. A socket that only
/// cannot be written is still read; the client's input is not taken any more, so it sends at most one more window.
pub async fn join(channel: Rc<Channel>, socket: impl Socket) {
    let input = async {
        let _ = copy::from_client(&channel, &socket).await;
        let _ = shutdown(&socket, Shutdown::Write);
        Ok(())
    };
    let output = async {
        let ended = copy::to_client(&channel, None, &socket).await;
        channel.send_eof();
        ended
    };
    let _ = tokio::try_join!(input, output);
    channel.close();
}

pub async fn connect_tcp(host: &dyn Host, name: &str, port: u16) -> io::Result<TcpStream> {
    let stream = timeout(CONNECTS_WITHIN, host.dial(name, port)).await??;
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Connects as the user, which a server sees in the peer's credentials too.
pub fn connect_unix(path: &[u8], host: &dyn Host) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let socket = unix_socket()?;
    host.as_user(&mut || Ok(connect(&socket, &address)?))?;
    UnixStream::from_std(socket.into())
}

fn unix_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Listens on a socket that only the user may connect to.
pub fn listen_unix(path: &[u8], host: &dyn Host) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new(path)?;
    let socket = unix_socket()?;
    let before = umask(Mode::from_raw_mode(0o177));
    let bound = host.as_user(&mut || Ok(bind(&socket, &address)?));
    umask(before);
    bound?;
    listen(&socket, BACKLOG)?;
    UnixListener::from_std(socket.into())
}

/// The address of a listener by the client's name for it; no name or `*` means all addresses.
fn bound_address(name: &str) -> Option<IpAddr> {
    match name {
        "" | "*" => Some(Ipv4Addr::UNSPECIFIED.into()),
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        name => name.parse().ok(),
    }
}

pub async fn listen_tcp(name: &[u8], port: u16) -> io::Result<TcpListener> {
    let refuse = |kind, words: &str| Err(io::Error::new(kind, words.to_owned()));
    let Some(address) = std::str::from_utf8(name).ok().and_then(bound_address) else {
        return refuse(io::ErrorKind::InvalidInput, "no address of this machine");
    };
    // The agent is root and could bind the port, but the user may not.
    if (1..=LAST_PRIVILEGED_PORT).contains(&port) {
        return refuse(io::ErrorKind::PermissionDenied, "the port is root's");
    }
    TcpListener::bind(SocketAddr::new(address, port)).await
}

/// Forwards each connection to the client, with the address and port that the client asked for.
pub async fn serve_tcp(mux: Rc<Mux>, listener: TcpListener, name: Vec<u8>) {
    let port = listener.local_addr().map(|address| address.port()).unwrap_or_default();
    serve(mux, "forwarded-tcpip", async || {
        let (stream, peer) = listener.accept().await?;
        let _ = stream.set_nodelay(true);
        let details = Message::part().string(&name).u32(port.into());
        Ok((stream, details.string(peer.ip().to_string()).u32(peer.port().into())))
    })
    .await
}

pub async fn serve_unix(mux: Rc<Mux>, listener: UnixListener, kind: &'static str, path: Option<Vec<u8>>) {
    let _bound = path.clone().map(|path| Bound { path, host: mux.host.clone() });
    serve(mux, kind, async || {
        let (stream, _) = listener.accept().await?;
        let details = Message::part();
        Ok((stream, path.iter().fold(details, |details, path| details.string(path).string(""))))
    })
    .await
}

/// Opens a channel of this kind to the client for each accepted connection.
async fn serve<S: Socket>(
    mux: Rc<Mux>,
    kind: &'static str,
    accept: impl AsyncFn() -> io::Result<(S, Message)>,
) {
    loop {
        let Ok((socket, details)) = accept().await else {
            sleep(TRIES_AGAIN).await;
            continue;
        };
        let mux = mux.clone();
        spawn_local(async move {
            if let Some(channel) = mux.open(kind, details).await {
                join(channel, socket).await;
            }
        });
    }
}

/// The path of a listening socket. Removed when dropped, so that another listener can use it.
struct Bound {
    path: Vec<u8>,
    host: Rc<dyn Host>,
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = self.host.as_user(&mut || std::fs::remove_file(OsStr::from_bytes(&self.path)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Peer;
    use crate::link::Link;
    use rustix::net::sockopt::set_socket_linger;

    /// The forwarding ends only when it has closed its channel.
    #[tokio::test(flavor = "current_thread")]
    async fn a_client_learns_that_the_other_end_of_a_socket_has_gone() {
        for (is_reset, writes) in [(true, false), (true, true), (false, true)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (far, _) = listener.accept().await.unwrap();
            let peer = Peer { id: 5, window: u32::MAX, packet: 1024 };
            let channel = Rc::new(Channel::accepted(Rc::new(Link::new()), 0, peer));
            if is_reset {
                set_socket_linger(&far, Some(Duration::ZERO)).unwrap();
            }
            drop(far);
            let write = async {
                if !writes {
                    std::future::pending::<()>().await;
                }
                loop {
                    channel.receive(b"x").unwrap();
                    sleep(Duration::from_millis(1)).await;
                }
            };
            let forwarding = timeout(Duration::from_secs(5), join(channel.clone(), near));
            tokio::select! {
                ended = forwarding => assert!(ended.is_ok(), "{is_reset} {writes}"),
                () = write => unreachable!(),
            }
        }
    }

    #[test]
    fn an_address_to_listen_on_is_a_name_or_a_number() {
        assert_eq!(bound_address(""), Some(Ipv4Addr::UNSPECIFIED.into()));
        assert_eq!(bound_address("localhost"), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(bound_address("::1").map(|address| address.is_loopback()), Some(true));
        assert_eq!(bound_address("elsewhere"), None);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn ports_of_root_are_not_the_users() {
        let kind = |port| async move { listen_tcp(b"localhost", port).await.map_err(|error| error.kind()) };
        assert_eq!(kind(80).await.unwrap_err(), io::ErrorKind::PermissionDenied);
        assert!(kind(0).await.is_ok());
    }
}
