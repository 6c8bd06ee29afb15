//! `POST /v1/files/rename`: moves a name, also that of a link, and replaces a file that has the new name.

use rustix::fs::renameat;
use rustix::io::Errno;
use search::directory;

use super::faults::Fault;
use super::open;
use super::paths::{Path, Workspace};
use super::resolve::{Last, Object, Parents, Spot, resolve};

/// An error, and which path of the request it is about.
#[derive(Debug)]
pub enum Misfit {
    Path(Fault),
    Dest(Fault),
}

pub fn rename(workspace: &Workspace, path: &Path, dest: &Path) -> Result<(), Misfit> {
    let from = resolve(workspace, path, Last::Keep, Parents::Expect).and_then(Spot::below_root);
    let from = from.map_err(Misfit::Path)?;
    from.object.ok_or_else(|| Misfit::Path(Errno::NOENT.into()))?;
    let to = resolve(workspace, dest, Last::Keep, Parents::Make).and_then(Spot::below_root);
    let to = to.map_err(Misfit::Dest)?;
    let moved = renameat(&from.parent, from.name.as_slice(), &to.parent, to.name.as_slice());
    moved.map_err(|errno| match errno {
        // File systems use either number for "not empty".
        Errno::EXIST | Errno::NOTEMPTY => Misfit::Dest(Errno::NOTEMPTY.into()),
        // A file cannot replace a directory. The code is "not empty" if the directory has entries.
        Errno::ISDIR if to.object.as_ref().is_some_and(has_entries) => Misfit::Dest(Errno::NOTEMPTY.into()),
        Errno::ISDIR | Errno::NOTDIR => Misfit::Dest(errno.into()),
        _ => Misfit::Path(errno.into()),
    })?;
    to.made.keep();
    Ok(())
}

/// An unreadable directory counts as empty.
fn has_entries(object: &Object) -> bool {
    let Ok(directory) = open::directory(object) else { return false };
    let mut has_name = false;
    let _ = directory::each(&directory, |_| {
        has_name = true;
        false
    });
    has_name
}

#[cfg(test)]
#[path = "rename_test.rs"]
mod tests;
