//! The cgroup tree: `agent` for PID 1, `user` for everything that runs on behalf of the session, one leaf per command.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, openat};
use rustix::process::Pid;
use tokio::time::{Instant, sleep};

use crate::log;

const ROOT: &str = "/sys/fs/cgroup";
const USER: &str = "/sys/fs/cgroup/user";
const AGENT: &str = "/sys/fs/cgroup/agent";
/// Memory reserved for kernel and agent, so that a command cannot starve them.
const RESERVED_BYTES: u64 = 48 * 1024 * 1024;
const USER_PIDS: u32 = 4096;
/// Interval of the checks whether all processes are frozen.
const FROZEN_CHECK: Duration = Duration::from_millis(2);

pub struct Cgroups {
    user: PathBuf,
    /// A handle of `user`, which still works after root in the guest has unmounted the tree or mounted over it.
    dir: io::Result<File>,
    next: Cell<u64>,
    /// The leaf for the next command, made in advance.
    spare: RefCell<Option<Leaf>>,
    /// Leaves whose command ended but whose background processes may still run.
    left: RefCell<Vec<PathBuf>>,
}

pub struct Leaf {
    path: PathBuf,
    pub dir: File,
}

impl Cgroups {
    pub fn set_up() -> io::Result<Cgroups> {
        fs::create_dir_all(AGENT)?;
        fs::create_dir_all(USER)?;
        write(AGENT, "cgroup.procs", "1")?;
        write(ROOT, "cgroup.subtree_control", "+pids +memory +cpu")?;
        let info = rustix::system::sysinfo();
        let total = info.totalram * u64::from(info.mem_unit.max(1));
        let limit = total.saturating_sub(RESERVED_BYTES);
        log::warn("limit memory", write(USER, "memory.max", &limit.to_string()));
        log::warn("limit pids", write(USER, "pids.max", &USER_PIDS.to_string()));
        log::warn("weigh the agent", write(AGENT, "cpu.weight", "1000"));
        let spared = fs::write("/proc/self/oom_score_adj", "-1000");
        log::warn("spare the agent from the OOM killer", spared);
        Ok(Cgroups::of(USER))
    }

    pub fn of(user: impl Into<PathBuf>) -> Cgroups {
        let user = user.into();
        Cgroups {
            dir: File::open(&user),
            user,
            next: Cell::default(),
            spare: RefCell::default(),
            left: RefCell::default(),
        }
    }

    pub fn take_leaf(&self) -> io::Result<Leaf> {
        // Root in the guest may have removed the spare leaf.
        let spare = self.spare.take().filter(|leaf| leaf.path.exists());
        spare.map_or_else(|| self.create_leaf(), Ok)
    }

    fn create_leaf(&self) -> io::Result<Leaf> {
        let number = self.next.replace(self.next.get() + 1);
        let path = self.user.join(format!("exec-{number}"));
        fs::create_dir(&path)?;
        let dir = File::open(&path)?;
        Ok(Leaf { path, dir })
    }

    /// Removes a leaf, or tries again at each later release while it has processes. Makes the spare leaf.
    pub fn release(&self, leaf: &Leaf) {
        let mut left = self.left.borrow_mut();
        left.push(leaf.path.clone());
        left.retain(|path| matches!(fs::remove_dir(path), Err(e) if e.kind() == io::ErrorKind::ResourceBusy));
        let mut spare = self.spare.borrow_mut();
        if spare.is_none() {
            // An error occurs again, and is reported, when the next command needs its leaf.
            *spare = self.create_leaf().ok();
        }
    }

    pub fn kill_user(&self) -> io::Result<()> {
        self.write_control("cgroup.kill", "1")
    }

    /// Returns false if some process is not frozen in time.
    pub async fn freeze_user(&self, within: Duration) -> io::Result<bool> {
        self.write_control("cgroup.freeze", "1")?;
        let end = Instant::now() + within;
        while !self.is_frozen()? {
            if Instant::now() > end {
                return Ok(false);
            }
            sleep(FROZEN_CHECK).await;
        }
        Ok(true)
    }

    /// Thaws the user's processes. Succeeds if root in the guest has removed the tree: no process is frozen then.
    pub fn thaw_user(&self) -> io::Result<()> {
        match self.write_control("cgroup.freeze", "0") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            written => written,
        }
    }

    pub fn is_frozen(&self) -> io::Result<bool> {
        let mut events = String::new();
        self.open("cgroup.events", OFlags::RDONLY)?.read_to_string(&mut events)?;
        Ok(events.lines().any(|line| line == "frozen 1"))
    }

    fn write_control(&self, file: &str, value: &str) -> io::Result<()> {
        self.open(file, OFlags::WRONLY)?.write_all(value.as_bytes())
    }

    fn open(&self, file: &str, flags: OFlags) -> io::Result<File> {
        let dir = self.dir.as_ref().map_err(|error| io::Error::from(error.kind()))?;
        Ok(File::from(openat(dir, file, flags | OFlags::CLOEXEC, Mode::empty())?))
    }
}

impl Leaf {
    /// Kills every process of the leaf, also those that left the command's session or process group.
    pub fn kill(&self) {
        log::warn("kill a command", write(&self.path, "cgroup.kill", "1"));
    }

    /// The processes of the leaf, without zombies.
    pub fn members(&self) -> Vec<Pid> {
        let pids = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        pids.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
    }
}

fn write(cgroup: impl AsRef<Path>, file: &str, value: &str) -> io::Result<()> {
    fs::write(cgroup.as_ref().join(file), value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cgroup_root, run};

    #[test]
    fn a_tree_that_was_removed_is_thawed_and_cannot_be_frozen() {
        run(async {
            let path = cgroup_root().join(format!("vivarium-test-{}-removed", std::process::id()));
            fs::create_dir(&path).expect("make a cgroup; these tests run as root");
            let cgroups = Cgroups::of(&path);
            assert!(cgroups.freeze_user(Duration::from_secs(30)).await.unwrap());
            cgroups.thaw_user().unwrap();
            fs::remove_dir(&path).unwrap();
            cgroups.thaw_user().unwrap();
            assert!(cgroups.freeze_user(Duration::from_secs(30)).await.is_err());
        });
    }
}
