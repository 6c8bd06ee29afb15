//! `POST /v1/tunnel`: an SSH server of the agent's own, so that every image has one.
//!
//! The request's credential was the gate, long before a byte arrives here: whoever speaks is let in as the user. What SSH
//! adds is that a client knows the machine again by its host key.
//!
//! `transport` makes messages of bytes (with `kex`, `cipher`, `host_key`), `connection` says which message goes where,
//! `channel` and `link` keep both sides from sending more than the other takes. `session` and `program` run commands,
//! `forward` leads to sockets and back, `sftp` is a process of its own with the user's rights. The protocol is written
//! here because of that flow: a library that answers for a window before the program has taken the bytes either keeps
//! them all or stops every channel for one.

mod broken;
mod channel;
mod cipher;
mod connection;
mod copy;
mod forward;
pub mod host_key;
mod kex;
mod link;
mod login;
mod messages;
mod opening;
mod program;
mod pty;
mod resolve;
mod session;
mod sftp;
mod signals;
mod transport;
mod wire;

#[cfg(debug_assertions)]
pub mod stdio;

use std::collections::BTreeMap;
use std::rc::Rc;

use http_body_util::Either;
use hyper::Response;
use hyper::body::Incoming;
use tokio::sync::mpsc;

use crate::body::{Body, FrameStream};
use crate::machine::Machine;
use crate::refusal::Refusal;
use crate::ssh::connection::Site;
use crate::ssh::login::Login;

/// Pieces between SSH and HTTP/2; more are kept back in the link.
const PIECES: usize = 1;

pub async fn tunnel(machine: &Rc<Machine>, body: Incoming) -> Result<Response<Body>, Refusal> {
    let (spec, input) = opening::read(body).await?;
    let login = Login::of_the_user();
    login.environment(&spec.env, &BTreeMap::new())?;
    let site = Site { machine: machine.clone(), login, environment: spec.env, is_in_cgroup: true };
    let (output, stream) = mpsc::channel(PIECES);
    tokio::task::spawn_local(connection::serve(site, input, output));
    Ok(Response::new(Either::Right(FrameStream(stream))))
}

/// This program as one of its own helpers, if it was started as one.
pub fn helper() -> Option<fn()> {
    // The kernel hands words it does not know to the first process.
    if std::process::id() == 1 {
        return None;
    }
    match std::env::args().nth(1)?.as_str() {
        login::SFTP => Some(sftp::serve),
        #[cfg(debug_assertions)]
        stdio::NAME => Some(stdio::serve),
        _ => None,
    }
}
