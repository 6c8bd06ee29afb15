//! What requests share.

use std::cell::Cell;
use std::rc::Rc;

use crate::cgroup::Cgroups;
use crate::memory::Burst;
use crate::reaper::Reaper;

pub struct Machine {
    pub cgroups: Cgroups,
    pub reaper: Rc<Reaper>,
    pub burst: Rc<Burst>,
    /// The user's processes stand still, from the freeze before a capture to the thaw after it or after a load.
    pub is_frozen: Cell<bool>,
    /// How often this memory was resumed, through all its copies.
    pub generation: Cell<u64>,
}

impl Machine {
    pub fn new(cgroups: Cgroups) -> Self {
        Machine {
            cgroups,
            reaper: Rc::default(),
            burst: Rc::default(),
            is_frozen: Cell::new(false),
            generation: Cell::new(0),
        }
    }
}
