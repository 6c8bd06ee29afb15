//! The program of a terminal: what was asked for, or the user's login shell.

use std::ffi::CString;

use super::TerminalSpec;
use crate::launch::{self, Program};
use crate::refusal::Refusal;
use crate::{sys, users};

pub async fn prepare(spec: &TerminalSpec) -> Result<sys::Launch, Refusal> {
    let shell;
    let argv = match &spec.argv {
        Some(argv) => argv.as_slice(),
        None => {
            shell = [launch::beside(users::login_shell).await?];
            &shell
        }
    };
    let mut launch = launch::prepare(&Program { argv, cwd: spec.cwd.as_deref(), env: &spec.env }).await?;
    if spec.argv.is_none() {
        launch.argv = vec![login_name(&launch.argv[0])];
    }
    Ok(launch)
}

/// A shell whose name begins with a dash reads the profile.
fn login_name(shell: &CString) -> CString {
    let name = shell.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    CString::new([b"-", name].concat()).expect("a part of a text without NUL has none")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_shell_is_named_with_a_dash() {
        assert_eq!(login_name(&c"/bin/bash".into()).as_c_str(), c"-bash");
        assert_eq!(login_name(&c"sh".into()).as_c_str(), c"-sh");
    }
}
