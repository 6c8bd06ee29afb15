//! What requests share.

use std::cell::Cell;
use std::rc::Rc;

use crate::cgroup::Cgroups;
use crate::memory::Burst;
use crate::reaper::Reaper;
use crate::ssh::host_key::HostKey;

pub struct Machine {
    pub cgroups: Cgroups,
    pub reaper: Rc<Reaper>,
    pub burst: Rc<Burst>,
    pub host_key: HostKey,
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
            host_key: HostKey::default(),
            is_frozen: Cell::new(false),
            generation: Cell::new(0),
        }
    }
}
