//! Runs a terminal, in a task of its own: from its program's start until its cgroup can be released.

use std::os::fd::AsFd;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use rustix::process::Pid;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::{MutexGuard, oneshot};
use tokio::task::coop::consume_budget;
use tokio::time::{sleep, timeout};

use super::client::{self, Connected};
use super::login::{self, TerminalSpec};
use super::pty::{self, Pty};
use super::table::Terminals;
use super::terminal::{End, Terminal};
use crate::cgroup::Leaf;
use crate::launch;
use crate::machine::Machine;
use crate::output::PIPES_CLOSE_WITHIN;
use crate::refusal::Refusal;
use crate::sys::ChildFds;
use crate::unable::{Unable, not_spawned};

/// Time between the hang-up and SIGKILL.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// Limit of the bytes read after a program's end, more than a pseudo-terminal buffers.
const REST_BYTES: usize = 128 * 1024;
const READ_BYTES: usize = 4096;

pub type Started = oneshot::Sender<Result<(), Refusal>>;

struct Spawned {
    name: Option<String>,
    program: String,
    leaf: Leaf,
    pty: Pty,
    pid: Pid,
    ended: oneshot::Receiver<i32>,
    report: Receiver,
}

/// Attaches a client to the terminal of the requested name, or starts a terminal for it.
pub async fn run(
    machine: Rc<Machine>,
    terminals: Rc<Terminals>,
    spec: TerminalSpec,
    client: Connected,
    started: Started,
) {
    let starting = terminals.starting.lock().await;
    if let Some(terminal) = terminals.find(spec.name.as_deref()) {
        let _ = started.send(Ok(()));
        attach(&machine, &terminal, client);
        return terminal.resize(spec.rows, spec.cols);
    }
    let spawned = match terminals.check_limit() {
        Ok(()) => spawn(&machine, spec).await,
        Err(refusal) => Err(refusal),
    };
    match spawned {
        Err(refusal) => drop(started.send(Err(refusal))),
        Ok(spawned) => run_on(&machine, &terminals, spawned, client, started, starting).await,
    }
    drop(machine.burst.join());
}

fn attach(machine: &Rc<Machine>, terminal: &Rc<Terminal>, client: Connected) {
    let id = terminal.join();
    tokio::task::spawn_local(client::serve(machine.clone(), terminal.clone(), id, client));
}

async fn spawn(machine: &Machine, spec: TerminalSpec) -> Result<Spawned, Refusal> {
    let launch = login::prepare(machine, &spec).await?;
    let asked = spec.argv.as_ref().and_then(|argv| argv.first()).cloned();
    let program = asked.unwrap_or_else(|| launch.files[0].to_string_lossy().into_owned());
    let leaf = machine.cgroups.take_leaf().map_err(not_spawned)?;
    let spawned = pty::open(launch.uid, launch.gid).and_then(|(pty, end)| {
        let (rows, cols) = spec.size();
        pty.resize(rows, cols);
        let (cgroup, end) = (Some(leaf.dir.as_fd()), end.as_fd());
        let fds = ChildFds { cgroup, stdin: Some(end), owns_terminal: true, stdout: end, stderr: end };
        let (pid, report) = launch::spawn_on(&launch, &fds)?;
        Ok((pty, pid, report))
    });
    match spawned {
        Ok((pty, pid, report)) => {
            let ended = machine.reaper.watch(pid);
            Ok(Spawned { name: spec.name, program, leaf, pty, pid, ended, report })
        }
        Err(error) => {
            machine.cgroups.release(&leaf);
            Err(not_spawned(error))
        }
    }
}

async fn run_on(
    machine: &Rc<Machine>,
    terminals: &Terminals,
    spawned: Spawned,
    client: Connected,
    started: Started,
    starting: MutexGuard<'_, ()>,
) {
    let Spawned { name, program, leaf, pty, pid, ended, mut report } = spawned;
    let failure = launch::read_report(&mut report).await;
    let terminal = Rc::new(Terminal::new(name, leaf, pid, pty));
    match failure.map(|failure| Unable::from(&program, failure)) {
        None => {
            terminals.running.borrow_mut().push(terminal.clone());
            drop(starting);
            let _ = started.send(Ok(()));
            attach(machine, &terminal, client);
            live(machine, terminals, &terminal, ended).await;
        }
        Some(Unable::Refused(refusal)) => drop(started.send(Err(refusal))),
        Some(Unable::Exits { exit_code, line }) => {
            let _ = ended.await;
            let _ = started.send(Ok(()));
            attach(machine, &terminal, client);
            terminal.push(String::from_utf8_lossy(&line).replace('\n', "\r\n").as_bytes());
            terminal.end(End::Exit(exit_code));
        }
    }
    machine.cgroups.release(&terminal.leaf);
}

async fn live(
    machine: &Machine,
    terminals: &Terminals,
    terminal: &Rc<Terminal>,
    ended: oneshot::Receiver<i32>,
) {
    let mut hanging_up = pin!(hang_up(machine, terminal));
    let mut ending = pin!(async {
        let end = take_output(terminal, ended).await;
        terminals.remove(terminal);
        terminal.end(end);
    });
    tokio::select! {
        () = &mut ending => {}
        () = &mut hanging_up => return ending.await,
    }
    // Other processes of the cgroup may still run, and are killed by the hang-up too.
    if terminal.is_hung_up() && !terminal.leaf.members().is_empty() {
        hanging_up.await;
    }
}

async fn hang_up(machine: &Machine, terminal: &Terminal) {
    terminal.wait_for_hang_up().await;
    terminal.hang_up();
    sleep(ENDS_WITHIN).await;
    // Nothing is killed during a capture: the processes are saved as they were frozen.
    machine.wait_for_thaw().await;
    terminal.leaf.kill();
}

/// Reads all output until the program has ended, and shortly after that of other processes.
async fn take_output(terminal: &Terminal, ended: oneshot::Receiver<i32>) -> End {
    let Some(pty) = terminal.pty() else { return End::Lost };
    let mut reading = pin!(read(terminal, &pty));
    let mut ended = pin!(ended);
    let mut is_closed = false;
    let code = loop {
        tokio::select! {
            code = &mut ended => break code,
            () = &mut reading, if !is_closed => is_closed = true,
        }
    };
    if !is_closed && timeout(PIPES_CLOSE_WITHIN, &mut reading).await.is_err() {
        read_rest(terminal, &pty).await;
    }
    code.map_or(End::Lost, End::Exit)
}

async fn read(terminal: &Terminal, pty: &Pty) {
    let mut buffer = [0; READ_BYTES];
    loop {
        terminal.wait_for_space().await;
        match pty.read(&mut buffer).await {
            Ok(count) if count > 0 => terminal.push(&buffer[..count]),
            _ => return,
        }
        // A program that never pauses must not block the rest of the agent.
        consume_budget().await;
    }
}

/// Reads the buffered bytes only: background processes may keep the other end open for ever.
async fn read_rest(terminal: &Terminal, pty: &Pty) {
    let mut buffer = [0; READ_BYTES];
    let mut rest = REST_BYTES;
    while rest > 0 {
        terminal.wait_for_space().await;
        match pty.read_now(&mut buffer) {
            Ok(count) if count > 0 => terminal.push(&buffer[..count]),
            _ => return,
        }
        rest = rest.saturating_sub(READ_BYTES);
    }
}
