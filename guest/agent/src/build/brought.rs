//! The names that the layer at work has brought, so that its whiteouts remove only what lower layers have made. A name is
//! known by the inode of its directory: links give a directory many paths.

use std::collections::{HashMap, HashSet};

use super::fault::Fault;

pub struct Brought {
    by_directory: HashMap<u64, HashSet<Box<[u8]>>>,
    /// How many more names the layer may have.
    left: u64,
}

impl Brought {
    pub fn new(most: u64) -> Brought {
        Brought { by_directory: HashMap::new(), left: most }
    }

    pub fn add(&mut self, directory: u64, name: &[u8]) -> Result<(), Fault> {
        let left = self.left.checked_sub(1);
        self.left = left.ok_or_else(|| Fault::too_large("a layer has too many entries"))?;
        self.by_directory.entry(directory).or_default().insert(name.into());
        Ok(())
    }

    pub fn has(&self, directory: u64, name: &[u8]) -> bool {
        self.by_directory.get(&directory).is_some_and(|names| names.contains(name))
    }
}
