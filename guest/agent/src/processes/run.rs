//! Runs a named process, in a task of its own.

use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use rustix::process::{Signal, kill_process_group};
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::process::Process;
use super::table::{Processes, Reservation};
use crate::cgroup::Leaf;
use crate::frames::FrameType;
use crate::launch::{self, Child, Program};
use crate::machine::Machine;
use crate::refusal::Refusal;
use crate::unable::{Unable, not_spawned};
use crate::{output, sys};

/// Time between SIGTERM and SIGKILL.
const TERMINATES_WITHIN: Duration = Duration::from_secs(5);
/// Chunks queued between a process and its logs.
const CHUNKS: usize = 2;
/// Exit code of a process whose end was not reported.
const LOST: i32 = 255;

#[derive(Deserialize)]
pub struct ProcessSpec {
    pub name: String,
    argv: Vec<String>,
    cwd: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    keep_alive: bool,
}

pub type Started = oneshot::Sender<Result<Rc<Process>, Refusal>>;

/// Starts a process, and follows it until its cgroup can be released. Does not depend on the host's connection.
pub async fn run(machine: Rc<Machine>, processes: Rc<Processes>, spec: ProcessSpec, started: Started) {
    let reservation = match processes.reserve(&spec.name, &spec.argv) {
        Ok(reservation) => reservation,
        Err(refusal) => return drop(started.send(Err(refusal))),
    };
    match prepare(&machine, &spec).await {
        Err(refusal) => drop(started.send(Err(refusal))),
        Ok((launch, leaf)) => {
            run_in(&machine, &processes, &leaf, spec, launch, reservation, started).await;
            machine.cgroups.release(&leaf);
        }
    }
    // Schedules a trim of the heap: the output took memory.
    drop(machine.burst.join());
}

async fn prepare(machine: &Machine, spec: &ProcessSpec) -> Result<(sys::Launch, Leaf), Refusal> {
    let program = Program { argv: &spec.argv, cwd: spec.cwd.as_deref(), env: &spec.env };
    Ok((launch::prepare(machine, &program).await?, machine.cgroups.take_leaf().map_err(not_spawned)?))
}

async fn run_in(
    machine: &Machine,
    processes: &Processes,
    leaf: &Leaf,
    spec: ProcessSpec,
    launch: sys::Launch,
    reservation: Reservation<'_>,
    started: Started,
) {
    let mut child = match launch::spawn(&launch, leaf) {
        Ok(child) => child,
        Err(error) => return drop(started.send(Err(not_spawned(error)))),
    };
    let ended = machine.reaper.watch(child.pid);
    let failure = launch::read_report(&mut child.report).await;
    let make = |pid| {
        let process =
            Rc::new(Process::new(&processes.directory, spec.name, spec.argv.clone(), spec.keep_alive, pid));
        processes.add(process.clone());
        process
    };
    match failure.map(|failure| Unable::from(&spec.argv[0], failure)) {
        None => {
            let process = make(Some(child.pid));
            drop(reservation);
            let _ = started.send(Ok(process.clone()));
            live(machine, processes, leaf, &process, child, ended).await;
        }
        Some(Unable::Refused(refusal)) => drop(started.send(Err(refusal))),
        Some(Unable::Exits { exit_code, line }) => {
            let _ = ended.await;
            let process = make(None);
            process.ended(exit_code);
            process.stderr.append(line.into()).await;
            process.drained();
            let _ = started.send(Ok(process));
        }
    }
}

async fn live(
    machine: &Machine,
    processes: &Processes,
    leaf: &Leaf,
    process: &Process,
    child: Child,
    ended: oneshot::Receiver<i32>,
) {
    let mut ending = pin!(record_output(process, child, ended));
    let mut stopping = pin!(stop(machine, leaf, process));
    let is_stopped = tokio::select! {
        () = &mut ending => false,
        () = &mut stopping => true,
    };
    if is_stopped {
        ending.await;
    }
    process.drained();
    processes.bound_logs();
    // Other processes of the cgroup may still run, and are killed by the stop too.
    if !is_stopped && process.is_stopping() && !leaf.members().is_empty() {
        stopping.await;
    }
}

/// Waits for a stop, then sends SIGTERM to the process group and, after a time, SIGKILL to the cgroup.
async fn stop(machine: &Machine, leaf: &Leaf, process: &Process) {
    process.wait_for_stop().await;
    // Nothing is signalled during a capture: the processes are saved as they were frozen.
    machine.wait_for_thaw().await;
    if let Some(pid) = process.pid.filter(|_| process.is_running()) {
        let _ = kill_process_group(pid, Signal::TERM);
    }
    sleep(TERMINATES_WITHIN).await;
    machine.wait_for_thaw().await;
    leaf.kill();
}

async fn record_output(process: &Process, child: Child, ended: oneshot::Receiver<i32>) {
    let (chunks, received) = mpsc::channel(CHUNKS);
    let end = async { process.ended(ended.await.unwrap_or(LOST)) };
    let forward = async move {
        output::forward_both(child, None, &chunks, end).await;
    };
    tokio::join!(forward, write_logs(process, received));
}

async fn write_logs(process: &Process, mut chunks: mpsc::Receiver<Bytes>) {
    while let Some(frame) = chunks.recv().await {
        let (kind, bytes) = crate::frames::open(frame);
        let log = if kind == FrameType::Stderr as u8 { &process.stderr } else { &process.stdout };
        log.append(bytes).await;
        process.log_grew();
    }
}
