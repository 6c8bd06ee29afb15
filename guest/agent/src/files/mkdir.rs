//! `POST /v1/files/mkdir`: a directory with all above it; one that is there already is fine.

use rustix::fs::{Mode, mkdirat};
use rustix::io::Errno;

use super::faults::Fault;
use super::paths::{Path, Workspace};
use super::resolve::{DIRECTORY_MODE, Last, Parents, Spot, look, resolve};
use super::work::Done;

pub fn mkdir(workspace: &Workspace, path: &Path) -> Result<Done, Fault> {
    let Spot::Below(below) = resolve(workspace, path, Last::Follow, Parents::Make)? else {
        return Ok(Done {});
    };
    let is_there = match below.object {
        Some(object) if !object.is_directory() => return Err(Errno::EXIST.into()),
        object => object.is_some(),
    };
    if !is_there {
        let name = below.name.as_slice();
        match mkdirat(&below.parent, name, Mode::from_raw_mode(DIRECTORY_MODE)) {
            // Another process was faster.
            Err(Errno::EXIST) if look(&below.parent, name)?.is_directory() => {}
            other => other?,
        }
    }
    below.made.keep();
    Ok(Done {})
}

#[cfg(test)]
#[path = "mkdir_test.rs"]
mod tests;
