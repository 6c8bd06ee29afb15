//! Before a capture everything of the user stands still and is on disk; afterwards it goes on.

use std::time::Duration;

use hyper::{Response, StatusCode};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use crate::body::{self, Body};
use crate::machine::Machine;
use crate::refusal::Refusal;

const FROZEN_WITHIN: Duration = Duration::from_secs(5);
/// For both flushes. A disk full of dirty pages takes its time. What is not on disk by then is saved with the memory: a file
/// system may wait for a process that has just been frozen.
const SYNCED_WITHIN: Duration = Duration::from_secs(10);

/// Flushed twice: what was written until now goes to the disk while everybody runs on, so that they stand still only for
/// what they write meanwhile.
pub async fn freeze(machine: &Machine) -> Result<Response<Body>, Refusal> {
    let synced_by = Instant::now() + SYNCED_WITHIN;
    flush(synced_by).await;
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
    flush(synced_by).await;
    body::json(&json!({}))
}

async fn flush(by: Instant) {
    if Instant::now() < by {
        // On a thread of its own: a copy's names are not to wait for what its parent was still writing.
        let _ = timeout_at(by, tokio::task::spawn_blocking(rustix::fs::sync)).await;
    }
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
