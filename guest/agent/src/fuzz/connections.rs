//! Bytes that nearly are HTTP/2. Each connection ends once its host is gone, and harms no other one.

use std::time::Duration;

use hyper::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::requests::request;
use super::{Random, inputs, jail, resident_bytes};
use crate::server;
use crate::testing::{TestMachine, run_for};

const INPUTS: u64 = 10_000;
const ENDS_WITHIN: Duration = Duration::from_secs(20);
const LISTENS: Duration = Duration::from_millis(1);
const MORE_BYTES: usize = 16 * 1024 * 1024;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn h2_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header that goes into no table.
fn header(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| match text.len() {
        0..127 => [&[text.len() as u8], text.as_bytes()].concat(),
        long => [&[127, (long - 127) as u8 | 0x80, ((long - 127) >> 7) as u8], text.as_bytes()].concat(),
    };
    [vec![0], text(name), text(value)].concat()
}

fn exchange(random: &mut Random, stream: u32) -> Vec<u8> {
    let (method, target, body) = request(random);
    let fields = [(":method", method), (":scheme", "http"), (":authority", "agent"), (":path", &target)];
    let head = fields.map(|(name, value)| header(name, value)).concat();
    [h2_frame(HEADERS, END_HEADERS, stream, &head), h2_frame(DATA, END_STREAM, stream, &body)].concat()
}

/// Frames of every kind, with invalid contents.
fn strange_frame(random: &mut Random) -> Vec<u8> {
    let stream = *random.pick(&[&0, &1, &3, &5, &99, &0x7fff_ffff, &u32::MAX]);
    let payload = match random.below(4) {
        0 => vec![0; 8],
        1 => vec![0xff; 6],
        2 => vec![0, 4, 0, 0, 0, 0],
        _ => random.bytes(24),
    };
    h2_frame(random.below(11) as u8, random.next() as u8, stream, &payload)
}

fn conversation(random: &mut Random) -> Vec<u8> {
    let mut said = [PREFACE, &h2_frame(SETTINGS, 0, 0, &[])].concat();
    for number in 0..1 + random.below(4) as u32 {
        if random.one_in(3) {
            said.extend_from_slice(&strange_frame(random));
        }
        said.extend_from_slice(&exchange(random, 2 * number + 1));
    }
    match random.below(4) {
        0 => said,
        1 => [PREFACE, &random.mutated(&said[PREFACE.len()..])].concat(),
        2 => [PREFACE, &h2_frame(SETTINGS, 0, 0, &[]), &random.bytes(200)].concat(),
        _ => random.mutated(&said),
    }
}

/// Returns how many bytes the agent sent.
async fn try_one(machine: &TestMachine, random: &mut Random) -> usize {
    let (mut host, guest) = UnixStream::pair().unwrap();
    let agent = machine.agent.clone();
    let served = spawn_local(async move { server::serve(&agent, guest).await });
    let said = conversation(random);
    for piece in random.cut(&said).chunks(8) {
        let _ = host.write_all(&piece.concat()).await;
    }
    let mut heard = 0;
    let mut buffer = [0; 16 * 1024];
    while let Ok(Ok(count @ 1..)) = timeout(LISTENS, host.read(&mut buffer)).await {
        heard += count;
    }
    // A command that a freeze caught before it began may have a copy of this end, so dropping this end is not enough.
    let _ = host.shutdown().await;
    drop(host);
    timeout(ENDS_WITHIN, served).await.expect("the connection goes on without its host").unwrap();
    heard
}

#[test]
fn bytes_that_nearly_are_http2_end_their_own_connection() {
    jail::run("fuzz::connections::inside");
}

#[test]
#[ignore = "run by the test above, in a jail"]
fn inside() {
    jail::enter();
    run_for(Duration::from_secs(3600), async {
        let machine = TestMachine::new();
        let bystander = machine.connect().await;
        let (mut count, mut heard, mut before) = (0, 0, 0);
        for mut random in inputs(INPUTS) {
            heard += try_one(&machine, &mut random).await;
            machine.machine.mark_thawed();
            let _ = machine.machine.cgroups.thaw_user();
            count += 1;
            if count % 200 == 0 {
                assert_eq!(bystander.get("/v1/health").await.status, StatusCode::OK);
            }
            if count == INPUTS / 3 {
                before = resident_bytes();
            }
        }
        println!("heard {heard} bytes; {before} bytes before, {} after", resident_bytes());
        assert!(heard as u64 > 50 * INPUTS);
        assert!(resident_bytes() < before + MORE_BYTES);
    });
}
