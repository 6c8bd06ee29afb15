//! A jail in which requests cannot harm this host: root by name only, with the programs to read, a workspace
//! in memory, no network, and a cgroup and process numbers of its own. A panic anywhere in it, also in a task or a
//! thread, ends it as it would end the machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::{env, fs};

use super::SEED;
use crate::testing::cgroup_root;

/// Only there inside.
const MARK: &str = "/jail-of-hostile-requests";
const KEPT: [&str; 6] = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"];

struct OwnCgroup(PathBuf);

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        for _ in 0..100 {
            let below = fs::read_dir(&self.0).into_iter().flatten().flatten();
            below.for_each(|entry| remove_tree(&entry.path()));
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

fn remove_tree(path: &Path) {
    if path.is_dir() {
        fs::read_dir(path).into_iter().flatten().flatten().for_each(|entry| remove_tree(&entry.path()));
        let _ = fs::remove_dir(path);
    }
}

/// Runs one of these tests, which is ignored otherwise, inside.
pub fn run(test: &str) {
    let cgroup = OwnCgroup(cgroup_root().join(format!("vivarium-fuzz-{}-{test}", std::process::id())));
    fs::create_dir(&cgroup.0).expect("make a cgroup; these tests run as root");
    let mut jail = Command::new("bwrap");
    jail.args(
        "--die-with-parent --new-session --unshare-pid --unshare-net --unshare-ipc --unshare-uts".split(' '),
    );
    jail.args("--clearenv --chdir / --cap-drop ALL".split(' '));
    for name in KEPT {
        jail.args(["--cap-add", &format!("CAP_{name}")]);
    }
    jail.args(
        "--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64"
            .split(' '),
    );
    jail.args(
        "--proc /proc --dev /dev --dir /etc --dir /home/sandbox --dir /run/vivarium --dir /var/lib"
            .split(' '),
    );
    jail.args("--size 67108864 --tmpfs /tmp --perms 0777 --size 67108864 --tmpfs /workspace".split(' '));
    jail.args(["--dir", MARK, "--bind"]).arg(&cgroup.0).arg("/sys/fs/cgroup");
    jail.arg("--ro-bind").arg(env::current_exe().unwrap()).arg("/tests");
    for name in ["VIV_FUZZ", "VIV_FUZZ_SEED"] {
        jail.args(["--setenv", name, &super::number(name).to_string()]);
    }
    jail.args(["/tests", test, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    let outcome = jail.output().expect("start bwrap, of the package bubblewrap");
    let said = [outcome.stdout, outcome.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    println!("{said}");
    assert!(outcome.status.success() && said.contains("1 passed"), "{}: {said}", outcome.status);
}

/// To be called first by what runs inside.
pub fn enter() {
    assert!(Path::new(MARK).exists(), "this test is run by another one, in a jail");
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("VIV_FUZZ_SEED={}: {panic}", SEED.load(Ordering::Relaxed));
        std::process::exit(101);
    }));
}
