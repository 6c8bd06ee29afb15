//! Every route with contents that nearly fit. Each request is answered, and soon.

use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use serde_json::Value;
use tokio::time::timeout;

use super::{Random, inputs, jail, resident_bytes};
use crate::testing::{Host, TestMachine, frame, run_for};

const INPUTS: u64 = 15_000;
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);
/// An answer ends within this time, or lasts as long as it is read.
const LISTENS: Duration = Duration::from_millis(5);
const MORE_BYTES: usize = 16 * 1024 * 1024;

/// All routes but `power-off`, which reads nothing.
pub const REQUESTS: [(&str, &str, &str); 21] = [
    ("GET", "/v1/health", ""),
    (
        "POST",
        "/v1/exec",
        r#"{"argv":["echo","a"],"cwd":"/","env":{"A":"b"},"timeout_ms":900,"output_limit_bytes":9}"#,
    ),
    ("POST", "/v1/exec", r#"{"argv":["sh","-c","echo $A; exit 3"],"env":{}}"#),
    ("PUT", "/v1/files?path=/workspace/a&mode=0644", "content"),
    ("DELETE", "/v1/files?path=a&recursive=true", ""),
    ("GET", "/v1/files/read?path=a&max_bytes=100", ""),
    ("GET", "/v1/files/list?path=.", ""),
    ("GET", "/v1/files/find?path=.&pattern=**%2F%7Ba,b%7D*&max_results=10", ""),
    (
        "GET",
        "/v1/files/grep?path=.&pattern=(c%7Cd)%2Bt%5B%5Ea-z%5D%3F&context_lines=2&file_pattern=*&exclude_dirs=b",
        "",
    ),
    ("PUT", "/v1/files/write?path=b/c", "more content"),
    ("POST", "/v1/files/mkdir", r#"{"path":"b/d"}"#),
    ("POST", "/v1/files/rename", r#"{"path":"a","dest_path":"b/e"}"#),
    ("POST", "/v1/freeze", ""),
    ("POST", "/v1/thaw", ""),
    (
        "POST",
        "/v1/resumed",
        r#"{"entropy":"AAAA","wall_clock_ns":"1","identity":{"hostname":"a","machine_id":"0","no_sudo":true},"ca":{"certificate_pem":"a","subject_hash":"0"}}"#,
    ),
    ("POST", "/v1/processes", r#"{"name":"a","argv":["cat"],"cwd":null,"env":{},"keep_alive":true}"#),
    ("GET", "/v1/processes", ""),
    ("GET", "/v1/processes/a", ""),
    ("GET", "/v1/processes/a/logs?tail_bytes=9&follow=true", ""),
    ("DELETE", "/v1/processes/a", ""),
    ("PATCH", "/v1/processes/a/b/c?d", "{}"),
];
const TERMINAL: &str = r#"{"argv":["cat"],"cwd":"/","env":{"A":"b"},"rows":24,"cols":80,"name":"t"}"#;

/// Frames of a client of a terminal or a tunnel.
pub fn frames(random: &mut Random, opening: &str) -> Vec<u8> {
    let mut said = frame(0, opening.as_bytes()).to_vec();
    for _ in 0..random.below(4) {
        let payload = match random.below(4) {
            0 => vec![0, 30, 0, 90],
            1 => vec![2],
            2 => b"SSH-2.0-x\r\n".to_vec(),
            _ => random.bytes(40),
        };
        said.extend_from_slice(&frame(random.below(5) as u8, &payload));
    }
    said
}

/// One request: its method, its target and its body.
pub fn request(random: &mut Random) -> (&'static str, String, Vec<u8>) {
    match random.below(10) {
        0 => ("POST", "/v1/terminals".into(), frames(random, TERMINAL)),
        1 => ("POST", "/v1/tunnel".into(), frames(random, r#"{"env":{"A":"b"}}"#)),
        _ => {
            let (method, target, body) = REQUESTS[random.below(REQUESTS.len())];
            (method, target.into(), body.into())
        }
    }
}

/// A target that HTTP lets through, with whatever below its percent signs.
fn strange_target(random: &mut Random, target: &str) -> String {
    let kept = target.find('?').map_or(target.len(), |at| at + 1);
    let fixed = if random.one_in(6) { "/v1/".len() } else { kept };
    let strange = random.mutated(&target.as_bytes()[fixed..]);
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/?&=%.-_*+,".contains(byte);
    let escape = |byte| if is_plain(&byte) { (byte as char).to_string() } else { format!("%{byte:02x}") };
    target[..fixed].to_owned() + &strange.into_iter().map(escape).collect::<String>()
}

async fn try_one(host: &Host, random: &mut Random) -> StatusCode {
    let (method, mut target, mut body) = request(random);
    let freezes = target == "/v1/freeze";
    if random.one_in(2) {
        target = strange_target(random, &target);
    }
    if random.one_in(2) {
        body = random.mutated(&body);
    }
    let mut exchange = host.send(method, &target);
    let ends = !random.one_in(20);
    let _ = exchange.body.send_data(Bytes::from(body), ends);
    let listened = timeout(if ends { ANSWERS_WITHIN } else { LISTENS }, exchange.answer()).await;
    let status = match listened {
        Ok(mut answer) => {
            let _ = timeout(LISTENS, answer.read_to_end()).await;
            answer.status
        }
        Err(_) => {
            assert!(!ends, "{method} {target} was not answered");
            StatusCode::CONTINUE
        }
    };
    if freezes {
        drop(exchange);
        host.call("POST", "/v1/thaw", Value::Null).await;
    }
    status
}

#[test]
fn requests_that_nearly_fit_are_answered() {
    jail::run("fuzz::requests::inside");
}

#[test]
#[ignore = "run by the test above, in a jail"]
fn inside() {
    jail::enter();
    run_for(Duration::from_secs(3600), async {
        let machine = TestMachine::new();
        let (mut done, mut refused, mut before) = (0, 0, 0);
        let mut host = machine.connect().await;
        for mut random in inputs(INPUTS) {
            let status = try_one(&host, &mut random).await;
            assert_ne!(status, StatusCode::NOT_IMPLEMENTED);
            done += u64::from(status.is_success());
            refused += u64::from(status.is_client_error());
            if (done + refused) % 500 == 0 {
                host = machine.connect().await;
                assert_eq!(host.get("/v1/health").await.status, StatusCode::OK);
            }
            if before == 0 && done + refused > INPUTS / 3 {
                before = resident_bytes();
            }
        }
        println!("{done} were done, {refused} refused; {before} bytes before, {} after", resident_bytes());
        assert!(done > INPUTS / 5 && refused > INPUTS / 5);
        assert!(resident_bytes() < before + MORE_BYTES);
    });
}
