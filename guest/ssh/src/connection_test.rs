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
