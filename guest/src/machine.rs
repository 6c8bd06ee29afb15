//! What requests share.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Semaphore;

use crate::cgroup::Cgroups;
use crate::memory::Burst;
use crate::reaper::Reaper;

pub struct Machine {
    pub cgroups: Cgroups,
    pub reaper: Rc<Reaper>,
    pub burst: Rc<Burst>,
    /// Work that may hold a thread of the pool for long. Fewer at a time than threads, so that the rest goes on.
    pub long_work: Semaphore,
    /// The user's processes stand still, from the freeze before a capture to the thaw after it or after a load.
    pub is_frozen: Cell<bool>,
    /// How often this memory was resumed, through all its copies.
    pub generation: Cell<u64>,
}

const LONG_WORK: usize = 2;

impl Machine {
    pub fn new(cgroups: Cgroups) -> Self {
        Machine {
            cgroups,
            reaper: Rc::default(),
            burst: Rc::default(),
            long_work: Semaphore::new(LONG_WORK),
            is_frozen: Cell::new(false),
            generation: Cell::new(0),
        }
    }
}
