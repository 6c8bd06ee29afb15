//! `POST /v1/files/rename`: the name itself is moved, also if it is a link, and replaces a file that has the new name.

use rustix::fs::renameat;
use rustix::io::Errno;

use super::faults::Fault;
use super::paths::{Path, Workspace};
use super::resolve::{Last, Parents, resolve};
use super::work::Done;

pub fn rename(workspace: &Workspace, path: &Path, dest: &Path) -> Result<Done, Fault> {
    let from = resolve(workspace, path, Last::Keep, Parents::Expect)?.below_root()?;
    from.object.ok_or(Errno::NOENT)?;
    let to = resolve(workspace, dest, Last::Keep, Parents::Make)?.below_root()?;
    match renameat(&from.parent, from.name.as_slice(), &to.parent, to.name.as_slice()) {
        // Both are told as "not empty" by one file system or another.
        Err(Errno::EXIST) => return Err(Errno::NOTEMPTY.into()),
        other => other?,
    }
    to.made.keep();
    Ok(Done {})
}

#[cfg(test)]
#[path = "rename_test.rs"]
mod tests;
