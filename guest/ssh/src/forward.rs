//! Channels that lead on to a socket, and sockets that lead back to the client.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
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
use crate::copy::{self, Sink, Source};
use crate::host::Host;
use crate::mux::Mux;
use crate::wire::Message;

const CONNECTS_WITHIN: Duration = Duration::from_secs(20);
/// A listener that cannot accept for want of descriptors tries again.
const TRIES_AGAIN: Duration = Duration::from_millis(100);
const BACKLOG: i32 = 128;
const LAST_PRIVILEGED_PORT: u16 = 1023;

/// Both directions, until both have ended. The end of one is passed on while the other still runs.
async fn join(channel: &Channel, socket: &(impl Source + Sink + std::os::fd::AsFd)) {
    let input = async {
        copy::from_client(channel, socket).await;
        let _ = shutdown(socket, Shutdown::Write);
    };
    let output = async {
        copy::to_client(channel, None, socket).await;
        channel.send_eof();
    };
    tokio::join!(input, output);
    channel.close();
}

pub async fn to_tcp(channel: Rc<Channel>, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    join(&channel, &stream).await;
}

pub async fn to_unix(channel: Rc<Channel>, stream: UnixStream) {
    join(&channel, &stream).await;
}

pub async fn connect_tcp(host: &dyn Host, name: &str, port: u16) -> io::Result<TcpStream> {
    timeout(CONNECTS_WITHIN, host.dial(name, port)).await?
}

/// With the user's rights, also in the eyes of a server that asks who connected.
pub fn connect_unix(path: &str, host: &dyn Host) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let socket = unix_socket()?;
    host.as_user(&mut || Ok(connect(&socket, &address)?))?;
    UnixStream::from_std(socket.into())
}

fn unix_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// For the user alone.
pub fn listen_unix(path: &str, host: &dyn Host) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new(path)?;
    let socket = unix_socket()?;
    let before = umask(Mode::from_raw_mode(0o177));
    let bound = host.as_user(&mut || Ok(bind(&socket, &address)?));
    umask(before);
    bound?;
    listen(&socket, BACKLOG)?;
    UnixListener::from_std(socket.into())
}

/// Where a client's word for an address is: without one, or with a star, everywhere.
fn bound_address(name: &str) -> Option<IpAddr> {
    match name {
        "" | "*" => Some(Ipv4Addr::UNSPECIFIED.into()),
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        name => name.parse().ok(),
    }
}

pub async fn listen_tcp(name: &str, port: u16) -> io::Result<TcpListener> {
    let refuse = |kind, words: &str| Err(io::Error::new(kind, words.to_owned()));
    let Some(address) = bound_address(name) else {
        return refuse(io::ErrorKind::InvalidInput, "no address of this machine");
    };
    // The agent could; the user may not.
    if (1..=LAST_PRIVILEGED_PORT).contains(&port) {
        return refuse(io::ErrorKind::PermissionDenied, "the port is root's");
    }
    TcpListener::bind(SocketAddr::new(address, port)).await
}

/// Each connection becomes a channel to the client, which knows the port by the name and number it asked for.
pub async fn serve_tcp(mux: Rc<Mux>, listener: TcpListener, name: String) {
    let port = listener.local_addr().map(|address| address.port()).unwrap_or_default();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(TRIES_AGAIN).await;
            continue;
        };
        let details = Message::part().string(&name).u32(port.into());
        let details = details.string(peer.ip().to_string()).u32(peer.port().into());
        let mux = mux.clone();
        spawn_local(async move {
            if let Some(channel) = mux.open("forwarded-tcpip", details).await {
                to_tcp(channel, stream).await;
            }
        });
    }
}

pub async fn serve_unix(mux: Rc<Mux>, listener: UnixListener, kind: &'static str, path: Option<String>) {
    let _bound = path.clone().map(|path| Bound { path, host: mux.host.clone() });
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(TRIES_AGAIN).await;
            continue;
        };
        let details = match &path {
            Some(path) => Message::part().string(path).string(""),
            None => Message::part(),
        };
        let mux = mux.clone();
        spawn_local(async move {
            if let Some(channel) = mux.open(kind, details).await {
                to_unix(channel, stream).await;
            }
        });
    }
}

/// A path that ends with its listener, else the next one could not have it.
struct Bound {
    path: String,
    host: Rc<dyn Host>,
}

impl Drop for Bound {
    fn drop(&mut self) {
        let removed = self.host.as_user(&mut || std::fs::remove_file(&self.path));
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_says_where_its_port_is_reached() {
        assert_eq!(bound_address(""), Some(Ipv4Addr::UNSPECIFIED.into()));
        assert_eq!(bound_address("localhost"), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(bound_address("::1").map(|address| address.is_loopback()), Some(true));
        assert_eq!(bound_address("elsewhere"), None);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn ports_of_root_are_not_the_users() {
        let kind = |port| async move { listen_tcp("localhost", port).await.map_err(|error| error.kind()) };
        assert_eq!(kind(80).await.unwrap_err(), io::ErrorKind::PermissionDenied);
        assert!(kind(0).await.is_ok());
    }
}
