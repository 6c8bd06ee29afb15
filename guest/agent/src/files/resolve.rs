//! From a path to handles, one name at a time. Every step opens one name beneath an open directory and follows no
//! link; a link's target is split and walked in the same way. The check that the walk ended inside the workspace and
//! the operation use the same handles, so a name swapped in between leads nowhere else.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::fs::{fstat, fstatfs, mkdirat, openat2, readlinkat, unlinkat};
use rustix::io::Errno;

use super::faults::{Code, Fault};
use super::paths::{self, Path, Workspace};

const LINKS: usize = 40;
const PROC_SUPER_MAGIC: i64 = 0x9fa0;
pub const DIRECTORY_MODE: u32 = 0o755;
/// For one name beneath an open directory.
const ONE_STEP: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

#[derive(Clone, Copy, PartialEq)]
pub enum Last {
    /// The target of a link at the end of the path is meant.
    Follow,
    /// The link itself is meant.
    Keep,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Parents {
    Expect,
    Make,
}

pub enum Spot {
    Root(Object),
    Below(Below),
}

/// A name in a directory of the workspace, and the object that it named when it was looked up.
pub struct Below {
    pub parent: OwnedFd,
    pub name: Vec<u8>,
    pub object: Option<Object>,
    pub made: Made,
}

/// An O_PATH handle: a device or a FIFO that is looked up this way is not opened.
pub struct Object {
    pub fd: OwnedFd,
    pub stat: Stat,
}

impl Object {
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    pub fn is_directory(&self) -> bool {
        self.kind() == FileType::Directory
    }
}

impl Spot {
    /// The object; an error if it is missing.
    pub fn object(self) -> Result<Object, Fault> {
        match self {
            Spot::Root(object) => Ok(object),
            Spot::Below(below) => Ok(below.object.ok_or(Errno::NOENT)?),
        }
    }

    pub fn below_root(self) -> Result<Below, Fault> {
        match self {
            Spot::Below(below) => Ok(below),
            Spot::Root(_) => Err(Fault::new(Code::WorkspaceRoot, "the workspace root stays where it is")),
        }
    }
}

/// Directories made on the way. They are removed again unless they are kept or have entries.
#[derive(Default)]
pub struct Made(Vec<(OwnedFd, Vec<u8>)>);

impl Made {
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        while let Some((parent, name)) = self.0.pop() {
            let _ = unlinkat(&parent, name.as_slice(), AtFlags::REMOVEDIR);
        }
    }
}

pub fn resolve(workspace: &Workspace, path: &Path, last: Last, parents: Parents) -> Result<Spot, Fault> {
    let mut way = Way::to_workspace(workspace)?;
    let mut todo: Vec<Vec<u8>> = path.names.iter().rev().cloned().collect();
    let found = walk(&mut way, &mut todo, last, parents);
    // Errors outside of the workspace are not reported.
    if way.is_inside() { way.into_spot(found?) } else { Err(paths::outside()) }
}

/// A name that is no directory ends the way.
type Found = Option<(Vec<u8>, Option<Object>)>;

fn walk(way: &mut Way, todo: &mut Vec<Vec<u8>>, last: Last, parents: Parents) -> Result<Found, Fault> {
    let mut links = 0;
    while let Some(name) = todo.pop() {
        if name == b".." {
            way.leave();
            continue;
        }
        let is_last = todo.is_empty();
        let object = match look(way.top(), &name) {
            Ok(object) => object,
            Err(Errno::NOENT) if is_last => return Ok(Some((name, None))),
            Err(Errno::NOENT) if parents == Parents::Make && way.is_inside() => {
                way.make(&name)?;
                todo.push(name);
                continue;
            }
            Err(errno) => return Err(errno.into()),
        };
        match object.kind() {
            FileType::Symlink if is_last && last == Last::Keep => return Ok(Some((name, Some(object)))),
            FileType::Symlink => {
                links += 1;
                if links > LINKS {
                    return Err(Errno::LOOP.into());
                }
                follow(way, todo, &object)?;
            }
            FileType::Directory => way.enter(name, object),
            _ if is_last => return Ok(Some((name, Some(object)))),
            _ => {
                let words = "a parent of the path is not a directory";
                return Err(Fault::new(Code::ParentNotADirectory, words));
            }
        }
    }
    Ok(None)
}

/// Looks up one name beneath a directory, without following a link.
pub fn look(parent: impl AsFd, name: &[u8]) -> Result<Object, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat2(parent, name, flags, Mode::empty(), ONE_STEP)?;
    Ok(Object { stat: fstat(&fd)?, fd })
}

fn follow(way: &mut Way, todo: &mut Vec<Vec<u8>>, link: &Object) -> Result<(), Fault> {
    // The text of a link in /proc is not its target.
    if fstatfs(&link.fd)?.f_type == PROC_SUPER_MAGIC {
        return Err(paths::outside());
    }
    let target = readlinkat(&link.fd, "", Vec::new())?.into_bytes();
    if target.starts_with(b"/") {
        way.leave_all();
    }
    todo.extend(paths::parts(&target).into_iter().rev().map(<[u8]>::to_vec));
    Ok(())
}

/// Where one is, with every directory above, so that `..` needs no second look at the file system.
struct Way {
    steps: Vec<Step>,
    /// How many steps lead to the workspace's root, and which directory that is.
    depth: usize,
    root: (u64, u64),
    made: Made,
    makes: usize,
}

struct Step {
    name: Vec<u8>,
    object: Object,
}

impl Way {
    fn to_workspace(workspace: &Workspace) -> Result<Way, Fault> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, "/", flags, Mode::empty())?;
        let top = Step { name: vec![], object: Object { stat: fstat(&fd)?, fd } };
        let mut way = Way { steps: vec![top], depth: 0, root: (0, 0), made: Made::default(), makes: 0 };
        let path = std::fs::canonicalize(&workspace.path)?;
        for name in paths::parts(path.as_os_str().as_encoded_bytes()) {
            let object = look(way.top(), name)?;
            way.enter(name.to_vec(), object);
        }
        way.depth = way.steps.len();
        way.root = way.top_id();
        Ok(way)
    }

    fn top(&self) -> &OwnedFd {
        &self.steps[self.steps.len() - 1].object.fd
    }

    fn top_id(&self) -> (u64, u64) {
        identity(&self.steps[self.steps.len() - 1].object)
    }

    fn is_inside(&self) -> bool {
        self.steps.get(self.depth - 1).is_some_and(|step| identity(&step.object) == self.root)
    }

    fn enter(&mut self, name: Vec<u8>, object: Object) {
        self.steps.push(Step { name, object });
    }

    fn leave(&mut self) {
        self.steps.truncate((self.steps.len() - 1).max(1));
    }

    fn leave_all(&mut self) {
        self.steps.truncate(1);
    }

    fn make(&mut self, name: &[u8]) -> Result<(), Fault> {
        self.makes += 1;
        // More than a path has names: another process keeps removing the directories that are made.
        if self.makes > paths::PATH_BYTES {
            return Err(Errno::BUSY.into());
        }
        match mkdirat(self.top(), name, Mode::from_raw_mode(DIRECTORY_MODE)) {
            // Another process was faster.
            Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno.into()),
            Ok(()) => {
                self.made.0.push((self.top().try_clone()?, name.to_vec()));
                Ok(())
            }
        }
    }

    fn into_spot(mut self, found: Found) -> Result<Spot, Fault> {
        let made = std::mem::take(&mut self.made);
        if let Some((name, object)) = found {
            let Step { object: Object { fd: parent, .. }, .. } = self.steps.swap_remove(self.steps.len() - 1);
            return Ok(Spot::Below(Below { parent, name, object, made }));
        }
        let is_root = self.steps.len() == self.depth;
        let Step { name, object } = self.steps.swap_remove(self.steps.len() - 1);
        if is_root {
            return Ok(Spot::Root(object));
        }
        let Step { object: Object { fd: parent, .. }, .. } = self.steps.swap_remove(self.steps.len() - 1);
        Ok(Spot::Below(Below { parent, name, object: Some(object), made }))
    }
}

fn identity(object: &Object) -> (u64, u64) {
    (object.stat.st_dev, object.stat.st_ino)
}

#[cfg(test)]
#[path = "resolve_test.rs"]
mod tests;
