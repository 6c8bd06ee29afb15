//! Runs a program on a channel, from its start to its exit status.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitStatus, kill_process, kill_process_group};
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::channel::{Channel, STDERR};
use crate::copy;
use crate::host::{Failure, Host, Started, Streams, Task};
use crate::signals;
use crate::wire::Message;

/// Time between SIGHUP and SIGKILL for a program whose client has gone.
const GRACE: Duration = Duration::from_secs(5);

/// The server's ends of a program's streams.
enum Ends {
    Pipes { stdin: Sender, stdout: Receiver, stderr: Receiver },
    Terminal(Rc<AsyncFd<Rc<OwnedFd>>>),
}

pub struct Program {
    ends: Ends,
    started: Started,
}

/// Starts a program on a terminal, given by its two ends, or on pipes.
pub fn start(
    host: &dyn Host,
    task: &Task,
    variables: &BTreeMap<String, String>,
    terminal: Option<(Rc<AsyncFd<Rc<OwnedFd>>>, OwnedFd)>,
) -> io::Result<Program> {
    if let Some((end, command_end)) = terminal {
        let fd = command_end.as_fd();
        let streams = Streams { stdin: fd, stdout: fd, stderr: fd, owns_terminal: true };
        let started = host.spawn(task, variables, &streams)?;
        return Ok(Program { ends: Ends::Terminal(end), started });
    }
    let (stdin_end, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stdout, stdout_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, stderr_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stdin, stdout) = (Sender::from_owned_fd(stdin)?, Receiver::from_owned_fd(stdout)?);
    let ends = Ends::Pipes { stdin, stdout, stderr: Receiver::from_owned_fd(stderr)? };
    let streams = Streams {
        stdin: stdin_end.as_fd(),
        stdout: stdout_end.as_fd(),
        stderr: stderr_end.as_fd(),
        owns_terminal: false,
    };
    Ok(Program { ends, started: host.spawn(task, variables, &streams)? })
}

impl Program {
    pub fn pid(&self) -> Pid {
        self.started.pid
    }

    /// Follows the program to its end, and reports its status. `pid` is cleared before the number can be reused.
    pub async fn follow(self, channel: &Channel, pid: &Cell<Option<Pid>>) {
        let Started { pid: own, ended, failure, resources } = self.started;
        let status = match failure.await {
            Some(Failure { exit_code, words }) => {
                channel.send_all(Some(STDERR), words.as_bytes()).await;
                let _ = ended.await;
                pid.set(None);
                Some(Status::Code(exit_code))
            }
            None => self.ends.run(channel, own, ended, pid).await.map(Status::of),
        };
        channel.send_eof();
        if let Some(status) = status {
            status.report(channel);
        }
        channel.close();
        drop(resources);
    }
}

impl Ends {
    async fn run(
        self,
        channel: &Channel,
        own: Pid,
        ended: oneshot::Receiver<WaitStatus>,
        pid: &Cell<Option<Pid>>,
    ) -> Option<WaitStatus> {
        let has_terminal = matches!(self, Ends::Terminal(_));
        let end = async {
            let status = wait(channel, own, ended, has_terminal).await;
            pid.set(None);
            status
        };
        match self {
            Ends::Pipes { stdin, stdout, stderr } => {
                let input = async {
                    let _ = copy::from_client(channel, &stdin).await;
                    drop(stdin);
                    copy::drain(channel).await;
                };
                // The output ends when every process has closed it, as with other SSH servers.
                let outputs = async {
                    tokio::join!(
                        send_stdout(channel, stdout),
                        copy::to_client(channel, Some(STDERR), &stderr)
                    )
                };
                run_until_second_ends(input, async { tokio::join!(end, outputs).0 }).await
            }
            Ends::Terminal(terminal) => {
                let input = async {
                    let _ = copy::from_client(channel, &*terminal).await;
                    copy::drain(channel).await;
                };
                let output = async { drop(copy::to_client(channel, None, &*terminal).await) };
                let rest = copy::rest_to_client(channel, &*terminal);
                run_until_second_ends(input, end_and_rest(end, output, rest)).await
            }
        }
    }
}

/// Sends the standard output, and returns the pipe to keep it open for other writers. None if the client reports that
/// the reader has gone: writers then get a broken pipe, as with a local `| head`.
async fn send_stdout(channel: &Channel, stdout: Receiver) -> Option<Receiver> {
    tokio::select! {
        () = channel.unread() => None,
        _ = copy::to_client(channel, None, &stdout) => Some(stdout),
    }
}

/// Runs both, and returns when the second has ended.
async fn run_until_second_ends<T>(first: impl Future<Output = ()>, second: impl Future<Output = T>) -> T {
    let first = async {
        first.await;
        std::future::pending().await
    };
    tokio::select! {
        result = second => result,
        () = first => unreachable!("it never ends"),
    }
}

/// Returns when a terminal's program has ended and its last output was sent. Other processes may keep it open.
async fn end_and_rest<T>(
    end: impl Future<Output = T>,
    output: impl Future<Output = ()>,
    rest: impl Future<Output = ()>,
) -> T {
    let mut output = std::pin::pin!(output);
    let mut end = std::pin::pin!(end);
    tokio::select! {
        status = &mut end => {
            rest.await;
            status
        }
        () = &mut output => end.await,
    }
}

/// Waits for the program's end. If the client goes, the program's process group gets SIGHUP and, after a time, SIGKILL.
/// Other processes of the cgroup continue: users expect a program started with `nohup`, and an editor's server, to be
/// there when they come back. Without a terminal SIGKILL goes to the program alone: no hang-up would end the others.
async fn wait(
    channel: &Channel,
    pid: Pid,
    mut ended: oneshot::Receiver<WaitStatus>,
    has_terminal: bool,
) -> Option<WaitStatus> {
    tokio::select! {
        biased;
        status = &mut ended => return status.ok(),
        () = channel.gone() => {}
    }
    let _ = kill_process_group(pid, Signal::HUP);
    tokio::select! {
        status = &mut ended => return status.ok(),
        () = sleep(GRACE) => {}
    }
    let _ = match has_terminal {
        true => kill_process_group(pid, Signal::KILL),
        false => kill_process(pid, Signal::KILL),
    };
    ended.await.ok()
}

enum Status {
    Code(u32),
    /// The signal, and whether the program dumped core.
    Signal(i32, bool),
}

impl Status {
    fn of(status: WaitStatus) -> Status {
        match (status.exit_status(), status.terminating_signal()) {
            (None, Some(signal)) => Status::Signal(signal, status.as_raw() & 0x80 != 0),
            (code, _) => Status::Code(code.unwrap_or(255) as u32),
        }
    }

    fn report(self, channel: &Channel) {
        match self {
            Status::Code(code) => channel.request("exit-status", Message::part().u32(code)),
            Status::Signal(signal, has_dumped) => match signals::name(signal) {
                Some(name) => {
                    let details = Message::part().string(name).bool(has_dumped).string("").string("");
                    channel.request("exit-signal", details);
                }
                None => channel.request("exit-status", Message::part().u32(128 + signal as u32)),
            },
        }
    }
}
