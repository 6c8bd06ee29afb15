//! Log lines on the console, the only log of a machine.

use std::fmt::Display;
use std::io::Write;

/// Writes a line. Errors of the console are ignored.
pub fn line(text: &str) {
    let _ = std::io::stderr().write_all(format!("agent: {text}\n").as_bytes());
}

/// Logs the error of a step without which the machine still works.
pub fn warn<T, E: Display>(step: &str, result: Result<T, E>) -> Option<T> {
    result.map_err(|error| line(&format!("could not {step}: {error}"))).ok()
}

/// Ends PID 1 after the error of a necessary step: the kernel panics, and the host sees the machine end.
pub fn or_die<T, E: Display>(step: &str, result: Result<T, E>) -> T {
    warn(step, result).unwrap_or_else(|| std::process::exit(1))
}
