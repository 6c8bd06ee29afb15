//! `POST /v1/exec`: one command from its request to its last frame. The command belongs to a task of its own; the answer
//! holds the other end of a channel of frames, and a host that goes away is noticed as that end being dropped.

use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use rustix::io::Errno;
use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::body::{self, Body, FrameStream};
use crate::cgroup::Leaf;
use crate::frames::{self, ExecEnd, FrameType};
use crate::launch::{self, Child, ExecSpec};
use crate::machine::Machine;
use crate::output::{self, Output};
use crate::refusal::{Refusal, plain};
use crate::sys;

/// Frames between a command and the connection; with a pipe's own 64 KiB that is all a blocked command costs.
const FRAMES: usize = 2;
/// How long background processes may hold the pipes after the command's end before the answer ends without them.
const PIPES_CLOSE_WITHIN: Duration = Duration::from_millis(500);
const TIMED_OUT: i32 = -1;

type Started = oneshot::Sender<Result<(), Refusal>>;

pub async fn exec(machine: &Rc<Machine>, body: Incoming) -> Result<Response<Body>, Refusal> {
    let spec: ExecSpec = body::read_json(body).await?;
    let launch = launch::prepare(&spec)?;
    let (frames, stream) = mpsc::channel(FRAMES);
    let (started, has_started) = oneshot::channel();
    tokio::task::spawn_local(run(machine.clone(), spec, launch, frames, started));
    has_started.await.unwrap_or_else(|_| Err(Refusal::internal("start the command", "it was given up")))?;
    Ok(Response::new(Either::Right(FrameStream(stream))))
}

async fn run(
    machine: Rc<Machine>,
    spec: ExecSpec,
    launch: sys::Launch,
    frames: mpsc::Sender<Bytes>,
    started: Started,
) {
    let _member = machine.burst.join();
    let leaf = match machine.cgroups.take_leaf() {
        Ok(leaf) => leaf,
        Err(error) => return drop(started.send(Err(not_spawned(error)))),
    };
    run_in(&machine, &leaf, &spec, launch, frames, started).await;
    // The answer leaves before the leaf is cleared away.
    yield_now().await;
    machine.cgroups.release(leaf);
}

/// Ends with the answer whole: dropped here, the channel of frames lets its end ride on the last one.
async fn run_in(
    machine: &Machine,
    leaf: &Leaf,
    spec: &ExecSpec,
    launch: sys::Launch,
    frames: mpsc::Sender<Bytes>,
    started: Started,
) {
    let began = Instant::now();
    match launch::spawn(&launch, leaf) {
        Err(error) => drop(started.send(Err(not_spawned(error)))),
        Ok(mut child) => {
            let ended = machine.reaper.watch(child.pid);
            let failure = tokio::select! {
                failure = read_report(&mut child) => failure,
                () = unwanted(machine, &frames) => None,
            };
            match failure {
                None => {
                    let _ = started.send(Ok(()));
                    let last = follow(machine, spec, began, child, ended, leaf, &frames).await;
                    let _ = frames.send(last).await;
                }
                Some(failure) => {
                    let _ = ended.await;
                    tell_failure(spec, failure, began, &frames, started).await;
                }
            }
        }
    }
}

fn not_spawned(error: std::io::Error) -> Refusal {
    let message =
        format!("the machine cannot start another process: {error}; end some processes and try again");
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "spawn_failed", message)
}

async fn read_report(child: &mut Child) -> Option<sys::Failure> {
    let mut report = Vec::new();
    let _ = child.report.read_to_end(&mut report).await;
    sys::Failure::parse(&report)
}

async fn follow(
    machine: &Machine,
    spec: &ExecSpec,
    began: Instant,
    child: Child,
    ended: oneshot::Receiver<i32>,
    leaf: &Leaf,
    frames: &mpsc::Sender<Bytes>,
) -> Bytes {
    let (cut, is_cut) = watch::channel(false);
    let limit_bytes = spec.output_limit_bytes;
    let forward = |pipe, kind| {
        let output = Output { pipe, kind, limit_bytes };
        output::forward(output, frames.clone(), is_cut.clone())
    };
    let mut outputs = pin!(async {
        tokio::join!(forward(child.stdout, FrameType::Stdout), forward(child.stderr, FrameType::Stderr))
    });
    let mut end = pin!(wait_for_end(machine, spec, began, ended, leaf, frames));
    let mut truncated = None;
    let end = loop {
        tokio::select! {
            end = &mut end => break end,
            both = &mut outputs, if truncated.is_none() => truncated = Some(both),
        }
    };
    if truncated.is_none() {
        truncated = timeout(PIPES_CLOSE_WITHIN, &mut outputs).await.ok();
    }
    let (stdout_truncated, stderr_truncated) = match truncated {
        Some(truncated) => truncated,
        None => {
            let _ = cut.send(true);
            outputs.await
        }
    };
    match end {
        Some(end) => frames::exit(&ExecEnd { stdout_truncated, stderr_truncated, ..end }),
        None => frames::error("the command's end was lost"),
    }
}

/// The command's own end, or the end it is brought to when its time is up or nobody listens any more.
async fn wait_for_end(
    machine: &Machine,
    spec: &ExecSpec,
    began: Instant,
    mut ended: oneshot::Receiver<i32>,
    leaf: &Leaf,
    frames: &mpsc::Sender<Bytes>,
) -> Option<ExecEnd> {
    let mut timed_out = false;
    let code = tokio::select! {
        biased;
        code = &mut ended => code,
        () = time_is_up(spec.timeout_ms) => {
            timed_out = true;
            leaf.kill();
            ended.await
        }
        () = unwanted(machine, frames) => {
            leaf.kill();
            ended.await
        }
    };
    Some(ExecEnd {
        exit_code: if timed_out { TIMED_OUT } else { code.ok()? },
        timed_out,
        duration_us: began.elapsed().as_micros() as u64,
        ..Default::default()
    })
}

/// Nobody listens any more because the host went away. A machine that is frozen is being saved, or is a copy that was just
/// loaded: there the listener stayed behind in another life, and the command goes on without one.
async fn unwanted(machine: &Machine, frames: &mpsc::Sender<Bytes>) {
    frames.closed().await;
    if machine.is_frozen.get() {
        std::future::pending().await
    }
}

async fn time_is_up(timeout_ms: u64) {
    match timeout_ms {
        0 => std::future::pending().await,
        ms => sleep(Duration::from_millis(ms)).await,
    }
}

/// A command that cannot run ends as it would in a shell: one line on stderr and 127 or 126.
async fn tell_failure(
    spec: &ExecSpec,
    failure: sys::Failure,
    began: Instant,
    frames: &mpsc::Sender<Bytes>,
    started: Started,
) {
    let (exit_code, line) = match failure {
        sys::Failure::Directory(errno) => {
            let message = format!("cwd: the user may not enter it: {errno}");
            return drop(started.send(Err(Refusal::invalid(message))));
        }
        sys::Failure::Setup(errno) => {
            return drop(started.send(Err(not_spawned(errno.into()))));
        }
        sys::Failure::Exec(errno) => not_executed(errno),
        sys::Failure::Interpreter(errno, head) => not_interpreted(errno, &head),
    };
    let _ = started.send(Ok(()));
    let line = format!("{}: {line}\n", spec.argv[0]);
    let line = &line.as_bytes()[..line.len().min(frames::PAYLOAD_BYTES)];
    let _ = frames.send(frames::encode(FrameType::Stderr, line)).await;
    let end = ExecEnd { exit_code, duration_us: began.elapsed().as_micros() as u64, ..Default::default() };
    let _ = frames.send(frames::exit(&end)).await;
}

fn not_executed(errno: Errno) -> (i32, String) {
    match errno {
        Errno::NOENT | Errno::NOTDIR => (127, "command not found".into()),
        Errno::NOEXEC => (126, "neither a program for this machine nor a script that begins with #!".into()),
        errno => (126, plain(errno)),
    }
}

/// A script names its interpreter in its first line, a program its loader, where nobody reads it.
fn not_interpreted(errno: Errno, head: &[u8]) -> (i32, String) {
    let exit_code = if errno == Errno::ACCESS { 126 } else { 127 };
    let line = match interpreter(head) {
        Some(interpreter) => format!("{interpreter}: bad interpreter: {}", plain(errno)),
        None => format!("cannot execute: a file that it needs: {}", plain(errno)),
    };
    (exit_code, line)
}

fn interpreter(head: &[u8]) -> Option<String> {
    let line = head.strip_prefix(b"#!")?.split(|byte| matches!(byte, b'\n' | b'\0')).next()?;
    let name = line.split(|byte| matches!(byte, b' ' | b'\t')).find(|word| !word.is_empty())?;
    // A line that ends as on Windows looks right until its end is shown.
    Some(String::from_utf8_lossy(name).replace('\r', "\\r"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_names_its_interpreter_in_its_first_line() {
        let name = |head: &[u8]| interpreter(head);
        assert_eq!(name(b"#!/nope\necho\n").as_deref(), Some("/nope"));
        assert_eq!(name(b"#! /usr/bin/env -S x\n").as_deref(), Some("/usr/bin/env"));
        assert_eq!(name(b"#!/bin/sh\r\n\0\0").as_deref(), Some("/bin/sh\\r"));
        assert_eq!(name(b"#!/nope\0\0").as_deref(), Some("/nope"));
        assert_eq!(name(b"\x7fELF"), None);
    }

    #[test]
    fn a_command_that_cannot_run_is_told_in_words() {
        assert_eq!(not_executed(Errno::NOENT), (127, "command not found".into()));
        assert_eq!(not_executed(Errno::ACCESS), (126, "Permission denied".into()));
        assert_eq!(not_executed(Errno::TOOBIG), (126, "Argument list too long".into()));
        let missing = "/nope: bad interpreter: No such file or directory";
        assert_eq!(not_interpreted(Errno::NOENT, b"#!/nope\n"), (127, missing.into()));
        let forbidden = "/etc/passwd: bad interpreter: Permission denied";
        assert_eq!(not_interpreted(Errno::ACCESS, b"#!/etc/passwd\n"), (126, forbidden.into()));
    }
}
