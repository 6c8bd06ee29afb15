//! Freezes the user's processes and flushes their data to disk before a capture, and thaws them afterwards.

use std::time::Duration;

use hyper::{Response, StatusCode};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use crate::body::{self, Body};
use crate::log;
use crate::machine::Machine;
use crate::refusal::Refusal;

const FROZEN_WITHIN: Duration = Duration::from_secs(5);
/// Time limit of both flushes: a flush may take long, or wait for a process that has just been frozen. Data that is not
/// on disk by then is saved with the memory.
const SYNCED_WITHIN: Duration = Duration::from_secs(10);

/// Undoes a freeze when dropped: the caller left before the answer and assumes that all processes run.
struct Unanswered<'a> {
    machine: &'a Machine,
    number: u64,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if self.machine.freeze_number.get() == self.number && self.machine.is_frozen.get() {
            log::warn("go on after a freeze that was given up", self.machine.cgroups.thaw_user());
            self.machine.mark_thawed();
        }
    }
}

/// Flushes before and after the freeze: the second flush is short, so that processes are frozen only briefly.
pub async fn freeze(machine: &Machine) -> Result<Response<Body>, Refusal> {
    let synced_by = Instant::now() + SYNCED_WITHIN;
    let unanswered = Unanswered { machine, number: machine.next_freeze_number() };
    flush(synced_by).await;
    unanswered.check_is_last()?;
    machine.is_frozen.set(true);
    let frozen = machine.cgroups.freeze_user(FROZEN_WITHIN).await;
    unanswered.check_is_last()?;
    let frozen = frozen.or_else(|error| {
        thaw_processes(machine)?;
        Err(Refusal::internal("freeze", error))
    })?;
    if !frozen {
        thaw_processes(machine)?;
        return Err(not_frozen(&format!("some process did not freeze within {FROZEN_WITHIN:?}")));
    }
    let flushed = flush(synced_by).await;
    machine.volume.release().await;
    unanswered.check_is_last()?;
    std::mem::forget(unanswered);
    body::json(&json!({ "flushed": flushed }))
}

impl Unanswered<'_> {
    /// An error if a later thaw or freeze was requested: its caller does not know about this freeze.
    fn check_is_last(&self) -> Result<(), Refusal> {
        if self.machine.freeze_number.get() == self.number {
            Ok(())
        } else {
            Err(not_frozen("a later request overtook this one"))
        }
    }
}

fn not_frozen(why: &str) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "not_frozen", format!("{why}; all run on, try again"))
}

/// Whether everything was flushed in time.
async fn flush(by: Instant) -> bool {
    if Instant::now() >= by {
        return false;
    }
    // On a pool thread and not as a chore: a loaded machine's chores must not wait for this flush.
    timeout_at(by, tokio::task::spawn_blocking(rustix::fs::sync)).await.is_ok_and(|done| done.is_ok())
}

pub fn thaw(machine: &Machine) -> Result<Response<Body>, Refusal> {
    thaw_processes(machine)?;
    body::json(&json!({}))
}

pub fn thaw_processes(machine: &Machine) -> Result<(), Refusal> {
    machine.next_freeze_number();
    machine.cgroups.thaw_user().map_err(|e| Refusal::internal("thaw", e))?;
    machine.mark_thawed();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use tokio::time::timeout;

    use super::*;
    use crate::testing::{TestMachine, run};

    type Frozen = Result<Response<Body>, Refusal>;

    /// A freeze that waits for its disk, or has frozen already, if `until_frozen`; one that was answered at once is repeated.
    async fn under_way(machine: &Machine, until_frozen: bool) -> Pin<Box<impl Future<Output = Frozen> + '_>> {
        loop {
            let mut freezing = Box::pin(freeze(machine));
            let mut is_answered = timeout(Duration::ZERO, &mut freezing).await.is_ok();
            while until_frozen && !machine.is_frozen.get() {
                is_answered = timeout(Duration::ZERO, &mut freezing).await.is_ok();
            }
            if !is_answered {
                return freezing;
            }
            thaw(machine).unwrap();
        }
    }

    #[test]
    fn a_thaw_overrides_an_earlier_freeze() {
        run(async {
            let test = TestMachine::new();
            let freezing = under_way(&test.machine, false).await;
            thaw(&test.machine).unwrap();
            assert!(format!("{:?}", freezing.await.err()).contains("not_frozen"));
            assert!(!test.machine.is_frozen.get() && !test.machine.cgroups.is_frozen().unwrap());
        });
    }

    #[test]
    fn a_freeze_whose_caller_leaves_is_taken_back() {
        run(async {
            let test = TestMachine::new();
            drop(under_way(&test.machine, true).await);
            assert!(!test.machine.is_frozen.get() && !test.machine.cgroups.is_frozen().unwrap());
        });
    }
}
