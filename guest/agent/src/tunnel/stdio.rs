//! Serves one SSH connection over stdin and stdout as this process's user, to try the server. Only in debug builds.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use ssh::Input;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::host::Guest;
use super::login::Login;
use crate::cgroup::Cgroups;
use crate::machine::Machine;

pub const NAME: &str = "ssh-on-stdio";

struct Stdin(File);

impl Input for Stdin {
    async fn next(&mut self) -> Option<Bytes> {
        let mut bytes = BytesMut::with_capacity(16 * 1024);
        self.0.read_buf(&mut bytes).await.ok().filter(|count| *count > 0)?;
        Some(bytes.freeze())
    }
}

pub fn serve() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let machine = Rc::new(Machine::new(Cgroups::of("/nonexistent")).unwrap());
        tokio::task::spawn_local(machine.reaper.clone().run().expect("a signal handler"));
        // An SSH client that ends sends SIGHUP to its proxy, which would end this server before it has cleaned up.
        let _caught = signal(SignalKind::hangup()).expect("a signal handler");
        let (output, sealed) = mpsc::channel(1);
        let environment = BTreeMap::from([("FROM_SESSION".to_owned(), "yes".to_owned())]);
        let guest = Guest { machine, login: login(), environment, has_cgroups: false };
        let input = Stdin(file_of(std::io::stdin()));
        let _ = tokio::join!(ssh::serve(Rc::new(guest), input, output), write_stdout(sealed));
        // Waits for programs that were hung up to end.
        let left = async {
            while has_children() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = timeout(Duration::from_secs(6), left).await;
    });
    // A read of stdin may still block one of the runtime's threads.
    runtime.shutdown_background();
}

fn has_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::All, options).is_ok()
}

async fn write_stdout(mut sealed: mpsc::Receiver<Bytes>) -> std::io::Result<()> {
    let mut stdout = file_of(std::io::stdout());
    while let Some(bytes) = sealed.recv().await {
        stdout.write_all(&bytes).await?;
        stdout.flush().await?;
    }
    Ok(())
}

fn file_of(stream: impl AsFd) -> File {
    File::from_std(stream.as_fd().try_clone_to_owned().expect("a free descriptor").into())
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
