//! The program of a terminal: the requested one, or the user's login shell.

use std::ffi::CString;

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::launch::{self, Program};
use crate::machine::Machine;
use crate::refusal::Refusal;
use crate::{sys, users};

/// Rows and columns of a terminal whose request has no size.
const SIZE: (u16, u16) = (24, 80);

#[derive(Deserialize)]
pub struct TerminalSpec {
    pub argv: Option<Vec<String>>,
    cwd: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    pub rows: u16,
    pub cols: u16,
    pub name: Option<String>,
}

impl TerminalSpec {
    pub fn size(&self) -> (u16, u16) {
        if self.rows > 0 && self.cols > 0 { (self.rows, self.cols) } else { SIZE }
    }
}

pub async fn prepare(machine: &Machine, spec: &TerminalSpec) -> Result<sys::Launch, Refusal> {
    let argv = match spec.argv.clone() {
        Some(argv) => argv,
        None => vec![launch::run_on_thread(&launch::READ_PERMITS, users::login_shell).await?],
    };
    let mut launch =
        launch::prepare(machine, &Program { argv: &argv, cwd: spec.cwd.as_deref(), env: &spec.env }).await?;
    if spec.argv.is_none() {
        launch.argv = vec![login_name(&launch.argv[0])];
    }
    Ok(launch)
}

/// The name of a login shell begins with a dash; such a shell reads the profile.
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
