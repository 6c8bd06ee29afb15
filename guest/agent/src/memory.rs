//! Returns memory to the kernel after a burst of commands, which took it for their output.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;

use crate::sys;

/// Delay of the trim after the last command, so that a sequence of commands causes one trim.
const QUIET: Duration = Duration::from_millis(500);

#[derive(Default)]
pub struct Burst {
    running: Cell<usize>,
    is_trim_due: Cell<bool>,
}

/// Counts a command as part of the burst until it is dropped.
pub struct Member(Rc<Burst>);

impl Burst {
    pub fn join(self: &Rc<Self>) -> Member {
        self.running.set(self.running.get() + 1);
        Member(self.clone())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let burst = &self.0;
        burst.running.set(burst.running.get() - 1);
        if burst.running.get() == 0 && !burst.is_trim_due.replace(true) {
            tokio::task::spawn_local(trim_when_quiet(burst.clone()));
        }
    }
}

/// Trims the heap unless commands run again: the last of them then schedules a new trim.
async fn trim_when_quiet(burst: Rc<Burst>) {
    sleep(QUIET).await;
    burst.is_trim_due.set(false);
    if burst.running.get() == 0 {
        sys::trim_heap();
    }
}
