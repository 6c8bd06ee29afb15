//! The SSH server as the system's own OpenSSH clients meet it. A connection is a debug build of the agent on the other end
//! of a ProxyCommand, running commands as the user of the tests. Without a client on this machine nothing is tried.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const AGENT: &str = env!("CARGO_BIN_EXE_vivarium-agent");
const PATIENCE: Duration = Duration::from_secs(30);

struct Room(tempfile::TempDir);

impl Room {
    /// None without a client.
    fn open() -> Option<Room> {
        let is_there = Command::new("ssh").arg("-V").output().is_ok();
        is_there.then(|| Room(tempfile::tempdir().unwrap()))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn options(&self) -> Vec<String> {
        let proxy = format!("ProxyCommand={AGENT} ssh-on-stdio");
        let fixed = ["UserKnownHostsFile=/dev/null", "StrictHostKeyChecking=no", "LogLevel=ERROR", &proxy];
        let options = fixed.iter().flat_map(|option| ["-o".to_owned(), (*option).to_owned()]);
        ["-F".to_owned(), "none".to_owned()].into_iter().chain(options).collect()
    }

    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(self.options()).env("TRY_HOME", self.0.path()).current_dir(self.0.path());
        command
    }

    /// One that has the connection of the master at `control`, and none of its own.
    fn sharer(&self, control: &str, command: &str) -> Command {
        let mut client = Command::new("ssh");
        client.args(["-F", "none", "-o", "ProxyCommand=false", "-S", control, "sandbox@guest", command]);
        client
    }

    fn ssh(&self, arguments: &[&str]) -> Output {
        self.ssh_with(arguments, b"")
    }

    fn ssh_with(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.client("ssh");
        finish(command.args(arguments), input)
    }

    /// A client in the background, until it is dropped.
    fn forwarding(&self, arguments: &[&str]) -> Background {
        let mut command = self.client("ssh");
        command.args(["-N", "-o", "ExitOnForwardFailure=yes"]).args(arguments).arg("sandbox@guest");
        Background(command.stdin(Stdio::null()).spawn().unwrap())
    }
}

struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn finish(command: &mut Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writing = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    output
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(next).collect()
}

/// A server that answers each connection with what it was sent until its end.
fn echo_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut all = Vec::new();
                let _ = stream.read_to_end(&mut all);
                let _ = stream.write_all(&all);
            });
        }
    });
    port
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn eventually<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(began.elapsed() < PATIENCE, "it did not happen within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn echo(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut stream = eventually(|| TcpStream::connect(("127.0.0.1", port)).ok());
    stream.write_all(bytes).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

#[test]
fn a_command_has_its_output_its_errors_and_its_exit_code() {
    let Some(room) = Room::open() else { return };
    let output = room.ssh(&["sandbox@guest", "echo out; echo err >&2; echo $FROM_SESSION; exit 7"]);
    assert_eq!(text(&output), "out\nyes\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "err\n");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(room.ssh(&["sandbox@guest", "kill -KILL $$"]).status.code(), Some(255));
}

#[test]
fn every_cipher_carries_both_directions_through_key_exchanges() {
    let Some(room) = Room::open() else { return };
    let all = noise(3_000_000);
    for cipher in ["chacha20-poly1305@openssh.com", "aes256-gcm@openssh.com", "aes128-gcm@openssh.com"] {
        let output =
            room.ssh_with(&["-c", cipher, "-o", "RekeyLimit=200K", "sandbox@guest", "cat; echo end"], &all);
        assert!(output.stdout == [&all[..], b"end\n"].concat(), "{cipher}");
    }
}

#[test]
fn a_login_shell_reads_its_commands_from_the_client() {
    let Some(room) = Room::open() else { return };
    let output = room.ssh_with(&["sandbox@guest"], b"echo $0 $PWD\nexit 4\n");
    assert_eq!(text(&output), format!("-bash {}\n", room.0.path().display()));
    assert_eq!(output.status.code(), Some(4));
}

#[test]
fn a_terminal_is_the_commands_own() {
    let Some(room) = Room::open() else { return };
    let output =
        room.ssh(&["-tt", "sandbox@guest", "test $(tty) = $SSH_TTY && : < /dev/tty && seq 5000; exit 3"]);
    assert!(text(&output).ends_with("4999\r\n5000\r\n"), "{}", text(&output));
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn only_the_user_is_let_in() {
    let Some(room) = Room::open() else { return };
    for name in ["root", "bob"] {
        let output = room.ssh(&[&format!("{name}@guest"), "true"]);
        assert_eq!(output.status.code(), Some(255), "{name}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("use sandbox@"), "{output:?}");
    }
}

#[test]
fn files_are_copied_whole_with_their_modes() {
    let Some(room) = Room::open() else { return };
    fs::create_dir_all(room.path("from/below")).unwrap();
    fs::write(room.path("from/large"), noise(2_000_000)).unwrap();
    fs::write(room.path("from/below/empty"), "").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o751);
    fs::set_permissions(room.path("from/large"), mode).unwrap();
    let copied = |arguments: &[&str]| {
        let output = finish(room.client("scp").args(["-rp"]).args(arguments), b"");
        assert!(output.status.success(), "{output:?}");
    };
    copied(&["from", "sandbox@guest:there"]);
    copied(&["sandbox@guest:there", "back"]);
    assert!(fs::read(room.path("back/large")).unwrap() == noise(2_000_000));
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(room.path("back/large")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o751);
    assert!(Path::new(&room.path("back/below/empty")).exists());
}

#[test]
fn sftp_renames_links_and_removes() {
    let Some(room) = Room::open() else { return };
    let batch = "put f d\nmkdir e\nrename d e/d\nln -s d e/l\nln e/d e/h\nchmod 600 e/d\nls -l e\ndf\nrm e/l\nrm e/h\n";
    fs::write(room.path("f"), "content").unwrap();
    let mut client = room.client("sftp");
    let output = finish(client.args(["-b", "-", "sandbox@guest"]), batch.as_bytes());
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output).contains("-rw-------"), "{}", text(&output));
    assert_eq!(fs::read_to_string(room.path("e/d")).unwrap(), "content");
    assert_eq!(fs::read_dir(room.path("e")).unwrap().count(), 1);
}

#[test]
fn ports_and_sockets_are_forwarded_both_ways() {
    let Some(room) = Room::open() else { return };
    let (server, local, remote) = (echo_server(), free_port(), free_port());
    let socket = room.path("socket");
    let there = format!("localhost:{server}");
    let through_socket = free_port();
    let forwarding = room.forwarding(&[
        "-L",
        &format!("{local}:{there}"),
        "-R",
        &format!("{remote}:{there}"),
        "-R",
        &format!("{socket}:{there}"),
        "-L",
        &format!("{through_socket}:{socket}"),
    ]);
    let all = noise(1_000_000);
    for port in [local, remote, through_socket] {
        eventually(|| (echo(port, b"ready") == b"ready").then_some(()));
        assert!(echo(port, &all) == all, "{port}");
    }
    drop(forwarding);
    eventually(|| TcpStream::connect(("127.0.0.1", remote)).is_err().then_some(()));
    eventually(|| (!Path::new(&socket).exists()).then_some(()));
}

#[test]
fn a_forwarded_port_whose_server_has_gone_ends_the_clients_connection() {
    let Some(room) = Room::open() else { return };
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let remote = listener.local_addr().unwrap().port();
    std::thread::spawn(move || drop(listener.accept()));
    let local = free_port();
    let _client = room.forwarding(&["-L", &format!("{local}:127.0.0.1:{remote}")]);
    let mut stream = eventually(|| TcpStream::connect(("127.0.0.1", local)).ok());
    eventually(|| stream.write_all(b"x").err());
}

#[test]
fn the_clients_agent_is_there_for_the_session_alone() {
    let Some(room) = Room::open() else { return };
    let socket = room.path("agent");
    let agent = Command::new("ssh-agent").args(["-D", "-a", &socket]).stdout(Stdio::null()).spawn().unwrap();
    let agent = Background(agent);
    eventually(|| Path::new(&socket).exists().then_some(()));
    let mut client = room.client("ssh");
    client.env("SSH_AUTH_SOCK", &socket).args(["-A", "sandbox@guest", "echo $SSH_AUTH_SOCK; ssh-add -l"]);
    let output = finish(&mut client, b"");
    drop(agent);
    let text = text(&output);
    let mut lines = text.lines();
    let forwarded = lines.next().unwrap().to_owned();
    assert_eq!(lines.next(), Some("The agent has no identities."));
    eventually(|| (!Path::new(&forwarded).exists()).then_some(()));
}

/// As in `ssh host yes | head -1`, typed at a terminal, where the client's own input does not end.
#[test]
fn a_command_whose_reader_has_gone_gets_a_broken_pipe() {
    let Some(room) = Room::open() else { return };
    let mut client = room.client("ssh");
    client.args(["sandbox@guest", "yes; echo $? > told"]);
    client.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = Background(client.spawn().unwrap());
    let mut line = [0; 2];
    client.0.stdout.take().unwrap().read_exact(&mut line).unwrap();
    assert_eq!(&line, b"y\n");
    eventually(|| client.0.try_wait().unwrap());
    assert_eq!(fs::read_to_string(room.path("told")).unwrap(), "141\n");
}

/// A reader that stops blocks its own channel and nothing else.
#[test]
fn channels_of_one_connection_do_not_wait_for_each_other() {
    let Some(room) = Room::open() else { return };
    let control = room.path("control");
    let _master = room.forwarding(&["-M", "-S", &control]);
    eventually(|| Path::new(&control).exists().then_some(()));
    let mut stalled = room.sharer(&control, "echo begun; cat /dev/zero");
    let mut stalled = Background(stalled.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap());
    let mut begun = [0; 6];
    stalled.0.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    // The other way round: a program that does not read what it is sent.
    let mut deaf = room.sharer(&control, "sleep 1000");
    let zeros = fs::File::open("/dev/zero").unwrap();
    let _deaf = Background(deaf.stdin(zeros).spawn().unwrap());
    let all = noise(1_000_000);
    for _ in 0..3 {
        let output = finish(&mut room.sharer(&control, "cat"), &all);
        assert!(output.stdout == all);
    }
}

#[test]
fn a_command_whose_client_goes_is_hung_up_and_what_was_let_go_lives_on() {
    let Some(room) = Room::open() else { return };
    let script = "trap '' HUP; sleep 1000 > /dev/null 2>&1 & left=$!; trap 'echo hung up > told; exit' HUP; \
                  echo $left; while :; do sleep 0.1; done";
    let mut client = room.client("ssh");
    client.args(["sandbox@guest", script]);
    let mut client = Background(client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    let stdout = client.0.stdout.as_mut().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
    drop(client);
    eventually(|| Path::new(&room.path("told")).exists().then_some(()));
    let left = format!("/proc/{}", line.trim());
    assert!(Path::new(&left).exists());
    Command::new("kill").arg(line.trim()).status().unwrap();
}
