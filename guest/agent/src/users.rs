//! The user that commands run as, and the image's account files.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::sync::OnceLock;

use crate::{log, regular_file};

pub const NAME: &str = "sandbox";
pub const HOME: &str = "/home/sandbox";
/// The user's number, and the group's, where an image leaves it free.
const NUMBER: u32 = 999;
/// Numbers below are of the system's users, by the custom of distributions.
const FIRST_OF_PEOPLE: u32 = 1000;

const PASSWD: &str = "/etc/passwd";
/// The shell that a builder gives an image without one.
pub const GIVEN_SHELL: &str = "/.vivarium/sh";
const SHELLS: [&str; 3] = ["/bin/bash", "/bin/sh", GIVEN_SHELL];
const NO_SHELL: &str = "/sbin/nologin";
const GROUP: &str = "/etc/group";
const SUDOERS: [&str; 2] = ["/etc/sudoers.d/sandbox", "/etc/sudoers.d/90-sandbox"];
/// Groups whose members may become root in common images.
const ROOT_GROUPS: [&str; 3] = ["sudo", "wheel", "admin"];

#[derive(Clone, Copy, Debug, PartialEq)]
struct Numbers {
    uid: u32,
    gid: u32,
}

/// Settled at the boot, and the same in every machine of its memory: what the user's root later writes into the account files
/// changes the rights of no program.
static NUMBERS: OnceLock<Numbers> = OnceLock::new();

fn numbers() -> Numbers {
    NUMBERS.get().copied().unwrap_or(Numbers { uid: NUMBER, gid: NUMBER })
}

pub fn uid() -> u32 {
    numbers().uid
}

pub fn gid() -> u32 {
    numbers().gid
}

/// Settles the user's numbers, and adds the user, the group and the home directory if the image lacks them.
pub fn ensure_sandbox() {
    let settled = || numbers_in(&content(PASSWD), &content(GROUP));
    let Numbers { uid, gid } = *NUMBERS.get_or_init(settled);
    let shell = shell().unwrap_or(NO_SHELL);
    let entry = format!("{NAME}:x:{uid}:{gid}::{HOME}:{shell}\n");
    log::warn("add the user", append_missing(PASSWD, &entry));
    log::warn("add the group", append_missing(GROUP, &format!("{NAME}:x:{gid}:\n")));
    if !Path::new(HOME).exists() {
        let made = fs::create_dir_all(HOME).and_then(|()| chown(HOME, Some(uid), Some(gid)));
        log::warn("make the home directory", made);
    }
}

/// Names in other encodings than UTF-8 do not hide the numbers beside them.
fn content(path: &str) -> String {
    let read = regular_file::open(Path::new(path), fs::File::options().read(true))
        .and_then(|mut file| regular_file::read_bytes(&mut file));
    String::from_utf8_lossy(&read.unwrap_or_default()).into_owned()
}

/// The numbers of the account that has the user's name, unless they are root's. Otherwise the first below 1000 that no account
/// and no group has: under the number of another account programs would have its rights.
fn numbers_in(accounts: &str, groups: &str) -> Numbers {
    if let Some(numbers) = account_in(accounts) {
        return numbers;
    }
    let field = |line: &str, at| line.split(':').nth(at).and_then(|text| text.parse::<u32>().ok());
    let of_accounts = accounts.lines().flat_map(|line| [field(line, 2), field(line, 3)]);
    let of_groups = groups.lines().filter(|line| !names(line, NAME)).map(|line| field(line, 2));
    let taken: HashSet<u32> = of_accounts.chain(of_groups).flatten().collect();
    let free = (1..=NUMBER).rev().find(|number| !taken.contains(number)).unwrap_or(NUMBER);
    let group = groups.lines().find(|line| names(line, NAME)).and_then(|line| field(line, 2));
    Numbers { uid: free, gid: group.filter(|number| is_usual(*number)).unwrap_or(free) }
}

fn account_in(accounts: &str) -> Option<Numbers> {
    let line = accounts.lines().find(|line| names(line, NAME))?;
    let mut fields = line.split(':').skip(2).map(str::parse);
    let (uid, gid) = (fields.next()?.ok()?, fields.next()?.ok()?);
    (is_usual(uid) && is_usual(gid)).then_some(Numbers { uid, gid })
}

/// Whether the root of a volume belongs to the user of some session, but not of this one, whose image gives the user another
/// number.
pub fn is_other_sandbox(uid: u32) -> bool {
    (1..FIRST_OF_PEOPLE).contains(&uid) && uid != self::uid()
}

/// Neither root's nor the largest one, which to the kernel means that a process stays what it is.
fn is_usual(number: u32) -> bool {
    (1..u32::MAX).contains(&number)
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
    SHELLS.into_iter().find(|shell| is_program(Path::new(shell)))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
}

fn names(line: &str, name: &str) -> bool {
    line.split(':').next() == Some(name)
}

/// The user's shell by the account file, or another one if that shell is missing.
pub fn login_shell() -> String {
    let own = shell_in(&regular_file::text(PASSWD), NAME).filter(|shell| is_program(Path::new(shell)));
    own.unwrap_or_else(|| shell().unwrap_or("/bin/sh").to_owned())
}

fn shell_in(accounts: &str, name: &str) -> Option<String> {
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
        assert_eq!(shell_in("root:x:0:0:root:/root:/bin/bash\nbob:x:8\n", "bob"), None);
    }

    #[test]
    fn a_shell_is_a_file_that_can_be_run() {
        let room = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| room.path().join(name));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(is_program(Path::new("/bin/sh")) && !is_program(room.path()));
        assert!(!is_program(&file) && !is_program(&link) && !is_program(&room.path().join("none")));
    }

    #[test]
    fn the_user_has_the_first_number_that_no_account_and_no_group_has() {
        let numbers = |uid, gid| Numbers { uid, gid };
        let root = "root:x:0:0:root:/root:/bin/sh\n";
        assert_eq!(numbers_in("", ""), numbers(999, 999));
        assert_eq!(numbers_in(root, TEXT), numbers(999, 999));
        let accounts = format!("{root}systemd:x:999:999::/:/bin/false\napp:x:998:997::/:/bin/sh");
        assert_eq!(numbers_in(&accounts, "adm:x:996:ann\n"), numbers(995, 995));
        assert_eq!(numbers_in(&accounts, "sandbox:x:77:\n"), numbers(996, 77));
        assert_eq!(numbers_in("broken\n::::\nx:y:z:w\nbig:x:99999999999:999::/:\n", ""), numbers(998, 998));
        let all: String = (1..1000).map(|number| format!("u{number}:x:{number}:{number}::/:\n")).collect();
        assert_eq!(numbers_in(&all, ""), numbers(999, 999));
    }

    #[test]
    fn an_account_of_the_users_name_keeps_its_numbers_unless_they_would_make_it_root() {
        let account = |uid: &str, gid: &str| format!("sandbox:x:{uid}:{gid}::/home/sandbox:/bin/sh\n");
        let numbers = |uid, gid| Numbers { uid, gid };
        assert_eq!(numbers_in(&account("1000", "100"), ""), numbers(1000, 100));
        // The largest number leaves a process what it is, which is root.
        for (uid, gid) in [("0", "0"), ("1000", "0"), ("0", "1000"), ("4294967295", "5"), ("5", "4294967295")]
        {
            let found = numbers_in(&account(uid, gid), "");
            assert_eq!(found, numbers(999, 999), "{uid}:{gid}");
        }
        assert_eq!(numbers_in(&account("x", "5"), "sandbox:x:0:\n"), numbers(999, 999));
    }

    #[test]
    fn names_in_another_encoding_hide_no_number() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("passwd");
        fs::write(&path, b"caf\xe9:x:999:999:Caf\xe9:/:/bin/sh\n").unwrap();
        let accounts = content(path.to_str().unwrap());
        assert_eq!(numbers_in(&accounts, "").uid, 998);
    }

    #[test]
    fn dropping_sudo_leaves_other_memberships_alone() {
        let expected = "root:x:0:\nsudo:x:27:ann\nvideo:x:44:sandbox\nsandbox:x:999:\n";
        assert_eq!(without_root_groups(TEXT), expected);
        assert_eq!(without_root_groups("sudo:x:27:sandbox\n"), "sudo:x:27:\n");
    }
}
