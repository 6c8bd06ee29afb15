//! Short lines to the console, the only log a machine has.

use std::fmt::Display;
use std::io::Write;

/// A console that cannot be written to is no reason to stop.
pub fn line(text: &str) {
    let _ = std::io::stderr().write_all(format!("agent: {text}\n").as_bytes());
}

/// For steps without which the machine still works.
pub fn warn<T, E: Display>(step: &str, result: Result<T, E>) -> Option<T> {
    result.map_err(|error| line(&format!("could not {step}: {error}"))).ok()
}

/// For steps without which it does not: PID 1 ends, the kernel panics, and the host sees the machine end.
pub fn or_die<T, E: Display>(step: &str, result: Result<T, E>) -> T {
    warn(step, result).unwrap_or_else(|| std::process::exit(1))
}
