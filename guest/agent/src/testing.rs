//! Shared by the tests of several rooms: a machine with real cgroups, real children and the real server, on this host.
//! They run as root.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use hyper::{Method, Request, StatusCode};
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use crate::cgroup::Cgroups;
use crate::machine::Machine;
use crate::processes::Processes;
use crate::server::{self, Agent};

const PATIENCE: Duration = Duration::from_secs(60);
static NEXT: AtomicU32 = AtomicU32::new(0);

pub fn run<T>(future: impl Future<Output = T>) -> T {
    run_for(PATIENCE, future)
}

pub fn run_for<T>(patience: Duration, future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bounded = async { timeout(patience, future).await.expect("the test took too long") };
    tokio::task::LocalSet::new().block_on(&runtime, bounded)
}

pub async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        sleep(Duration::from_millis(5)).await;
    }
}

/// A machine on this host, as far as the user's processes are concerned.
pub struct TestMachine {
    pub machine: Rc<Machine>,
    pub agent: Rc<Agent>,
    pub room: tempfile::TempDir,
    cgroup: PathBuf,
}

impl TestMachine {
    pub fn new() -> TestMachine {
        let room = tempfile::tempdir().unwrap();
        open_to_the_user(room.path());
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let cgroup = cgroup_root().join(format!("vivarium-test-{}-{number}", std::process::id()));
        fs::create_dir(&cgroup).expect("make a cgroup; these tests run as root");
        let machine = Rc::new(Machine::new(Cgroups::of(&cgroup)).unwrap());
        let mut agent = Agent::new(machine.clone());
        agent.processes = Rc::new(Processes::below(room.path().join("processes")));
        spawn_local(machine.reaper.clone().run().unwrap());
        TestMachine { machine, agent: Rc::new(agent), room, cgroup }
    }

    /// A host's connection to this machine.
    pub async fn connect(&self) -> Host {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let agent = self.agent.clone();
        spawn_local(async move { server::serve(&agent, theirs).await });
        let (requests, connection) = h2::client::handshake(ours).await.unwrap();
        let connection = spawn_local(async { drop(connection.await) });
        Host { requests: RefCell::new(requests), connection }
    }
}

impl Drop for TestMachine {
    fn drop(&mut self) {
        let _ = self.machine.cgroups.kill_user();
        for _ in 0..200 {
            let leaves = fs::read_dir(&self.cgroup).into_iter().flatten().flatten();
            leaves.for_each(|leaf| drop(fs::remove_dir(leaf.path())));
            if fs::remove_dir(&self.cgroup).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn open_to_the_user(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}

pub fn cgroup_root() -> PathBuf {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mount = fields.find(|fields| fields[2] == "cgroup2").expect("a cgroup2 file system");
    mount[1].into()
}

pub struct Host {
    requests: RefCell<h2::client::SendRequest<Bytes>>,
    connection: tokio::task::JoinHandle<()>,
}

/// A request whose body and answer are under way.
pub struct Exchange {
    pub body: h2::SendStream<Bytes>,
    answer: h2::client::ResponseFuture,
}

pub struct Answer {
    pub status: StatusCode,
    body: h2::RecvStream,
    pending: BytesMut,
}

impl Host {
    pub fn send(&self, method: &str, path: &str) -> Exchange {
        let uri = format!("http://agent{path}");
        let method: Method = method.parse().unwrap();
        let request = Request::builder().method(method).uri(uri).body(()).unwrap();
        let (answer, body) = self.requests.borrow_mut().send_request(request, false).unwrap();
        Exchange { body, answer }
    }

    pub async fn call(&self, method: &str, path: &str, body: Value) -> (StatusCode, Value) {
        let mut exchange = self.send(method, path);
        let text = if body.is_null() { String::new() } else { body.to_string() };
        exchange.body.send_data(text.into(), true).unwrap();
        let mut answer = exchange.answer().await;
        (answer.status, answer.json().await)
    }

    pub async fn get(&self, path: &str) -> Answer {
        let mut exchange = self.send("GET", path);
        exchange.body.send_data(Bytes::new(), true).unwrap();
        exchange.answer().await
    }

    /// Closes the connection like a host that dies.
    pub fn vanish(self) {
        self.connection.abort();
    }
}

impl Exchange {
    pub fn say(&mut self, kind: u8, payload: &[u8]) {
        self.body.send_data(frame(kind, payload), false).unwrap();
    }

    pub async fn answer(&mut self) -> Answer {
        let (head, body) = (&mut self.answer).await.unwrap().into_parts();
        Answer { status: head.status, body, pending: BytesMut::new() }
    }
}

impl Answer {
    pub async fn json(&mut self) -> Value {
        while let Some(chunk) = self.chunk().await {
            self.pending.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&self.pending).unwrap()
    }

    /// Reads until the stream has ended or broken off, and drops the bytes.
    pub async fn read_to_end(&mut self) {
        while self.chunk().await.is_some() {}
    }

    async fn chunk(&mut self) -> Option<Bytes> {
        let chunk = self.body.data().await?.ok()?;
        let _ = self.body.flow_control().release_capacity(chunk.len());
        Some(chunk)
    }

    /// None when the stream has ended or broke off.
    pub async fn frame(&mut self) -> Option<(u8, Bytes)> {
        loop {
            if let Some((head, _)) = self.pending.split_first_chunk::<5>() {
                let bytes = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                if self.pending.len() >= 5 + bytes {
                    let mut whole = self.pending.split_to(5 + bytes).freeze();
                    return Some((whole[0], whole.split_off(5)));
                }
            }
            let chunk = self.chunk().await?;
            self.pending.extend_from_slice(&chunk);
        }
    }

    /// The payloads of every frame of one type until some other type's comes, and that one.
    pub async fn until_other(&mut self, kind: u8) -> (Vec<u8>, Option<(u8, Bytes)>) {
        let mut all = Vec::new();
        loop {
            match self.frame().await {
                Some((this, payload)) if this == kind => all.extend_from_slice(&payload),
                other => return (all, other),
            }
        }
    }
}

pub fn frame(kind: u8, payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(5 + payload.len());
    frame.put_u8(kind);
    frame.put_u32(payload.len() as u32);
    frame.put_slice(payload);
    frame.freeze()
}
