//! Terminals (`packages/contract/src/guest/terminals.ts`): a program on a pseudo-terminal, and its clients. An unnamed one
//! belongs to its request and is hung up with it; a named one stays for whoever attaches again.

mod backlog;
mod client;
mod frames;
mod login;
mod pty;
mod run;
mod terminal;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use http_body_util::Either;
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use serde::Deserialize;
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::body::{Body, FrameStream};
use crate::machine::Machine;
use crate::refusal::Refusal;
use client::{Connected, Inputs};
use frames::Input;
use terminal::Terminal;

const TERMINALS: usize = 16;
/// Frames between a terminal and a client.
const FRAMES: usize = 1;
const SIZE: (u16, u16) = (24, 80);

#[derive(Deserialize)]
pub struct TerminalSpec {
    argv: Option<Vec<String>>,
    cwd: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    rows: u16,
    cols: u16,
    name: Option<String>,
}

impl TerminalSpec {
    fn size(&self) -> (u16, u16) {
        if self.rows > 0 && self.cols > 0 { (self.rows, self.cols) } else { SIZE }
    }
}

#[derive(Default)]
pub struct Terminals {
    running: RefCell<Vec<Rc<Terminal>>>,
    /// Held while one is being started: of two that ask for one name the second attaches.
    turn: Mutex<()>,
}

impl Terminals {
    fn find(&self, name: Option<&str>) -> Option<Rc<Terminal>> {
        let running = self.running.borrow();
        running.iter().find(|terminal| name.is_some() && terminal.name.as_deref() == name).cloned()
    }

    fn check_limit(&self) -> Result<(), Refusal> {
        if self.running.borrow().len() < TERMINALS {
            return Ok(());
        }
        let message = format!("{TERMINALS} terminals are open, the most there may be; close one");
        Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "terminal_limit", message))
    }

    fn add(&self, terminal: Rc<Terminal>) {
        self.running.borrow_mut().push(terminal);
    }

    fn remove(&self, terminal: &Rc<Terminal>) {
        self.running.borrow_mut().retain(|other| !Rc::ptr_eq(other, terminal));
    }

    /// A copy of the machine that becomes a session of its own begins without any.
    pub fn end_all(&self) {
        for terminal in self.running.take() {
            terminal.leaf.kill();
        }
    }
}

pub async fn open(machine: &Rc<Machine>, body: Incoming) -> Result<Response<Body>, Refusal> {
    let mut inputs = Inputs::new(body);
    let Some(Input::Open(text)) = inputs.next().await else {
        return Err(Refusal::invalid("body: expected a frame that opens a terminal, got another or none"));
    };
    let spec: TerminalSpec = serde_json::from_slice(&text)
        .map_err(|error| Refusal::invalid(format!("the opening frame: {error}")))?;
    let (frames, stream) = mpsc::channel(FRAMES);
    let (started, has_started) = oneshot::channel();
    tokio::task::spawn_local(run::run(machine.clone(), spec, Connected { inputs, frames }, started));
    has_started.await.unwrap_or_else(|_| Err(Refusal::internal("start the terminal", "it was given up")))?;
    Ok(Response::new(Either::Right(FrameStream(stream))))
}
