//! One connection over stdin and stdout, as the user of this process, for trying the server with an SSH client of
//! this machine. Not part of a released agent.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use ssh::Input;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::host::Guest;
use super::login::Login;
use crate::cgroup::Cgroups;
use crate::machine::Machine;

pub const NAME: &str = "ssh-on-stdio";

struct Stdin(mpsc::Receiver<Bytes>);

impl Input for Stdin {
    async fn next(&mut self) -> Option<Bytes> {
        self.0.recv().await
    }
}

pub fn serve() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let machine = Rc::new(Machine::new(Cgroups::of("/nonexistent")).unwrap());
        tokio::task::spawn_local(machine.reaper.clone().run().expect("a signal handler"));
        // A client that ends hangs its proxy up, which would take this server's last deeds away.
        let _caught = signal(SignalKind::hangup()).expect("a signal handler");
        let (input, output) = (read_stdin(), write_stdout());
        let environment = BTreeMap::from([("FROM_SESSION".to_owned(), "yes".to_owned())]);
        let guest = Guest { machine, login: login(), environment, has_cgroups: false };
        ssh::serve(Rc::new(guest), Stdin(input), output.0).await;
        let _ = output.1.join();
        // Programs that were hung up have time to end.
        let left = async {
            while has_children() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = timeout(Duration::from_secs(6), left).await;
    });
}

fn has_children() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::All, look).is_ok()
}

fn read_stdin() -> mpsc::Receiver<Bytes> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut buffer = [0; 16 * 1024];
        while let Ok(count @ 1..) = std::io::stdin().read(&mut buffer) {
            if sender.blocking_send(Bytes::copy_from_slice(&buffer[..count])).is_err() {
                return;
            }
        }
    });
    receiver
}

fn write_stdout() -> (mpsc::Sender<Bytes>, std::thread::JoinHandle<()>) {
    let (sender, mut receiver) = mpsc::channel::<Bytes>(1);
    let writing = std::thread::spawn(move || {
        while let Some(bytes) = receiver.blocking_recv() {
            if std::io::stdout().write_all(&bytes).and_then(|()| std::io::stdout().flush()).is_err() {
                return;
            }
        }
    });
    (sender, writing)
}

fn login() -> Login {
    let variable = |name: &str, otherwise: &str| std::env::var(name).unwrap_or(otherwise.into());
    Login {
        name: "sandbox".into(),
        uid: variable("TRY_UID", "0").parse().expect("a number"),
        gid: variable("TRY_UID", "0").parse().expect("a number"),
        groups: Vec::new(),
        home: variable("TRY_HOME", "/tmp"),
        shell: variable("TRY_SHELL", "/bin/bash"),
        directory: variable("TRY_HOME", "/tmp"),
    }
}
