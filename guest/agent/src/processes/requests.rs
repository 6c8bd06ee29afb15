//! The requests about named processes, except for logs.

use std::rc::Rc;

use http_body_util::Full;
use hyper::Response;
use hyper::body::Incoming;
use serde_json::json;
use tokio::sync::oneshot;

use super::process::Report;
use super::run::{self, ProcessSpec};
use super::table::Processes;
use crate::body::{self, Body};
use crate::frames;
use crate::machine::Machine;
use crate::refusal::Refusal;

const NAME_BYTES: usize = 63;

pub async fn start(
    machine: &Rc<Machine>,
    processes: &Rc<Processes>,
    body: Incoming,
) -> Result<Response<Body>, Refusal> {
    let spec: ProcessSpec = body::read_json(body).await?;
    check_name(&spec.name)?;
    let (started, has_started) = oneshot::channel();
    tokio::task::spawn_local(run::run(machine.clone(), processes.clone(), spec, started));
    let gone = |_| Err(Refusal::internal("start the process", "it was given up"));
    let process = has_started.await.unwrap_or_else(gone)?;
    body::json(&process.report())
}

pub fn list(processes: &Processes) -> Result<Response<Body>, Refusal> {
    let entries = processes.entries.borrow();
    let reports: Vec<Report> = entries.iter().map(|process| process.report()).collect();
    let frames = frames::list(&reports, &json!({})).map_err(|e| Refusal::internal("write the answer", e))?;
    Ok(Response::new(body::whole(Full::new(frames))))
}

pub fn one(processes: &Processes, name: &str) -> Result<Response<Body>, Refusal> {
    body::json(&processes.find(name)?.report())
}

/// Stops a process, and answers once it has exited. Several callers wait for the same end.
pub async fn remove(processes: &Processes, name: &str) -> Result<Response<Body>, Refusal> {
    let process = processes.find(name)?;
    if process.is_running() {
        process.stop();
    }
    process.wait_for_end().await;
    body::json(&process.report())
}

/// Checks a name, which is also part of file names.
fn check_name(name: &str) -> Result<(), Refusal> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = name.bytes().next().is_some_and(is_plain)
        && name.bytes().all(|byte| is_plain(byte) || byte == b'-')
        && name.len() <= NAME_BYTES;
    let message = format!("name: expected 1 to {NAME_BYTES} of a-z 0-9 - not beginning with -, got {name:?}");
    fits.then_some(()).ok_or_else(|| Refusal::invalid(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        for name in ["a", "0", "web-1", &"x".repeat(63)] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "-a", "A", "a_b", "a/b", "..", "a.b", "ä", "a\0", &"x".repeat(64)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
