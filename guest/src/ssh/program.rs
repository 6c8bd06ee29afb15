//! A program on a channel, from its start to its exit status.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitStatus, kill_process, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::cgroup::Leaf;
use crate::machine::Machine;
use crate::refusal::plain;
use crate::ssh::channel::{Channel, STDERR};
use crate::ssh::copy;
use crate::ssh::signals;
use crate::ssh::wire::Message;
use crate::sys;

/// Between the hang-up and the end of a program whose client has gone.
const GRACE: Duration = Duration::from_secs(5);
const NOT_STARTED: u32 = 126;
const NOT_FOUND: u32 = 127;

/// What a program reads from and writes to.
pub enum Ends {
    Pipes { stdin: Sender, stdout: Receiver, stderr: Receiver },
    Terminal(Rc<AsyncFd<Rc<OwnedFd>>>),
}

pub struct Program {
    pub ends: Ends,
    pid: Pid,
    ended: oneshot::Receiver<WaitStatus>,
    report: Receiver,
    leaf: Option<Leaf>,
}

/// With a terminal, its two ends; else with pipes.
pub fn start(
    machine: &Machine,
    launch: &sys::Launch,
    is_in_cgroup: bool,
    terminal: Option<(Rc<AsyncFd<Rc<OwnedFd>>>, OwnedFd)>,
) -> io::Result<Program> {
    let leaf = is_in_cgroup.then(|| machine.cgroups.take_leaf()).transpose()?;
    match spawn(machine, launch, leaf.as_ref(), terminal) {
        Ok((pid, ended, report, ends)) => Ok(Program { ends, pid, ended, report, leaf }),
        Err(error) => {
            release(machine, leaf);
            Err(error)
        }
    }
}

fn release(machine: &Machine, leaf: Option<Leaf>) {
    if let Some(leaf) = leaf {
        machine.cgroups.release(leaf);
    }
}

type Spawned = (Pid, oneshot::Receiver<WaitStatus>, Receiver, Ends);

fn spawn(
    machine: &Machine,
    launch: &sys::Launch,
    leaf: Option<&Leaf>,
    terminal: Option<(Rc<AsyncFd<Rc<OwnedFd>>>, OwnedFd)>,
) -> io::Result<Spawned> {
    let (report, report_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let cgroup = leaf.map(|leaf| leaf.dir.as_fd());
    let report_fd = report_end.as_fd();
    let (pid, ends) = match terminal {
        Some((end, command_end)) => {
            let fd = command_end.as_fd();
            let fds = sys::ChildFds {
                cgroup,
                stdin: Some(fd),
                owns_terminal: true,
                stdout: fd,
                stderr: fd,
                report: report_fd,
            };
            (sys::spawn(launch, &fds)?, Ends::Terminal(end))
        }
        None => {
            let (stdin_end, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
            let (stdout, stdout_end) = pipe_with(PipeFlags::CLOEXEC)?;
            let (stderr, stderr_end) = pipe_with(PipeFlags::CLOEXEC)?;
            let fds = sys::ChildFds {
                cgroup,
                stdin: Some(stdin_end.as_fd()),
                owns_terminal: false,
                stdout: stdout_end.as_fd(),
                stderr: stderr_end.as_fd(),
                report: report_fd,
            };
            let pid = sys::spawn(launch, &fds)?;
            let (stdout, stderr) = (Receiver::from_owned_fd(stdout)?, Receiver::from_owned_fd(stderr)?);
            (pid, Ends::Pipes { stdin: Sender::from_owned_fd(stdin)?, stdout, stderr })
        }
    };
    let ended = machine.reaper.watch_status(pid);
    Ok((pid, ended, Receiver::from_owned_fd(report)?, ends))
}

impl Program {
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Follows it to its end, which the client is told, and clears up. `pid` is forgotten as soon as it may mean somebody
    /// else.
    pub async fn follow(mut self, machine: &Machine, channel: &Channel, pid: &Cell<Option<Pid>>) {
        let leaf = self.leaf.take();
        let status = match self.failure().await {
            Some(failure) => {
                let (code, words) = told(failure);
                channel.send_all(Some(STDERR), words.as_bytes()).await;
                let _ = self.ended.await;
                pid.set(None);
                Some(Status::Code(code))
            }
            None => self.run(channel, pid).await.map(Status::of),
        };
        channel.send_eof();
        status.into_iter().for_each(|status| status.tell(channel));
        channel.close();
        release(machine, leaf);
    }

    async fn failure(&mut self) -> Option<sys::Failure> {
        let mut report = Vec::new();
        let _ = self.report.read_to_end(&mut report).await;
        sys::Failure::parse(&report)
    }

    async fn run(self, channel: &Channel, pid: &Cell<Option<Pid>>) -> Option<WaitStatus> {
        let has_terminal = matches!(self.ends, Ends::Terminal(_));
        let end = async {
            let status = wait(channel, self.pid, self.ended, has_terminal).await;
            pid.set(None);
            status
        };
        match self.ends {
            Ends::Pipes { stdin, stdout, stderr } => {
                // The client's end of input is the program's; what it says ends when the last process that could speak
                // has let go of it, as with any SSH server.
                let input = async {
                    copy::from_client(channel, &stdin).await;
                    drop(stdin);
                    copy::drain(channel).await;
                };
                let outputs = async {
                    tokio::join!(speak(channel, stdout), copy::to_client(channel, Some(STDERR), &stderr))
                };
                beside(input, async { tokio::join!(end, outputs).0 }).await
            }
            Ends::Terminal(terminal) => {
                let input = copy::from_client(channel, &*terminal);
                let output = copy::to_client(channel, None, &*terminal);
                let rest = copy::rest_to_client(channel, &*terminal);
                beside(input, end_and_rest(end, output, rest)).await
            }
        }
    }
}

/// The pipe is kept, for whoever may still write to it, unless the client says that nobody reads there: then what writes
/// on learns of it, as with `| head` at home.
async fn speak(channel: &Channel, stdout: Receiver) -> Option<Receiver> {
    tokio::select! {
        () = channel.unread() => None,
        () = copy::to_client(channel, None, &stdout) => Some(stdout),
    }
}

/// Runs both, and ends with the second.
async fn beside<T>(first: impl Future<Output = ()>, second: impl Future<Output = T>) -> T {
    let first = async {
        first.await;
        std::future::pending().await
    };
    tokio::select! {
        result = second => result,
        () = first => unreachable!("it never ends"),
    }
}

/// A terminal's program has ended when it has, whoever else holds the terminal open; what it wrote last still counts.
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

async fn wait(
    channel: &Channel,
    pid: Pid,
    mut ended: oneshot::Receiver<WaitStatus>,
    has_terminal: bool,
) -> Option<WaitStatus> {
    tokio::select! {
        biased;
        status = &mut ended => status.ok(),
        () = channel.gone() => hang_up(pid, ended, has_terminal).await,
    }
}

/// The client has gone. Its shell or command is hung up with what it runs in the foreground, and nothing else: people
/// expect what they started with `nohup`, and editors their server, to be there when they come back. So the cgroup stays,
/// and of the command's process group only those end for certain that a terminal's hang-up would end too.
async fn hang_up(
    pid: Pid,
    mut ended: oneshot::Receiver<WaitStatus>,
    has_terminal: bool,
) -> Option<WaitStatus> {
    let _ = kill_process_group(pid, Signal::HUP);
    tokio::select! {
        status = &mut ended => status.ok(),
        () = sleep(GRACE) => {
            let _ = match has_terminal {
                true => kill_process_group(pid, Signal::KILL),
                false => kill_process(pid, Signal::KILL),
            };
            ended.await.ok()
        }
    }
}

enum Status {
    Code(u32),
    Signal(i32, bool),
}

impl Status {
    fn of(status: WaitStatus) -> Status {
        match (status.exit_status(), status.terminating_signal()) {
            (None, Some(signal)) => Status::Signal(signal, status.as_raw() & 0x80 != 0),
            (code, _) => Status::Code(code.unwrap_or(255) as u32),
        }
    }

    fn tell(self, channel: &Channel) {
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

fn told(failure: sys::Failure) -> (u32, String) {
    let (code, words) = match failure {
        sys::Failure::Directory(errno) => (NOT_STARTED, format!("its directory: {}", plain(errno))),
        sys::Failure::Setup(errno) => (NOT_STARTED, plain(errno)),
        sys::Failure::Exec(errno) => (NOT_FOUND, plain(errno)),
        sys::Failure::Interpreter(errno, _) => (NOT_FOUND, format!("its interpreter: {}", plain(errno))),
    };
    (code, format!("the program cannot be started: {words}\r\n"))
}
