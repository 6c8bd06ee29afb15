//! Returns the memory that a burst of commands took for their output when the burst is over.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;

use crate::sys;

/// Long enough that a sequence of commands does not pay for a trim each time.
const QUIET: Duration = Duration::from_millis(500);

#[derive(Default)]
pub struct Burst {
    running: Cell<usize>,
    is_trim_due: Cell<bool>,
}

/// One command of the burst, until it is dropped.
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

/// Commands that run by then bring it back when they end.
async fn trim_when_quiet(burst: Rc<Burst>) {
    sleep(QUIET).await;
    burst.is_trim_due.set(false);
    if burst.running.get() == 0 {
        sys::trim_heap();
    }
}
