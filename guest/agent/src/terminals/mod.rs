//! Terminals (`packages/contract/src/guest/terminals.ts`): a program on a pseudo-terminal, and its clients. An
//! unnamed terminal belongs to its request and is hung up with it. A named one stays for later clients.

mod backlog;
mod client;
mod frames;
mod login;
mod pty;
mod run;
mod table;
mod terminal;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use hyper::Response;
use hyper::body::Incoming;
use tokio::sync::{mpsc, oneshot};

use crate::body::{self, Body};
use crate::machine::Machine;
use crate::refusal::Refusal;
use client::{Connected, Inputs};
use frames::Input;
use login::TerminalSpec;
pub use table::Terminals;

/// Frames queued for a client.
const FRAMES: usize = 1;

pub async fn open(
    machine: &Rc<Machine>,
    terminals: &Rc<Terminals>,
    body: Incoming,
) -> Result<Response<Body>, Refusal> {
    let mut inputs = Inputs::new(body);
    let Some(Input::Open(text)) = inputs.next().await else {
        return Err(Refusal::invalid("body: expected a frame that opens a terminal, got another or none"));
    };
    let spec: TerminalSpec = serde_json::from_slice(&text)
        .map_err(|error| Refusal::invalid(format!("the opening frame: {error}")))?;
    let (frames, stream) = mpsc::channel(FRAMES);
    let (started, has_started) = oneshot::channel();
    tokio::task::spawn_local(run::run(
        machine.clone(),
        terminals.clone(),
        spec,
        Connected { inputs, frames },
        started,
    ));
    has_started.await.unwrap_or_else(|_| Err(Refusal::internal("start the terminal", "it was given up")))?;
    Ok(body::stream(stream))
}
