//! The exec commands that run, each with the machine's generation at its start. A command of an earlier generation was
//! started before the machine was captured and loaded, so no caller waits for its output.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Commands {
    /// The generation at the start of each command, by the command's number.
    generations: RefCell<BTreeMap<u64, u64>>,
    next: Cell<u64>,
}

/// Counts a command as running until it is dropped.
pub struct UnderWay<'a> {
    commands: &'a Commands,
    number: u64,
}

impl Commands {
    pub fn begin(&self, generation: u64) -> UnderWay<'_> {
        let number = self.next.replace(self.next.get() + 1);
        self.generations.borrow_mut().insert(number, generation);
        UnderWay { commands: self, number }
    }

    pub fn of_other_generations(&self, generation: u64) -> usize {
        self.generations.borrow().values().filter(|began| **began != generation).count()
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.commands.generations.borrow_mut().remove(&self.number);
    }
}
