//! `POST /v1/files/mkdir`: makes a directory and its missing parents. An existing directory is no error.

use rustix::fs::{Mode, mkdirat};
use rustix::io::Errno;

use super::faults::Fault;
use super::paths::{Path, Workspace};
use super::resolve::{DIRECTORY_MODE, Last, Parents, Spot, look, resolve};

pub fn mkdir(workspace: &Workspace, path: &Path) -> Result<(), Fault> {
    let Spot::Below(below) = resolve(workspace, path, Last::Follow, Parents::Make)? else {
        return Ok(());
    };
    let is_there = match below.object {
        Some(object) if !object.is_directory() => return Err(Errno::EXIST.into()),
        object => object.is_some(),
    };
    if !is_there {
        let name = below.name.as_slice();
        match mkdirat(&below.parent, name, Mode::from_raw_mode(DIRECTORY_MODE)) {
            // Another process made the directory first.
            Err(Errno::EXIST) if look(&below.parent, name)?.is_directory() => {}
            other => other?,
        }
    }
    below.made.keep();
    Ok(())
}

#[cfg(test)]
#[path = "mkdir_test.rs"]
mod tests;
