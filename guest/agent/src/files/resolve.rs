//! Resolves a path to handles, one name at a time. Each step opens one name beneath an open directory and follows no
//! link; a link's target is walked in the same way. The operation uses the handles that were checked to be inside the
//! workspace, so a name that is replaced in between has no effect.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::fs::{fstat, fstatfs, mkdirat, openat2, readlinkat, unlinkat};
use rustix::io::Errno;

use super::faults::{Code, Fault};
use super::paths::{self, Path, Workspace};

/// Limit of the links in a path.
const LINKS: usize = 40;
const PROC_SUPER_MAGIC: i64 = 0x9fa0;
pub const DIRECTORY_MODE: u32 = 0o755;
/// Flags for opening one name beneath an open directory.
const ONE_STEP: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

#[derive(Clone, Copy, PartialEq)]
pub enum Last {
    /// A link at the end of the path stands for its target.
    Follow,
    /// A link at the end of the path stands for itself.
    Keep,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Parents {
    Expect,
    Make,
}

/// What a path leads to: the workspace's root, or a name below it.
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

/// An object of the file system by an O_PATH handle, which does not open a device or a FIFO.
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
    /// The object, or an error if the name does not exist.
    pub fn object(self) -> Result<Object, Fault> {
        match self {
            Spot::Root(object) => Ok(object),
            Spot::Below(below) => Ok(below.object.ok_or(Errno::NOENT)?),
        }
    }

    pub fn below_root(self) -> Result<Below, Fault> {
        match self {
            Spot::Below(below) => Ok(below),
            Spot::Root(_) => Err(Fault::new(Code::WORKSPACE_ROOT, "the workspace root stays where it is")),
        }
    }
}

/// The directories that were made. Dropped, they are removed again unless they have entries.
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
    // An error outside the workspace is not reported: it would show what is there.
    if way.is_inside() { Ok(way.into_spot(found?)) } else { Err(paths::outside()) }
}

/// The name at the end of a path and its object, unless the path ends with a directory.
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
                return Err(Fault::new(Code::PARENT_NOT_A_DIRECTORY, words));
            }
        }
    }
    Ok(None)
}

/// The object of one name beneath a directory. A link is not followed.
pub fn look(parent: impl AsFd, name: &[u8]) -> Result<Object, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat2(parent, name, flags, Mode::empty(), ONE_STEP)?;
    Ok(Object { stat: fstat(&fd)?, fd })
}

fn follow(way: &mut Way, todo: &mut Vec<Vec<u8>>, link: &Object) -> Result<(), Fault> {
    // A link in /proc is refused: its text need not be its target.
    if fstatfs(&link.fd)?.f_type == PROC_SUPER_MAGIC {
        return Err(paths::outside());
    }
    let target = readlinkat(&link.fd, "", Vec::new())?.into_bytes();
    if target.starts_with(b"/") {
        way.steps.truncate(1);
    }
    todo.extend(paths::parts(&target).into_iter().rev().map(<[u8]>::to_vec));
    Ok(())
}

/// The directories from `/` to the present one, so that `..` needs no lookup.
struct Way {
    steps: Vec<Step>,
    /// Number of steps to the workspace's root.
    depth: usize,
    /// Device and inode of the workspace's root.
    root: (u64, u64),
    made: Made,
    /// Number of calls of `make`.
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
        way.root = identity(&way.steps[way.depth - 1].object);
        Ok(way)
    }

    fn top(&self) -> &OwnedFd {
        &self.steps[self.steps.len() - 1].object.fd
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

    fn make(&mut self, name: &[u8]) -> Result<(), Fault> {
        self.makes += 1;
        // More than the names of any path: another process keeps removing the directories.
        if self.makes > paths::PATH_BYTES {
            return Err(Errno::BUSY.into());
        }
        match mkdirat(self.top(), name, Mode::from_raw_mode(DIRECTORY_MODE)) {
            // Another process made the directory first.
            Err(Errno::EXIST) => {}
            made => {
                made?;
                self.made.0.push((self.top().try_clone()?, name.to_vec()));
            }
        }
        Ok(())
    }

    fn into_spot(mut self, found: Found) -> Spot {
        let is_root = found.is_none() && self.steps.len() == self.depth;
        let mut pop = || self.steps.swap_remove(self.steps.len() - 1);
        let (name, object) = found.unwrap_or_else(|| {
            let Step { name, object } = pop();
            (name, Some(object))
        });
        match object {
            Some(object) if is_root => Spot::Root(object),
            object => Spot::Below(Below { parent: pop().object.fd, name, object, made: self.made }),
        }
    }
}

fn identity(object: &Object) -> (u64, u64) {
    (object.stat.st_dev, object.stat.st_ino)
}

#[cfg(test)]
#[path = "resolve_test.rs"]
mod tests;
