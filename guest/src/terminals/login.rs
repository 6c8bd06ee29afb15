//! The program of a terminal: what was asked for, or the user's login shell.

use std::ffi::CString;

use super::TerminalSpec;
use crate::launch::{self, Program};
use crate::refusal::Refusal;
use crate::{sys, users};

pub fn name(spec: &TerminalSpec) -> String {
    let asked = spec.argv.as_ref().and_then(|argv| argv.first());
    asked.cloned().unwrap_or_else(users::login_shell)
}

pub fn prepare(spec: &TerminalSpec) -> Result<sys::Launch, Refusal> {
    let shell = [name(spec)];
    let argv = spec.argv.as_deref().unwrap_or(&shell);
    let mut launch = launch::prepare(&Program { argv, cwd: spec.cwd.as_deref(), env: &spec.env })?;
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
