//! `POST /v1/exec`: one command, run by a task of its own. The answer owns the receiving end of a channel of frames,
//! which is dropped when the host goes away.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Response;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::body::{self, Body};
use crate::cgroup::Leaf;
use crate::frames::{self, ExecEnd, FrameType};
use crate::launch::{self, Child, Program};
use crate::machine::Machine;
use crate::output;
use crate::refusal::Refusal;
use crate::sys;
use crate::unable::{Unable, not_spawned};

/// Frames queued between a command and the connection. They and the pipes are all the memory of a blocked command.
const FRAMES: usize = 2;
/// Exit code of a command that was killed at its time limit.
const TIMED_OUT: i32 = -1;

#[derive(Deserialize)]
struct ExecSpec {
    argv: Vec<String>,
    cwd: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// 0 for no time limit.
    #[serde(default)]
    timeout_ms: u64,
    output_limit_bytes: Option<u64>,
}

type Started = oneshot::Sender<Result<(), Refusal>>;

pub async fn exec(machine: &Rc<Machine>, body: Incoming) -> Result<Response<Body>, Refusal> {
    let spec: ExecSpec = body::read_json(body).await?;
    let launch =
        launch::prepare(machine, &Program { argv: &spec.argv, cwd: spec.cwd.as_deref(), env: &spec.env })
            .await?;
    let (frames, stream) = mpsc::channel(FRAMES);
    let (started, has_started) = oneshot::channel();
    tokio::task::spawn_local(run(machine.clone(), spec, launch, frames, started));
    has_started.await.unwrap_or_else(|_| Err(Refusal::internal("start the command", "it was given up")))?;
    Ok(body::stream(stream))
}

/// `GET /v1/commands`: how many commands run whose caller was lost when the machine was captured and loaded.
pub fn list_unheard(machine: &Machine) -> Result<Response<Body>, Refusal> {
    body::json(&json!({ "going_on": machine.commands.of_other_generations(machine.generation.get()) }))
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
    let command = Command { machine: &machine, leaf: &leaf, spec: &spec, frames, began: Instant::now() };
    command.run(launch, started).await;
    // The answer is sent before the leaf is removed.
    yield_now().await;
    machine.cgroups.release(&leaf);
}

/// A command from its start to its last frame.
struct Command<'a> {
    machine: &'a Machine,
    leaf: &'a Leaf,
    spec: &'a ExecSpec,
    frames: mpsc::Sender<Bytes>,
    began: Instant,
}

impl Command<'_> {
    /// Drops the channel of frames at the end, so that the end of the stream is marked on the last frame.
    async fn run(self, launch: sys::Launch, started: Started) {
        // Counted before the start, so that a machine that is saved in between counts the command too.
        let _under_way = self.machine.commands.begin(self.machine.generation.get());
        let mut child = match launch::spawn(&launch, self.leaf) {
            Ok(child) => child,
            Err(error) => return drop(started.send(Err(not_spawned(error)))),
        };
        let ended = self.machine.reaper.watch(child.pid);
        let failure = tokio::select! {
            failure = launch::read_report(&mut child.report) => failure,
            () = self.unwanted() => None,
        };
        match failure {
            None => {
                let _ = started.send(Ok(()));
                let last = self.follow(child, ended).await;
                let _ = self.frames.send(last).await;
            }
            Some(failure) => {
                let _ = ended.await;
                self.answer_unable(Unable::from(&self.spec.argv[0], failure), started).await;
            }
        }
    }

    /// Answers as a shell does for a command that cannot run: one line on stderr and an exit code.
    async fn answer_unable(&self, unable: Unable, started: Started) {
        let (exit_code, line) = match unable {
            Unable::Refused(refusal) => return drop(started.send(Err(refusal))),
            Unable::Exits { exit_code, line } => (exit_code, line),
        };
        let _ = started.send(Ok(()));
        let _ = self.frames.send(frames::encode(FrameType::Stderr, &line)).await;
        let _ = self.frames.send(frames::exit(&self.end(exit_code))).await;
    }

    async fn follow(&self, child: Child, ended: oneshot::Receiver<i32>) -> Bytes {
        let (end, (stdout_truncated, stderr_truncated)) =
            output::forward_both(child, self.spec.output_limit_bytes, &self.frames, self.wait_for_end(ended))
                .await;
        match end {
            Some(end) => frames::exit(&ExecEnd { stdout_truncated, stderr_truncated, ..end }),
            None => frames::error("the command's end was lost"),
        }
    }

    /// Waits for the command's own end. Kills the command when its time limit is reached or its caller has gone.
    async fn wait_for_end(&self, mut ended: oneshot::Receiver<i32>) -> Option<ExecEnd> {
        let time_limit = Duration::from_millis(self.spec.timeout_ms);
        let timed_out = tokio::select! {
            biased;
            code = &mut ended => return code.ok().map(|code| self.end(code)),
            () = sleep(time_limit), if !time_limit.is_zero() => true,
            () = self.unwanted() => false,
        };
        self.leaf.kill();
        let code = ended.await;
        Some(ExecEnd { timed_out, ..self.end(if timed_out { TIMED_OUT } else { code.ok()? }) })
    }

    fn end(&self, exit_code: i32) -> ExecEnd {
        let duration_us = self.began.elapsed().as_micros() as u64;
        ExecEnd { exit_code, duration_us, ..Default::default() }
    }

    /// Returns when the caller has gone. Never returns if the machine was loaded from a snapshot meanwhile: in a loaded
    /// machine a command from before the capture has no caller, and continues without one.
    async fn unwanted(&self) {
        self.frames.closed().await;
        if !self.machine.wait_for_thaw().await {
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hyper::StatusCode;
    use serde_json::{Value, json};
    use tokio::time::sleep;

    use super::*;
    use crate::testing::{Answer, Host, TestMachine, run, until};

    const STDOUT: u8 = 1;
    const EXIT: u8 = 3;

    async fn start(host: &Host, line: &str, timeout_ms: u64) -> Answer {
        let argv = ["/bin/sh", "-c", line];
        let spec = json!({ "argv": argv, "cwd": "/", "env": {}, "timeout_ms": timeout_ms });
        let mut exchange = host.send("POST", "/v1/exec");
        exchange.body.send_data(spec.to_string().into(), true).unwrap();
        let answer = exchange.answer().await;
        assert_eq!(answer.status, StatusCode::OK);
        answer
    }

    async fn finish(mut answer: Answer) -> (Vec<u8>, Value) {
        let (output, last) = answer.until_other(STDOUT).await;
        let (kind, end) = last.expect("the stream broke off");
        assert_eq!(kind, EXIT);
        assert_eq!(answer.frame().await, None);
        (output, serde_json::from_slice(&end).unwrap())
    }

    fn runs(pid: &[u8]) -> bool {
        let pid = String::from_utf8_lossy(pid);
        let stat = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[test]
    fn a_command_killed_by_a_signal_exits_with_128_and_its_number() {
        run(async {
            let machine = TestMachine::new();
            let host = machine.connect().await;
            for (line, code) in [("exit 0", 0), ("exit 255", 255), ("kill -9 $$", 137), ("kill -HUP $$", 129)]
            {
                let (_, end) = finish(start(&host, line, 0).await).await;
                assert_eq!((&end["exit_code"], &end["timed_out"]), (&json!(code), &json!(false)), "{line}");
            }
        });
    }

    #[test]
    fn a_commands_stdin_is_empty() {
        run(async {
            let machine = TestMachine::new();
            let host = machine.connect().await;
            let (output, end) = finish(start(&host, "cat; readlink /proc/self/fd/0", 0).await).await;
            assert_eq!((&output[..], &end["exit_code"]), (&b"/dev/null\n"[..], &json!(0)));
        });
    }

    #[test]
    fn background_processes_outlive_their_command_and_do_not_delay_its_end() {
        run(async {
            let machine = TestMachine::new();
            let host = machine.connect().await;
            let mark = machine.room.path().join("late");
            let line = format!("(sleep 1; echo lost; echo x > {}; sleep 1000) & echo $!", mark.display());
            let (pid, end) = finish(start(&host, &line, 0).await).await;
            assert_eq!(end["exit_code"], 0);
            assert!(runs(&pid) && !mark.exists());
            until(|| mark.exists()).await;
            assert!(runs(&pid));
        });
    }

    #[test]
    fn a_timeout_kills_all_that_the_command_started_and_keeps_its_output() {
        run(async {
            let machine = TestMachine::new();
            let host = machine.connect().await;
            let (pid, end) = finish(start(&host, "setsid sleep 1000 & echo $!; sleep 1000", 500).await).await;
            assert_eq!((&end["exit_code"], &end["timed_out"]), (&json!(-1), &json!(true)));
            until(|| !runs(&pid)).await;
        });
    }

    #[test]
    fn a_host_that_leaves_ends_all_that_the_command_started() {
        run(async {
            let machine = TestMachine::new();
            let host = machine.connect().await;
            let mut answer = start(&host, "setsid sleep 1000 & echo $!; sleep 1000", 0).await;
            let (_, pid) = answer.frame().await.unwrap();
            assert!(runs(&pid));
            drop(answer);
            until(|| !runs(&pid)).await;
        });
    }

    #[test]
    fn a_host_that_leaves_during_a_freeze_is_missed_once_the_machine_runs_on() {
        run(async {
            let machine = TestMachine::new();
            let (host, other) = (machine.connect().await, machine.connect().await);
            let mut answer = start(&host, "echo $$; exec sleep 1000", 0).await;
            let (_, pid) = answer.frame().await.unwrap();
            other.call("POST", "/v1/freeze", Value::Null).await;
            host.vanish();
            sleep(Duration::from_millis(200)).await;
            assert!(runs(&pid));
            other.call("POST", "/v1/thaw", Value::Null).await;
            until(|| !runs(&pid)).await;
        });
    }

    #[test]
    fn in_a_loaded_machine_the_command_continues_without_its_host() {
        run(async {
            let machine = TestMachine::new();
            let (host, other) = (machine.connect().await, machine.connect().await);
            let mark = machine.room.path().join("mark");
            let line = format!("echo ready; sleep 0.5; echo x > {}", mark.display());
            let mut answer = start(&host, &line, 0).await;
            answer.frame().await.unwrap();
            other.call("POST", "/v1/freeze", Value::Null).await;
            host.vanish();
            sleep(Duration::from_millis(200)).await;
            machine.machine.generation.set(1);
            other.call("POST", "/v1/thaw", Value::Null).await;
            let going_on = async || other.get("/v1/commands").await.json().await["going_on"].clone();
            assert_eq!(going_on().await, 1);
            until(|| mark.exists()).await;
            while going_on().await != 0 {
                sleep(Duration::from_millis(5)).await;
            }
        });
    }

    #[test]
    fn a_command_with_a_listening_host_is_not_counted_as_unheard() {
        run(async {
            let machine = TestMachine::new();
            let (host, other) = (machine.connect().await, machine.connect().await);
            let _answer = start(&host, "sleep 1000", 0).await;
            assert_eq!(other.get("/v1/commands").await.json().await["going_on"], 0);
        });
    }
}
