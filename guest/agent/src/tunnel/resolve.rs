//! Resolves host names. The C library's own resolver would load parts of the image's C library into this static program.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::launch::run_on_thread;
use crate::regular_file;

const HOSTS: &str = "/etc/hosts";
const SERVERS: &str = "/etc/resolv.conf";
/// Time limit of one question to one server.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);
/// Questions to each server.
const TRIES: usize = 2;
const DNS_PORT: u16 = 53;
const ANSWER_BYTES: usize = 1500;
const HEADER_BYTES: usize = 12;
/// Permits for reads of `HOSTS` and `SERVERS`, separate from those of commands, so that these can still start.
static LOOKUPS: Semaphore = Semaphore::const_new(8);
const TYPE_A: u16 = 1;
const CLASS_IN: u16 = 1;

pub async fn resolve(host: &str) -> io::Result<Vec<IpAddr>> {
    resolve_by(host, regular_file::text).await
}

/// Calls `read` on another thread: root in the guest may have put the files into a file system that never answers.
async fn resolve_by<R>(host: &str, read: R) -> io::Result<Vec<IpAddr>>
where
    R: Fn(&'static str) -> String + Copy + Send + 'static,
{
    if let Ok(address) = host.trim_matches(['[', ']']).parse() {
        return Ok(vec![address]);
    }
    if host.eq_ignore_ascii_case("localhost") {
        return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
    }
    let known = hosts_in(&run_on_thread(&LOOKUPS, move || read(HOSTS)).await?, host);
    if !known.is_empty() {
        return Ok(known);
    }
    let servers = servers_in(&run_on_thread(&LOOKUPS, move || read(SERVERS)).await?);
    ask_servers(host, &servers).await
}

fn hosts_in(text: &str, host: &str) -> Vec<IpAddr> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let matching = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|name| name.eq_ignore_ascii_case(host)).then_some(address)
    });
    matching.collect()
}

fn servers_in(text: &str) -> Vec<IpAddr> {
    let server = |line: &str| line.trim().strip_prefix("nameserver")?.trim().parse().ok();
    text.lines().filter_map(server).collect()
}

async fn ask_servers(host: &str, servers: &[IpAddr]) -> io::Result<Vec<IpAddr>> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "no name server knows it");
    for server in servers.iter().cycle().take(servers.len() * TRIES) {
        match timeout(ANSWERS_WITHIN, ask(SocketAddr::new(*server, DNS_PORT), host)).await {
            Ok(Ok(addresses)) if !addresses.is_empty() => return Ok(addresses),
            Ok(Ok(_)) => break,
            Ok(Err(error)) => failure = error,
            Err(late) => failure = late.into(),
        }
    }
    Err(failure)
}

async fn ask(server: SocketAddr, host: &str) -> io::Result<Vec<IpAddr>> {
    let mut id = [0; 2];
    getrandom(&mut id, GetRandomFlags::empty())?;
    let question = question(id, host)?;
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect(server).await?;
    socket.send(&question).await?;
    let mut answer = [0; ANSWER_BYTES];
    loop {
        let count = socket.recv(&mut answer).await?;
        if let Some(addresses) = addresses_in(&answer[..count], &question) {
            return Ok(addresses);
        }
    }
}

fn question(id: [u8; 2], host: &str) -> io::Result<Vec<u8>> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "no name of a host");
    let mut message = vec![id[0], id[1], 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in host.strip_suffix('.').unwrap_or(host).split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..64).contains(length));
        message.push(length.ok_or_else(wrong)?);
        message.extend_from_slice(label.as_bytes());
    }
    message.extend_from_slice(&[0, 0, TYPE_A as u8, 0, CLASS_IN as u8]);
    if message.len() > HEADER_BYTES + 255 + 4 { Err(wrong()) } else { Ok(message) }
}

/// The addresses in an answer; None if it does not answer the question.
fn addresses_in(answer: &[u8], question: &[u8]) -> Option<Vec<IpAddr>> {
    let number = |at: usize| Some(u16::from_be_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    let is_answer = answer.get(..2)? == &question[..2] && answer.get(2)? & 0x80 != 0;
    let asks_the_same =
        answer.get(HEADER_BYTES..question.len())?.eq_ignore_ascii_case(&question[HEADER_BYTES..]);
    if !is_answer || !asks_the_same {
        return None;
    }
    let mut addresses = Vec::new();
    let mut at = question.len();
    for _ in 0..number(6)? {
        at = after_name(answer, at)?;
        let (kind, class, length) = (number(at)?, number(at + 2)?, number(at + 8)? as usize);
        let data = answer.get(at + 10..at + 10 + length)?;
        if kind == TYPE_A && class == CLASS_IN {
            addresses.push(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?).into());
        }
        at += 10 + length;
    }
    Some(addresses)
}

fn after_name(answer: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match answer.get(at)? {
            0 => return Some(at + 1),
            // A pointer to an earlier name ends the name.
            0xc0.. => return Some(at + 2),
            length => at += 1 + usize::from(*length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::run;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs::{self, File};
    use std::future::pending;
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::Path;
    use std::sync::mpsc::{self, RecvTimeoutError};
    use std::thread;
    use tokio::time::sleep;

    const STUCK_AFTER: Duration = Duration::from_secs(20);

    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));

    #[test]
    fn files_name_hosts_and_servers() {
        let hosts = "10.0.0.7 Box box.example # comment other\n# 10.0.0.8 box\n";
        assert_eq!(hosts_in(hosts, "BOX"), [ADDRESS]);
        assert!(hosts_in(hosts, "other").is_empty());
        assert_eq!(servers_in("search x\nnameserver 10.0.0.7\nnameserver broken\n"), [ADDRESS]);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn addresses_and_localhost_need_no_server() {
        assert_eq!(resolve("10.0.0.7").await.unwrap(), [ADDRESS]);
        assert!(resolve("[::1]").await.unwrap()[0].is_ipv6());
        assert_eq!(resolve("localhost").await.unwrap()[0], Ipv4Addr::LOCALHOST);
    }

    /// A FIFO without a writer is a file that does not answer.
    #[test]
    fn files_that_do_not_answer_block_nothing_else() {
        let room = tempfile::tempdir().unwrap();
        let fifo: &Path = Box::leak(room.path().join("fifo").into_boxed_path());
        mknodat(CWD, fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let read = move || fs::read_to_string(fifo).unwrap();
        // Ends a read of this thread, which blocks for ever otherwise.
        let (over, is_over) = mpsc::channel::<()>();
        let guard = thread::spawn(move || {
            let is_stuck = is_over.recv_timeout(STUCK_AFTER) == Err(RecvTimeoutError::Timeout);
            is_stuck.then(|| fs::write(fifo, "10.0.0.9 box\nnameserver 127.0.0.9\n"));
        });
        let write_once_read = |text: &'static str| async move {
            let mut writer = File::options();
            writer.write(true).custom_flags(libc::O_NONBLOCK);
            let mut opened = writer.open(fifo);
            while opened.is_err() {
                sleep(Duration::from_millis(5)).await;
                opened = writer.open(fifo);
            }
            opened.unwrap().write_all(text.as_bytes()).unwrap();
            pending::<()>().await;
        };
        run(async {
            let found = tokio::select! {
                found = resolve_by("box", move |_| read()) => found,
                () = write_once_read("10.0.0.7 box\n") => unreachable!(),
            };
            assert_eq!(found.unwrap(), [ADDRESS]);
            let found = tokio::select! {
                found = resolve_by("box", move |path| if path == SERVERS { read() } else { String::new() }) => found,
                () = write_once_read("nameserver none\n") => unreachable!(),
            };
            assert!(found.unwrap_err().to_string().contains("no name server"));
        });
        drop(over);
        guard.join().unwrap();
    }

    #[test]
    fn only_names_become_questions() {
        assert!(question([0; 2], "a.example.").is_ok());
        for wrong in ["", ".", "a..b", &"x".repeat(64), &"x.".repeat(200)] {
            assert!(question([0; 2], wrong).is_err(), "{wrong}");
        }
    }

    fn answer_to(question: &[u8]) -> Vec<u8> {
        let mut answer = question.to_vec();
        answer[2] |= 0x80;
        answer[7] = 2;
        // A reference to another name, then the address.
        answer.extend_from_slice(&[0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 2, 0xc0, 12]);
        answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 10, 0, 0, 7]);
        answer
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_server_is_asked_and_strangers_answers_are_not_believed() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let serve = async {
            let mut question = [0; 100];
            let (count, peer) = server.recv_from(&mut question).await.unwrap();
            let mut answer = answer_to(&question[..count]);
            answer[0] ^= 1;
            server.send_to(&answer, peer).await.unwrap();
            answer[0] ^= 1;
            server.send_to(&answer, peer).await.unwrap();
        };
        let (addresses, ()) = tokio::join!(ask(address, "box.example"), serve);
        assert_eq!(addresses.unwrap(), [ADDRESS]);
    }

    #[test]
    fn answers_that_are_cut_off_are_ignored() {
        let question = question([1, 2], "box.example").unwrap();
        let answer = answer_to(&question);
        assert_eq!(addresses_in(&answer, &question), Some(vec![ADDRESS]));
        for length in 0..answer.len() {
            assert_eq!(addresses_in(&answer[..length], &question), None, "{length}");
        }
    }
}
