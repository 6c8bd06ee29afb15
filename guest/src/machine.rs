//! What requests share.

use std::cell::Cell;
use std::rc::Rc;

use crate::cgroup::Cgroups;
use crate::reaper::Reaper;

pub struct Machine {
    pub cgroups: Cgroups,
    pub reaper: Rc<Reaper>,
    /// How often this memory was resumed, through all its copies.
    pub generation: Cell<u64>,
}

impl Machine {
    pub fn new(cgroups: Cgroups) -> Self {
        Machine { cgroups, reaper: Rc::new(Reaper::default()), generation: Cell::new(0) }
    }
}
