//! Before a capture everything of the user stands still and is on disk; afterwards it goes on.

use std::time::Duration;

use hyper::{Response, StatusCode};
use serde_json::json;

use crate::body::{self, Body};
use crate::machine::Machine;
use crate::refusal::Refusal;

const FROZEN_WITHIN: Duration = Duration::from_secs(5);

pub async fn freeze(machine: &Machine) -> Result<Response<Body>, Refusal> {
    machine.is_frozen.set(true);
    let frozen = machine.cgroups.freeze_user(FROZEN_WITHIN).await.or_else(|error| {
        thaw(machine)?;
        Err(Refusal::internal("freeze", error))
    })?;
    if !frozen {
        thaw(machine)?;
        return Err(Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "not_frozen",
            format!("some process did not freeze within {FROZEN_WITHIN:?}; all run on, try again"),
        ));
    }
    // Off the one thread: a disk full of dirty pages takes its time.
    let _ = tokio::task::spawn_blocking(rustix::fs::sync).await;
    body::json(&json!({}))
}

pub fn thaw(machine: &Machine) -> Result<Response<Body>, Refusal> {
    machine.cgroups.thaw_user().map_err(|e| Refusal::internal("thaw", e))?;
    machine.thawed();
    body::json(&json!({}))
}
