//! The error answer of a request: a status, a code and one sentence.

use std::fmt::Display;
use std::io;

use hyper::StatusCode;

#[derive(Debug)]
pub struct Refusal {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: String,
}

/// The contract's limit of a message, in characters.
const MESSAGE_CHARS: usize = 1024;

impl Refusal {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let message = plain(message.into()).chars().take(MESSAGE_CHARS).collect();
        Refusal { status, code, message }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Refusal::new(StatusCode::BAD_REQUEST, "invalid", message)
    }

    pub fn internal(step: &str, error: impl Display) -> Self {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", format!("could not {step}: {error}"))
    }
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> io::Error {
        io::Error::other(refusal.message)
    }
}

/// Removes the error numbers that the standard library adds to the system's texts.
pub fn plain(message: impl Display) -> String {
    let message = message.to_string();
    let mut parts = message.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let after = part.trim_start_matches(|c: char| c.is_ascii_digit());
        text + after.strip_prefix(')').unwrap_or(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Error;

    #[test]
    fn errors_are_words_without_numbers() {
        let error = Error::from_raw_os_error(2);
        assert_eq!(plain(&error), "No such file or directory");
        assert_eq!(
            plain(format!("cwd: {error}; then {error}.")),
            "cwd: No such file or directory; then No such file or directory."
        );
        assert_eq!(plain("nothing to take away"), "nothing to take away");
    }

    #[test]
    fn a_refusal_has_no_error_numbers() {
        let refusal = Refusal::internal("freeze", Error::from_raw_os_error(13));
        assert_eq!(refusal.message, "could not freeze: Permission denied");
    }
}
