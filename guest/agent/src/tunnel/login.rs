//! The user of an SSH login, and the environment of the user's commands.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::Path;

use ssh::Task;

use crate::launch::{self, Variables};
use crate::refusal::Refusal;
use crate::{sys, users};

/// Path of this program, which works also after its file was removed.
const SELF: &str = "/proc/self/exe";

pub struct Login {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub home: String,
    pub shell: String,
    /// The first working directory, as for other commands of a session. `$HOME` and `~` are the home directory.
    pub directory: String,
}

impl Login {
    pub fn of_the_user() -> Self {
        Login {
            name: users::NAME.into(),
            uid: users::uid(),
            gid: users::gid(),
            groups: users::supplementary_groups(),
            home: users::HOME.into(),
            shell: users::login_shell(),
            directory: directory(),
        }
    }

    /// The authority's variables and the user's, overridden by the session's, and these by the channel's.
    pub fn environment(
        &self,
        authority: Variables,
        session: &BTreeMap<String, String>,
        channel: &BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, Refusal> {
        let own = [
            ("HOME", self.home.as_str()),
            ("USER", &self.name),
            ("LOGNAME", &self.name),
            ("SHELL", &self.shell),
            // Shells read their settings only if these are set. The addresses are placeholders.
            ("SSH_CLIENT", "127.0.0.1 0 22"),
            ("SSH_CONNECTION", "127.0.0.1 0 127.0.0.1 22"),
        ];
        let mut environment: BTreeMap<_, _> = own.map(|(key, value)| (key.into(), value.into())).into();
        environment.extend(session.clone());
        environment.extend(channel.clone());
        launch::environment(authority, &environment)
    }

    pub fn launch(&self, task: &Task, environment: &BTreeMap<String, String>) -> Option<sys::Launch> {
        let shell = self.shell.as_str();
        let name = Path::new(shell).file_name()?.to_string_lossy();
        let (file, argv) = match task {
            // The dash makes the shell a login shell.
            Task::Shell => (shell, vec![format!("-{name}").into()]),
            Task::Command(command) => (shell, vec![name.as_bytes().into(), "-c".into(), command.clone()]),
            Task::Sftp => (SELF, vec![ssh::sftp::NAME.into(), ssh::sftp::NAME.into()]),
        };
        let texts = |texts: Vec<Vec<u8>>| {
            texts.into_iter().map(|text| CString::new(text).ok()).collect::<Option<Vec<_>>>()
        };
        Some(sys::Launch {
            files: texts(vec![file.into()])?,
            argv: texts(argv)?,
            env: texts(environment.iter().map(|(key, value)| format!("{key}={value}").into()).collect())?,
            cwd: CString::new(self.directory.as_str()).ok()?,
            uid: self.uid,
            gid: self.gid,
            groups: self.groups.clone(),
        })
    }
}

fn directory() -> String {
    let is_there = |path: &&str| Path::new(path).is_dir();
    [launch::WORKSPACE, users::HOME].into_iter().find(is_there).unwrap_or("/").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login() -> Login {
        let texts = |text: &str| text.to_owned();
        Login {
            name: texts("ann"),
            uid: 1,
            gid: 1,
            groups: vec![],
            home: texts("/home/ann"),
            shell: texts("/bin/sh"),
            directory: texts("/"),
        }
    }

    #[test]
    fn the_channels_environment_goes_over_the_sessions_and_that_over_the_logins() {
        let one = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let environment = login().environment(vec![], &one("LANG", "en"), &one("LANG", "de")).unwrap();
        assert_eq!((environment["LANG"].as_str(), environment["USER"].as_str()), ("de", "ann"));
        let environment = login().environment(vec![], &one("USER", "eve"), &one("TERM", "vt100")).unwrap();
        assert_eq!((environment["USER"].as_str(), environment["TERM"].as_str()), ("eve", "vt100"));
        let authority = || vec![("PIP_CERT".to_owned(), "/bundle".to_owned())];
        let environment = |session| login().environment(authority(), &session, &BTreeMap::new()).unwrap();
        assert_eq!(environment(BTreeMap::new())["PIP_CERT"], "/bundle");
        assert_eq!(environment(one("PIP_CERT", "/own"))["PIP_CERT"], "/own");
        assert!(login().environment(vec![], &one("A=B", ""), &one("TERM", "vt100")).is_err());
    }

    #[test]
    fn a_shell_is_a_login_shell_and_a_command_is_one_argument_of_it() {
        let argv = |task| login().launch(&task, &BTreeMap::new()).unwrap().argv;
        assert_eq!(argv(Task::Shell), [c"-sh".to_owned()]);
        let command = argv(Task::Command("echo 'a b'".into()));
        assert_eq!(command, [c"sh", c"-c", c"echo 'a b'"].map(|text| text.to_owned()));
        assert!(login().launch(&Task::Command("a\0b".into()), &BTreeMap::new()).is_none());
    }
}
