//! The state that requests share.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use ssh::HostKey;
use tokio::sync::{Notify, Semaphore};

use crate::authority::Authority;
use crate::cgroup::Cgroups;
use crate::chores::Chores;
use crate::commands::Commands;
use crate::memory::Burst;
use crate::reaper::Reaper;
use crate::sys::RandomDevice;
use crate::volume::Volume;

pub struct Machine {
    pub cgroups: Cgroups,
    pub reaper: Rc<Reaper>,
    pub burst: Rc<Burst>,
    /// Permits for work that may block a pool thread for long; fewer than threads, so that short work is not delayed.
    pub long_work: Semaphore,
    pub chores: Chores,
    pub random: RandomDevice,
    pub host_key: HostKey,
    pub authority: Authority,
    /// Whether the user's processes are frozen: from the freeze before a capture to the thaw after it or after a load.
    pub is_frozen: Cell<bool>,
    thaws: Notify,
    /// Number of the last freeze or thaw.
    pub freeze_number: Cell<u64>,
    /// How often this memory was loaded from a snapshot, counted through all snapshots before it.
    pub generation: Cell<u64>,
    pub commands: Commands,
    pub volume: Volume,
}

const LONG_WORK: usize = 2;

impl Machine {
    pub fn new(cgroups: Cgroups) -> io::Result<Self> {
        Ok(Machine {
            cgroups,
            reaper: Rc::default(),
            burst: Rc::default(),
            long_work: Semaphore::new(LONG_WORK),
            chores: Chores::begin()?,
            random: RandomDevice::open()?,
            host_key: HostKey::default(),
            authority: Authority::found_below("/"),
            is_frozen: Cell::new(false),
            thaws: Notify::new(),
            freeze_number: Cell::new(0),
            generation: Cell::new(0),
            commands: Commands::default(),
            volume: Volume::without_disk()?,
        })
    }

    pub fn next_freeze_number(&self) -> u64 {
        self.freeze_number.set(self.freeze_number.get() + 1);
        self.freeze_number.get()
    }

    pub fn mark_thawed(&self) {
        self.is_frozen.set(false);
        self.thaws.notify_waiters();
    }

    /// Returns once the user's processes run. False if the machine was loaded from a snapshot meanwhile: requests from
    /// before the capture have no caller then.
    pub async fn wait_for_thaw(&self) -> bool {
        let generation = self.generation.get();
        while self.is_frozen.get() {
            self.thaws.notified().await;
        }
        self.generation.get() == generation
    }
}
