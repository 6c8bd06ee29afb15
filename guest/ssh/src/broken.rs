//! The error that ends a connection.

#[derive(Debug)]
pub struct Broken {
    /// The reason and words for the client; None when the client has gone.
    pub report: Option<(Reason, String)>,
}

/// Reasons of a disconnect (RFC 4253, 11.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    ProtocolError = 2,
    KeyExchangeFailed = 3,
    VersionNotSupported = 8,
    NoMoreAuthMethods = 14,
}

impl Broken {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Broken { report: Some((reason, message.into())) }
    }

    pub fn protocol(message: impl Into<String>) -> Self {
        Broken::new(Reason::ProtocolError, message)
    }

    pub fn cut_off() -> Self {
        Broken::protocol("a message ends before its last field")
    }

    pub fn gone() -> Self {
        Broken { report: None }
    }
}

/// The text of a system error without the number that the standard library adds.
pub fn words_of(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error ").next().unwrap_or_default().to_owned()
}
