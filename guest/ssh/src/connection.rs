//! Serves one connection: the login (RFC 4252), and the dispatch of messages to channels (RFC 4254).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::timeout;

use crate::broken::{self, Broken, Reason};
use crate::channel::Peer;
use crate::forward;
use crate::host::Host;
use crate::link::Link;
use crate::messages::*;
use crate::mux::{CHANNELS, Mux};
use crate::session::Session;
use crate::transport::Transport;
use crate::wire::{Message, Reader};

const LISTENERS: usize = 64;
/// Time limit for sending the last messages.
const LEAVES_WITHIN: Duration = Duration::from_secs(5);

const CONNECT_FAILED: u32 = 2;
const UNKNOWN_CHANNEL_TYPE: u32 = 3;
const RESOURCE_SHORTAGE: u32 = 4;
const PUBLIC_KEY_OK: u8 = 60;

/// The source of the client's bytes.
pub trait Input {
    /// The next bytes; None when the client has gone.
    fn next(&mut self) -> impl Future<Output = Option<Bytes>>;
}

/// Serves a client until either side has ended the connection.
pub async fn serve(host: Rc<dyn Host>, mut input: impl Input, output: mpsc::Sender<Bytes>) {
    let link = Rc::new(Link::new());
    let connection = Rc::new(Connection::new(Mux::new(host, link.clone())));
    let reading = async {
        if let Err(Broken { report: Some((reason, words)) }) = read(&connection, &mut input).await {
            let message = Message::new(DISCONNECT).u32(reason as u32).string(words).string("");
            link.send_at_once(message.as_ref());
        }
        link.end();
    };
    let mut sending = std::pin::pin!(link.run(output));
    tokio::select! {
        () = &mut sending => {}
        () = reading => drop(timeout(LEAVES_WITHIN, &mut sending).await),
    }
    connection.leave();
}

async fn read(connection: &Rc<Connection>, input: &mut impl Input) -> Result<(), Broken> {
    let Mux { host, link, .. } = &*connection.mux;
    let signer = host.host_key().signer().map_err(|error| Broken::protocol(error.to_string()))?;
    let mut transport = Transport::new(link.clone(), signer)?;
    loop {
        while let Some(message) = transport.next()? {
            connection.handle(&message).await?;
            link.wait_until_drained().await?;
        }
        match input.next().await {
            Some(bytes) => transport.push(&bytes),
            None => return Ok(()),
        }
    }
}

/// What a forwarded listener listens on: an address and a port, or a path and 0.
type Listened = (Vec<u8>, u32);

struct Connection {
    mux: Rc<Mux>,
    is_logged_in: Cell<bool>,
    /// Sessions, by the number of their channel.
    sessions: RefCell<HashMap<u32, Rc<Session>>>,
    /// Number of channels that wait for a connection to their socket.
    connecting: Cell<usize>,
    listeners: RefCell<HashMap<Listened, AbortHandle>>,
}

impl Connection {
    fn new(mux: Mux) -> Self {
        Connection {
            mux: Rc::new(mux),
            is_logged_in: Cell::new(false),
            sessions: RefCell::default(),
            connecting: Cell::new(0),
            listeners: RefCell::default(),
        }
    }

    fn leave(&self) {
        self.listeners.take().into_values().for_each(|listener| listener.abort());
        self.sessions.take();
        self.mux.leave();
    }

    async fn handle(self: &Rc<Self>, message: &[u8]) -> Result<(), Broken> {
        let (kind, body) = message.split_first().ok_or_else(Broken::cut_off)?;
        let mut body = Reader::new(body);
        match (*kind, self.is_logged_in.get()) {
            (SERVICE_REQUEST, false) => self.offer_service(body.string()?),
            (USERAUTH_REQUEST, false) => self.log_in(&mut body),
            // A repeated request is ignored.
            (USERAUTH_REQUEST, true) => Ok(()),
            (GLOBAL_REQUEST, true) => self.global_request(&mut body).await,
            (CHANNEL_OPEN, true) => self.open_channel(&mut body),
            (CHANNEL_OPEN_CONFIRMATION..=CHANNEL_FAILURE, true) => self.to_channel(*kind, &mut body),
            // Answers to requests that wanted none, and announcements, are ignored.
            (REQUEST_SUCCESS | REQUEST_FAILURE, true) => Ok(()),
            (EXT_INFO, _) => Ok(()),
            (kind, _) => Err(Broken::protocol(format!("message {kind} does not belong here"))),
        }
    }

    fn offer_service(&self, name: &[u8]) -> Result<(), Broken> {
        if name != b"ssh-userauth" {
            return Err(Broken::protocol("the only service before the login is ssh-userauth"));
        }
        self.mux.link.send(Message::new(SERVICE_ACCEPT).string(name));
        Ok(())
    }

    /// Logs the user in. Every method is accepted, also `none`; only the user's name is checked.
    fn log_in(&self, request: &mut Reader) -> Result<(), Broken> {
        let (user, service, method) = (request.string()?, request.string()?, request.string()?);
        if service != b"ssh-connection" {
            return Err(Broken::protocol("the only service after the login is ssh-connection"));
        }
        let known = self.mux.host.user();
        if user != known.as_bytes() {
            let words = match user {
                b"root" => format!("root cannot log in: use {known}@ and, where the session allows it, sudo"),
                _ => format!("there is no such user here: use {known}@"),
            };
            return Err(Broken::new(Reason::NoMoreAuthMethods, words));
        }
        if method == b"publickey" && !request.bool()? {
            // The client asks whether the key is acceptable, before it signs.
            let (algorithm, key) = (request.string()?, request.string()?);
            self.mux.link.send(Message::new(PUBLIC_KEY_OK).string(algorithm).string(key));
            return Ok(());
        }
        self.is_logged_in.set(true);
        self.mux.link.send(Message::new(USERAUTH_SUCCESS));
        Ok(())
    }

    async fn global_request(self: &Rc<Self>, request: &mut Reader<'_>) -> Result<(), Broken> {
        let (name, wants_answer) = (request.string()?, request.bool()?);
        let answer = match name {
            b"tcpip-forward" => self.listen_tcp(request.string()?, request.u32()?).await,
            b"streamlocal-forward@openssh.com" => self.listen_unix(request.string()?),
            b"cancel-tcpip-forward" => self.unlisten((request.string()?.into(), request.u32()?)),
            b"cancel-streamlocal-forward@openssh.com" => self.unlisten((request.string()?.into(), 0)),
            // For example keepalive@openssh.com, which is satisfied by any answer.
            _ => Err(io::ErrorKind::Unsupported.into()),
        };
        if wants_answer {
            self.mux.link.send(match answer {
                Ok(details) => Message::new(REQUEST_SUCCESS).bytes(details.as_ref()),
                Err(_) => Message::new(REQUEST_FAILURE),
            });
        }
        Ok(())
    }

    /// Listens for the client. The answer contains the port if the client asked for port 0.
    async fn listen_tcp(self: &Rc<Self>, name: &[u8], asked: u32) -> io::Result<Message> {
        let port = u16::try_from(asked).map_err(io::Error::other)?;
        self.check_listeners()?;
        let listener = forward::listen_tcp(name, port).await?;
        let port = u32::from(listener.local_addr()?.port());
        let serving = spawn_local(forward::serve_tcp(self.mux.clone(), listener, name.into()));
        self.listeners.borrow_mut().insert((name.into(), port), serving.abort_handle());
        Ok(if asked == 0 { Message::part().u32(port) } else { Message::part() })
    }

    fn listen_unix(self: &Rc<Self>, path: &[u8]) -> io::Result<Message> {
        self.check_listeners()?;
        let listener = forward::listen_unix(path, &*self.mux.host)?;
        let kind = "forwarded-streamlocal@openssh.com";
        let serving = spawn_local(forward::serve_unix(self.mux.clone(), listener, kind, Some(path.into())));
        self.listeners.borrow_mut().insert((path.into(), 0), serving.abort_handle());
        Ok(Message::part())
    }

    fn check_listeners(&self) -> io::Result<()> {
        match self.listeners.borrow().len() < LISTENERS {
            true => Ok(()),
            false => Err(io::ErrorKind::QuotaExceeded.into()),
        }
    }

    fn unlisten(&self, listened: Listened) -> io::Result<Message> {
        let serving = self.listeners.borrow_mut().remove(&listened);
        serving.ok_or(io::ErrorKind::NotFound)?.abort();
        Ok(Message::part())
    }

    fn open_channel(self: &Rc<Self>, request: &mut Reader) -> Result<(), Broken> {
        let kind = request.string()?;
        let peer = Peer { id: request.u32()?, window: request.u32()?, packet: request.u32()? };
        if self.mux.count() + self.connecting.get() >= CHANNELS {
            self.mux.refuse(peer, RESOURCE_SHORTAGE, "too many channels are open");
            return Ok(());
        }
        match kind {
            b"session" => {
                if let Some(channel) = self.mux.accept(peer) {
                    self.sessions.borrow_mut().insert(channel.id(), Rc::new(Session::new(channel)));
                }
            }
            b"direct-tcpip" => {
                let (name, port) = (request.string()?.to_owned(), request.u32()?);
                let mux = self.mux.clone();
                self.connect_channel(peer, async move {
                    let port = u16::try_from(port).map_err(io::Error::other)?;
                    let name = std::str::from_utf8(&name).map_err(io::Error::other)?;
                    let stream = forward::connect_tcp(&*mux.host, name, port).await?;
                    mux.accept(peer).map(|channel| spawn_local(forward::join(channel, stream)));
                    Ok(())
                });
            }
            b"direct-streamlocal@openssh.com" => {
                let path = request.string()?.to_owned();
                let mux = self.mux.clone();
                self.connect_channel(peer, async move {
                    let stream = forward::connect_unix(&path, &*mux.host)?;
                    mux.accept(peer).map(|channel| spawn_local(forward::join(channel, stream)));
                    Ok(())
                });
            }
            _ => self.mux.refuse(peer, UNKNOWN_CHANNEL_TYPE, "there are no such channels here"),
        }
        Ok(())
    }

    /// Connects a channel in a task of its own, so that other messages are not delayed.
    fn connect_channel(
        self: &Rc<Self>,
        peer: Peer,
        connecting: impl Future<Output = io::Result<()>> + 'static,
    ) {
        self.connecting.set(self.connecting.get() + 1);
        let connection = self.clone();
        spawn_local(async move {
            let connected = connecting.await;
            connection.connecting.set(connection.connecting.get() - 1);
            if let Err(error) = connected {
                connection.mux.refuse(peer, CONNECT_FAILED, &broken::words_of(&error));
            }
        });
    }

    fn to_channel(self: &Rc<Self>, kind: u8, body: &mut Reader) -> Result<(), Broken> {
        let id = body.u32()?;
        let channel = self.mux.channel(id);
        let is_answer = matches!(kind, CHANNEL_OPEN_CONFIRMATION | CHANNEL_OPEN_FAILURE);
        let channel = channel
            .filter(|channel| channel.is_asked() == is_answer)
            .ok_or_else(|| Broken::protocol(format!("message {kind} for channel {id}, which is not open")))?;
        match kind {
            CHANNEL_OPEN_CONFIRMATION => {
                channel.confirm(Peer { id: body.u32()?, window: body.u32()?, packet: body.u32()? });
            }
            CHANNEL_OPEN_FAILURE => {
                self.mux.remove(id);
                channel.refuse();
            }
            CHANNEL_WINDOW_ADJUST => channel.widen(body.u32()?),
            CHANNEL_DATA => channel.receive(body.string()?)?,
            CHANNEL_EOF => channel.receive_eof(),
            CHANNEL_CLOSE => {
                self.mux.remove(id);
                self.sessions.borrow_mut().remove(&id);
                channel.leave();
                channel.close();
            }
            CHANNEL_REQUEST => {
                let (name, wants_answer) = (body.string()?, body.bool()?);
                let session = self.sessions.borrow().get(&id).cloned();
                let is_done = match session {
                    Some(session) => session.request(&self.mux, name, body)?,
                    None => false,
                };
                if wants_answer {
                    channel.answer(is_done);
                }
            }
            CHANNEL_SUCCESS | CHANNEL_FAILURE => {}
            kind => return Err(Broken::protocol(format!("message {kind} is not for this side"))),
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "connection_test.rs"]
mod tests;
