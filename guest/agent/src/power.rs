//! Powers the machine off.

use std::time::Duration;

use hyper::Response;
use rustix::system::{RebootCommand, reboot};
use serde_json::json;
use tokio::time::sleep;

use crate::body::{self, Body};
use crate::log;
use crate::machine::Machine;
use crate::refusal::Refusal;

/// Delay of the power-off, in which the answer is sent.
const ANSWER_LEAVES: Duration = Duration::from_millis(50);

pub fn power_off(machine: &Machine) -> Result<Response<Body>, Refusal> {
    log::warn("kill what runs", machine.cgroups.kill_user());
    tokio::task::spawn_local(async {
        sleep(ANSWER_LEAVES).await;
        let _ = tokio::task::spawn_blocking(rustix::fs::sync).await;
        // The machine type has no power switch; the VMM exits on a restart.
        log::warn("power off", reboot(RebootCommand::Restart));
    });
    body::json(&json!({}))
}
