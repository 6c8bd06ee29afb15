//! Turns a failed start of a program into a refusal, or into a shell's answer: one line and the exit code 127 or 126.

use hyper::StatusCode;
use rustix::io::Errno;

use crate::refusal::{Refusal, plain};
use crate::{frames, sys};

pub enum Unable {
    Refused(Refusal),
    Exits { exit_code: i32, line: Vec<u8> },
}

impl Unable {
    pub fn from(name: &str, failure: sys::Failure) -> Unable {
        let (exit_code, reason) = match failure {
            sys::Failure::Directory(errno) => {
                let message = format!("cwd: the user may not enter it: {errno}");
                return Unable::Refused(Refusal::invalid(message));
            }
            sys::Failure::Setup(errno) => return Unable::Refused(not_spawned(errno.into())),
            sys::Failure::Exec(errno) => not_executed(errno),
            sys::Failure::Interpreter(errno, head) => not_interpreted(errno, &head),
        };
        let mut line = format!("{name}: {reason}\n").into_bytes();
        line.truncate(frames::PAYLOAD_BYTES);
        Unable::Exits { exit_code, line }
    }
}

pub fn not_spawned(error: std::io::Error) -> Refusal {
    let message =
        format!("the machine cannot start another process: {error}; end some processes and try again");
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "spawn_failed", message)
}

fn not_executed(errno: Errno) -> (i32, String) {
    match errno {
        Errno::NOENT | Errno::NOTDIR => (127, "command not found".into()),
        Errno::NOEXEC => (126, "neither a program for this machine nor a script that begins with #!".into()),
        errno => (126, plain(errno)),
    }
}

/// A missing interpreter: a script names it in its first line, a binary names its loader in its header.
fn not_interpreted(errno: Errno, head: &[u8]) -> (i32, String) {
    let exit_code = if errno == Errno::ACCESS { 126 } else { 127 };
    let line = match interpreter(head) {
        Some(interpreter) => format!("{interpreter}: bad interpreter: {}", plain(errno)),
        None => format!("cannot execute: a file that it needs: {}", plain(errno)),
    };
    (exit_code, line)
}

fn interpreter(head: &[u8]) -> Option<String> {
    let line = head.strip_prefix(b"#!")?.split(|byte| matches!(byte, b'\n' | b'\0')).next()?;
    let name = line.split(|byte| matches!(byte, b' ' | b'\t')).find(|word| !word.is_empty())?;
    // Shows the carriage return of a Windows line ending, which is then part of the interpreter's name.
    Some(String::from_utf8_lossy(name).replace('\r', "\\r"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_names_its_interpreter_in_its_first_line() {
        let name = |head: &[u8]| interpreter(head);
        assert_eq!(name(b"#!/nope\necho\n").as_deref(), Some("/nope"));
        assert_eq!(name(b"#! /usr/bin/env -S x\n").as_deref(), Some("/usr/bin/env"));
        assert_eq!(name(b"#!/bin/sh\r\n\0\0").as_deref(), Some("/bin/sh\\r"));
        assert_eq!(name(b"#!/nope\0\0").as_deref(), Some("/nope"));
        assert_eq!(name(b"\x7fELF"), None);
    }

    #[test]
    fn a_command_that_cannot_run_has_a_reason_in_words() {
        assert_eq!(not_executed(Errno::NOENT), (127, "command not found".into()));
        assert_eq!(not_executed(Errno::ACCESS), (126, "Permission denied".into()));
        assert_eq!(not_executed(Errno::TOOBIG), (126, "Argument list too long".into()));
        let missing = "/nope: bad interpreter: No such file or directory";
        assert_eq!(not_interpreted(Errno::NOENT, b"#!/nope\n"), (127, missing.into()));
        let forbidden = "/etc/passwd: bad interpreter: Permission denied";
        assert_eq!(not_interpreted(Errno::ACCESS, b"#!/etc/passwd\n"), (126, forbidden.into()));
    }
}
