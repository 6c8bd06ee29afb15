//! The exec commands that run, each with the life of this memory in which it began. In a loaded machine the commands
//! of an earlier life have no listener.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Commands {
    /// By number of the command.
    lives: RefCell<BTreeMap<u64, u64>>,
    next: Cell<u64>,
}

/// From the start of a command to its end.
pub struct UnderWay<'a> {
    commands: &'a Commands,
    number: u64,
}

impl Commands {
    pub fn begin(&self, life: u64) -> UnderWay<'_> {
        let number = self.next.replace(self.next.get() + 1);
        self.lives.borrow_mut().insert(number, life);
        UnderWay { commands: self, number }
    }

    pub fn of_other_lives(&self, life: u64) -> usize {
        self.lives.borrow().values().filter(|began| **began != life).count()
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.commands.lives.borrow_mut().remove(&self.number);
    }
}
