//! Makes what the agent mounts on and writes to, which a container image may lack. A link, a device or a FIFO in such a place
//! is replaced: it would lead the agent elsewhere, or make it wait. Nothing of a usual image changes.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::log;

const LIMIT_BYTES: u64 = 16 * 1024 * 1024;
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost\n";

/// The files of accounts, names and the network, before anything reads or writes them.
pub fn prepare(root: &Path) {
    // A link to a directory is one: it has the image's own files.
    if !root.join("etc").is_dir() {
        log::warn("make /etc", own_directory(&root.join("etc")));
    }
    for (name, text) in [
        ("passwd", "root:x:0:0:root:/root:/bin/sh\n"),
        ("group", "root:x:0:\n"),
        ("hosts", HOSTS),
        ("hostname", ""),
        ("machine-id", ""),
        ("environment", ""),
        ("resolv.conf", ""),
    ] {
        let path = root.join("etc").join(name);
        log::warn(&format!("make /etc/{name}"), own_file(&path, text));
    }
}

/// Makes the directory unless it is one. What a link to it has elsewhere stays there.
pub fn own_directory(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => fs::remove_file(path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    fs::create_dir_all(path)
}

/// A regular file stays as it is. A link to one becomes a copy of it; anything else becomes a file with `text`, and what is
/// missing too, unless there is no text for it.
fn own_file(path: &Path, text: &str) -> io::Result<()> {
    let content = match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => return Ok(()),
        Ok(found) => {
            let content = behind_link(path).unwrap_or_else(|| text.into());
            if found.is_dir() {
                fs::remove_dir_all(path)?
            } else {
                fs::remove_file(path)?
            }
            content
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => text.into(),
        Err(error) => return Err(error),
    };
    if content.is_empty() {
        return Ok(());
    }
    fs::write(path, content)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
}

/// The content of the regular file that a link leads to.
fn behind_link(path: &Path) -> Option<Vec<u8>> {
    let mut options = File::options();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).ok()?;
    let meta = file.metadata().ok().filter(|meta| meta.is_file() && meta.len() <= LIMIT_BYTES)?;
    let mut content = Vec::with_capacity(meta.len() as usize);
    file.take(LIMIT_BYTES).read_to_end(&mut content).ok()?;
    Some(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn text(root: &tempfile::TempDir, name: &str) -> Option<String> {
        let path = root.path().join(name);
        assert!(fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) || !path.exists(), "{name}");
        fs::read_to_string(path).ok()
    }

    #[test]
    fn an_empty_image_gets_accounts_and_names() {
        let root = tempfile::tempdir().unwrap();
        prepare(root.path());
        assert!(text(&root, "etc/passwd").unwrap().starts_with("root:x:0:0:"));
        assert_eq!(text(&root, "etc/group").unwrap(), "root:x:0:\n");
        assert_eq!(text(&root, "etc/hosts").unwrap(), HOSTS);
        for name in ["etc/resolv.conf", "etc/hostname", "etc/machine-id", "etc/environment"] {
            assert_eq!(text(&root, name), None);
        }
    }

    #[test]
    fn the_files_of_a_usual_image_stay_as_they_are() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        for name in ["passwd", "group", "hosts", "environment"] {
            fs::write(root.path().join("etc").join(name), "own").unwrap();
            fs::set_permissions(root.path().join("etc").join(name), fs::Permissions::from_mode(0o600))
                .unwrap();
        }
        prepare(root.path());
        for name in ["etc/passwd", "etc/group", "etc/hosts", "etc/environment"] {
            assert_eq!(text(&root, name).unwrap(), "own");
            assert_eq!(fs::metadata(root.path().join(name)).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn links_and_fifos_are_replaced_and_what_they_lead_to_stays() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir(at("elsewhere")).unwrap();
        fs::write(at("elsewhere/passwd"), "linked:x:1:1::/:/bin/sh\n").unwrap();
        fs::create_dir(at("etc")).unwrap();
        symlink("../elsewhere/passwd", at("etc/passwd")).unwrap();
        symlink("/nowhere", at("etc/hosts")).unwrap();
        symlink("/dev/zero", at("etc/environment")).unwrap();
        fs::create_dir(at("etc/hostname")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(rustix::fs::CWD, at("etc/group"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        prepare(root.path());
        assert_eq!(text(&root, "etc/passwd").unwrap(), "linked:x:1:1::/:/bin/sh\n");
        assert_eq!(text(&root, "elsewhere/passwd").unwrap(), "linked:x:1:1::/:/bin/sh\n");
        assert_eq!(text(&root, "etc/hosts").unwrap(), HOSTS);
        assert_eq!(text(&root, "etc/group").unwrap(), "root:x:0:\n");
        assert_eq!((text(&root, "etc/environment"), text(&root, "etc/hostname")), (None, None));
    }

    #[test]
    fn a_link_in_the_place_of_a_directory_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir(at("var")).unwrap();
        fs::write(at("var/file"), "").unwrap();
        symlink("var", at("tmp")).unwrap();
        fs::write(at("run"), "").unwrap();
        for name in ["tmp", "run", "a/b"] {
            own_directory(&at(name)).unwrap();
            assert!(fs::symlink_metadata(at(name)).unwrap().is_dir());
        }
        assert!(at("var/file").exists() && !at("tmp/file").exists());
    }
}
