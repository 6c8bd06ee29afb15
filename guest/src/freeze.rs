//! Before a capture everything of the user stands still and is on disk; afterwards it goes on.

use std::time::Duration;

use hyper::{Response, StatusCode};
use serde_json::json;
use tokio::time::timeout;

use crate::body::{self, Body};
use crate::machine::Machine;
use crate::refusal::Refusal;

const FROZEN_WITHIN: Duration = Duration::from_secs(5);
/// A disk full of dirty pages takes its time. What is not on disk by then is saved with the memory: a file system may wait
/// for a process that has just been frozen.
const SYNCED_WITHIN: Duration = Duration::from_secs(10);

pub async fn freeze(machine: &Machine) -> Result<Response<Body>, Refusal> {
    machine.is_frozen.set(true);
    let frozen = machine.cgroups.freeze_user(FROZEN_WITHIN).await.or_else(|error| {
        go_on(machine)?;
        Err(Refusal::internal("freeze", error))
    })?;
    if !frozen {
        go_on(machine)?;
        return Err(Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "not_frozen",
            format!("some process did not freeze within {FROZEN_WITHIN:?}; all run on, try again"),
        ));
    }
    // On a thread of its own: a copy's names are not to wait for what its parent was still writing.
    let _ = timeout(SYNCED_WITHIN, tokio::task::spawn_blocking(rustix::fs::sync)).await;
    body::json(&json!({}))
}

pub fn thaw(machine: &Machine) -> Result<Response<Body>, Refusal> {
    go_on(machine)?;
    body::json(&json!({}))
}

pub fn go_on(machine: &Machine) -> Result<(), Refusal> {
    machine.cgroups.thaw_user().map_err(|e| Refusal::internal("thaw", e))?;
    machine.thawed();
    Ok(())
}
