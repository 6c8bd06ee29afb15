//! One connection: who logs in, and which message goes to which channel (RFC 4252 and 4254).

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
/// Time for the last messages to leave.
const LEAVES_WITHIN: Duration = Duration::from_secs(5);

const CONNECT_FAILED: u32 = 2;
const UNKNOWN_CHANNEL_TYPE: u32 = 3;
const RESOURCE_SHORTAGE: u32 = 4;
const PUBLIC_KEY_OK: u8 = 60;

/// The client's bytes, taken only as fast as they are read here.
pub trait Input {
    /// None when the client has gone.
    fn next(&mut self) -> impl Future<Output = Option<Bytes>>;
}

/// Returns when either side has ended the connection.
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

/// A requested listener: an address and port, or a path.
type Listened = (Vec<u8>, u32);

struct Connection {
    mux: Rc<Mux>,
    is_logged_in: Cell<bool>,
    /// By the number of the channel.
    sessions: RefCell<HashMap<u32, Rc<Session>>>,
    /// Channels that wait for the socket they lead to.
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
            // Answers to requests that wanted none, and announcements that are not used here.
            (REQUEST_SUCCESS | REQUEST_FAILURE, true) => Ok(()),
            (EXT_INFO, _) => Ok(()),
            (kind, _) => Err(Broken::protocol(format!("message {kind} does not belong here"))),
        }
    }

    fn offer_service(&self, name: &[u8]) -> Result<(), Broken> {
        match name {
            b"ssh-userauth" => self.mux.link.send(Message::new(SERVICE_ACCEPT).string(name)),
            _ => return Err(Broken::protocol("the only service before the login is ssh-userauth")),
        }
        Ok(())
    }

    /// Any method will do, also none at all; only the name counts.
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
            // The client asks first whether to sign with this key.
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
            // For example keepalive@openssh.com, which only wants an answer.
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

    /// Answers with the port, if the client left it open.
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
                    mux.accept(peer).map(|channel| spawn_local(forward::to_tcp(channel, stream)));
                    Ok(())
                });
            }
            b"direct-streamlocal@openssh.com" => {
                let path = request.string()?.to_owned();
                let mux = self.mux.clone();
                self.connect_channel(peer, async move {
                    let stream = forward::connect_unix(&path, &*mux.host)?;
                    mux.accept(peer).map(|channel| spawn_local(forward::to_unix(channel, stream)));
                    Ok(())
                });
            }
            _ => self.mux.refuse(peer, UNKNOWN_CHANNEL_TYPE, "there are no such channels here"),
        }
        Ok(())
    }

    /// Does not keep the connection waiting.
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
mod tests {
    use super::*;
    use crate::testing::TestHost;

    fn connection() -> Rc<Connection> {
        Rc::new(Connection::new(Mux::new(Rc::new(TestHost::default()), Rc::new(Link::new()))))
    }

    fn log_in(user: &str, method: &str) -> Message {
        Message::new(USERAUTH_REQUEST).string(user).string("ssh-connection").string(method)
    }

    fn open_session(id: u32) -> Message {
        Message::new(CHANNEL_OPEN).string("session").u32(id).u32(0).u32(0)
    }

    async fn logged_in() -> Rc<Connection> {
        let connection = connection();
        connection.handle(log_in("sandbox", "none").as_ref()).await.unwrap();
        connection
    }

    #[tokio::test(flavor = "current_thread")]
    async fn nothing_works_before_the_login() {
        for message in [open_session(0), Message::new(GLOBAL_REQUEST).string("x").bool(false)] {
            assert!(connection().handle(message.as_ref()).await.is_err());
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_user_needs_no_secret_and_others_have_none() {
        for method in ["none", "password", "keyboard-interactive"] {
            let connection = connection();
            connection.handle(log_in("sandbox", method).as_ref()).await.unwrap();
            assert!(connection.is_logged_in.get(), "{method}");
        }
        for name in ["root", "Sandbox", ""] {
            let refused = connection().handle(log_in(name, "none").as_ref()).await.unwrap_err();
            assert_eq!(refused.report.unwrap().0, Reason::NoMoreAuthMethods, "{name}");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_key_is_asked_about_before_it_signs() {
        let connection = connection();
        let question = log_in("sandbox", "publickey").bool(false).string("ssh-ed25519").string("key");
        connection.handle(question.as_ref()).await.unwrap();
        assert!(!connection.is_logged_in.get());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn there_are_only_so_many_channels() {
        let connection = logged_in().await;
        for id in 0..CHANNELS as u32 + 10 {
            connection.handle(open_session(id).as_ref()).await.unwrap();
        }
        assert_eq!(connection.mux.count(), CHANNELS);
        for id in 0..CHANNELS as u32 {
            connection.handle(Message::new(CHANNEL_CLOSE).u32(id).as_ref()).await.unwrap();
        }
        assert_eq!(connection.mux.count(), 0);
        assert!(connection.handle(Message::new(CHANNEL_CLOSE).u32(0).as_ref()).await.is_err());
    }

    #[test]
    fn a_name_that_is_not_utf8_costs_its_request_or_its_channel_alone() {
        const BAD: &[u8] = b"caf\xe9";
        let request = |name: &[u8]| Message::new(CHANNEL_REQUEST).u32(0).string(name).bool(true);
        let global = |name: &[u8]| Message::new(GLOBAL_REQUEST).string(name).bool(true);
        let open = |kind: &[u8]| Message::new(CHANNEL_OPEN).string(kind).u32(9).u32(9).u32(9);
        let size = |message: Message| message.u32(80).u32(24).u32(0).u32(0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let connection = logged_in().await;
            connection.handle(open_session(0).as_ref()).await.unwrap();
            for message in [
                global(BAD),
                global(b"tcpip-forward").string(BAD).u32(0),
                global(b"cancel-tcpip-forward").string(BAD).u32(0),
                global(b"streamlocal-forward@openssh.com").string(b"/nowhere/\xff"),
                global(b"cancel-streamlocal-forward@openssh.com").string(BAD),
                open(BAD),
                open(b"direct-tcpip").string(BAD).u32(1).string("127.0.0.1").u32(9),
                open(b"direct-streamlocal@openssh.com").string(BAD).string("").u32(0),
                request(BAD),
                request(b"env").string(BAD).string("C"),
                request(b"env").string("LANG").string(BAD),
                size(request(b"pty-req").string(BAD)).string(""),
                request(b"exec").string(BAD),
                request(b"subsystem").string(BAD),
                request(b"signal").string(BAD),
            ] {
                let handled = connection.handle(message.as_ref()).await;
                assert!(handled.is_ok(), "{:?}", String::from_utf8_lossy(message.as_ref()));
            }
            assert_eq!(connection.mux.count(), 1);
            connection.leave();
        });
    }

    /// Every message is done, refused, or ends its own connection.
    #[test]
    fn messages_of_every_kind_are_survived() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let mut state = 0x2545_f491_4f6c_dd1du64;
            let mut random = move || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state
            };
            let mut connection = logged_in().await;
            for _ in 0..20_000 {
                let mut message = template(random()).into_bytes();
                for _ in 0..random() % 3 {
                    let at = random() as usize % message.len();
                    message[at] = random() as u8;
                }
                message.truncate(message.len() - usize::from(random() % 4 == 0));
                if connection.handle(&message).await.is_err() {
                    connection.leave();
                    connection = logged_in().await;
                    connection.handle(open_session(0).as_ref()).await.unwrap();
                }
            }
            connection.leave();
        });
    }

    fn template(which: u64) -> Message {
        let request = |name| Message::new(CHANNEL_REQUEST).u32(0).string(name).bool(true);
        let size = |message: Message| message.u32(80).u32(24).u32(0).u32(0);
        let lead = Message::new(CHANNEL_OPEN).string("direct-tcpip").u32(9).u32(9).u32(9);
        match which % 14 {
            0 => open_session(1),
            1 => size(request("window-change")),
            2 => size(request("pty-req").string("xterm")).string([53, 0, 0, 0, 1, 0]),
            3 => request("env").string("LANG").string("C"),
            4 => request("signal").string("TERM"),
            5 => request("auth-agent-req@openssh.com"),
            6 => Message::new(CHANNEL_DATA).u32(0).string("some data"),
            7 => Message::new(CHANNEL_WINDOW_ADJUST).u32(0).u32(u32::MAX),
            8 => Message::new(CHANNEL_EOF).u32(0),
            9 => lead.string("127.0.0.1").u32(1).string("127.0.0.1").u32(9),
            10 => Message::new(GLOBAL_REQUEST).string("tcpip-forward").bool(true).string("localhost").u32(0),
            11 => request("eow@openssh.com"),
            12 => Message::new(CHANNEL_OPEN_CONFIRMATION).u32(0).u32(0).u32(9).u32(9),
            _ => log_in("sandbox", "none"),
        }
    }
}
