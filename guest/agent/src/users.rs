//! The user that commands run as, and the image's account files.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::chown;
use std::path::Path;

use crate::{log, regular_file};

pub const NAME: &str = "sandbox";
pub const HOME: &str = "/home/sandbox";
pub const UID: u32 = 999;
pub const GID: u32 = 999;

pub const PASSWD: &str = "/etc/passwd";
const SHELLS: [&str; 2] = ["/bin/bash", "/bin/sh"];
const NO_SHELL: &str = "/sbin/nologin";
const GROUP: &str = "/etc/group";
const SUDOERS: [&str; 2] = ["/etc/sudoers.d/sandbox", "/etc/sudoers.d/90-sandbox"];
/// Groups whose members may become root in common images.
const ROOT_GROUPS: [&str; 3] = ["sudo", "wheel", "admin"];

/// Adds the user, the group and the home directory if the image lacks them.
pub fn ensure_sandbox() {
    let shell = shell().unwrap_or(NO_SHELL);
    let entry = format!("{NAME}:x:{UID}:{GID}::{HOME}:{shell}\n");
    log::warn("add the user", append_missing(PASSWD, &entry));
    log::warn("add the group", append_missing(GROUP, &format!("{NAME}:x:{GID}:\n")));
    if !Path::new(HOME).exists() {
        let made = fs::create_dir_all(HOME).and_then(|()| chown(HOME, Some(UID), Some(GID)));
        log::warn("make the home directory", made);
    }
}

fn append_missing(path: &str, entry: &str) -> io::Result<()> {
    let text = fs::read(path).unwrap_or_default();
    if text
        .split(|byte| *byte == b'\n')
        .any(|line| line.strip_prefix(NAME.as_bytes()).is_some_and(|rest| rest.starts_with(b":")))
    {
        return Ok(());
    }
    let is_line = text.is_empty() || text.ends_with(b"\n");
    let mut file = fs::File::options().append(true).create(true).open(path)?;
    file.write_all(format!("{}{entry}", if is_line { "" } else { "\n" }).as_bytes())
}

/// The shell of programs, if the image has one.
pub fn shell() -> Option<&'static str> {
    SHELLS.into_iter().find(|shell| Path::new(shell).is_file())
}

fn names(line: &str, name: &str) -> bool {
    line.split(':').next() == Some(name)
}

/// The user's shell by the account file, or /bin/sh if that shell is missing.
pub fn login_shell() -> String {
    let shell = shell_in(&regular_file::text(PASSWD), NAME);
    shell.filter(|shell| Path::new(shell).is_file()).unwrap_or_else(|| "/bin/sh".to_owned())
}

pub fn shell_in(accounts: &str, name: &str) -> Option<String> {
    let line = accounts.lines().find(|line| names(line, name))?;
    line.split(':').nth(6).filter(|shell| shell.starts_with('/')).map(str::to_owned)
}

pub fn supplementary_groups() -> Vec<u32> {
    groups_in(&regular_file::text(GROUP))
}

fn groups_in(text: &str) -> Vec<u32> {
    text.lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let is_member = fields.get(3)?.split(',').any(|member| member == NAME);
            is_member.then(|| fields[2].parse().ok()).flatten()
        })
        .collect()
}

/// Removes the sudo rights that the image gives the user.
pub fn drop_sudo() -> io::Result<()> {
    for path in SUDOERS {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    for path in [GROUP, "/etc/gshadow"] {
        let opened = regular_file::open(Path::new(path), fs::File::options().read(true).write(true));
        if opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            continue;
        }
        let mut file = opened?;
        let text = regular_file::read(&mut file)?;
        let kept = without_root_groups(&text);
        if kept != text {
            regular_file::fill(&mut file, &kept)?;
        }
    }
    Ok(())
}

fn without_root_groups(text: &str) -> String {
    text.lines()
        .map(|line| match ROOT_GROUPS.iter().any(|group| names(line, group)) {
            true => without_member(line) + "\n",
            false => format!("{line}\n"),
        })
        .collect()
}

fn without_member(line: &str) -> String {
    let (head, members) = line.rsplit_once(':').unwrap_or((line, ""));
    let kept: Vec<&str> = members.split(',').filter(|member| *member != NAME).collect();
    format!("{head}:{}", kept.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "root:x:0:\nsudo:x:27:ann,sandbox\nvideo:x:44:sandbox\nsandbox:x:999:\n";

    #[test]
    fn supplementary_groups_are_those_that_list_the_user() {
        assert_eq!(groups_in(TEXT), [27, 44]);
        assert_eq!(groups_in("broken\n:::\n"), Vec::<u32>::new());
    }

    #[test]
    fn the_login_shell_is_the_last_field_of_the_account() {
        let text = "root:x:0:0::/root:/bin/dash\nsandbox:x:999:999::/home/sandbox:/bin/zsh\n";
        assert_eq!(shell_in(text, NAME).as_deref(), Some("/bin/zsh"));
        assert_eq!(shell_in("sandbox:x:999:999::/home/sandbox:\n", NAME), None);
        assert_eq!(shell_in("sandbox:x\nother:x:1:1::/:/bin/sh\n", NAME), None);
    }

    #[test]
    fn dropping_sudo_leaves_other_memberships_alone() {
        let expected = "root:x:0:\nsudo:x:27:ann\nvideo:x:44:sandbox\nsandbox:x:999:\n";
        assert_eq!(without_root_groups(TEXT), expected);
        assert_eq!(without_root_groups("sudo:x:27:sandbox\n"), "sudo:x:27:\n");
    }
}
