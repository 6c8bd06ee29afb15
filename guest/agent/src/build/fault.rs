//! Why an image cannot be unpacked: a word for the host, and a sentence for the log of the build.

use std::fmt;
use std::io;

use rustix::io::Errno;

use crate::refusal::plain;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Code {
    /// The image breaks its format, or a rule of unpacking.
    Invalid,
    /// The image is over a limit.
    TooLarge,
    /// The builder failed, not the image.
    Internal,
}

impl Code {
    pub fn word(self) -> &'static str {
        match self {
            Code::Invalid => "image_invalid",
            Code::TooLarge => "image_too_large",
            Code::Internal => "internal",
        }
    }
}

#[derive(Debug)]
pub struct Fault {
    pub code: Code,
    pub message: String,
}

/// Characters of an image's name that a message shows.
const SHOWN_CHARS: usize = 100;

impl Fault {
    pub fn invalid(message: impl Into<String>) -> Fault {
        Fault { code: Code::Invalid, message: message.into() }
    }

    pub fn too_large(message: impl Into<String>) -> Fault {
        Fault { code: Code::TooLarge, message: message.into() }
    }

    pub fn internal(step: &str, error: impl fmt::Display) -> Fault {
        Fault { code: Code::Internal, message: format!("could not {step}: {}", plain(error)) }
    }

    /// With the name that it is about, which the image chose.
    pub fn about(self, name: &[u8]) -> Fault {
        let shown: String = String::from_utf8_lossy(name).chars().take(SHOWN_CHARS).collect();
        Fault { message: format!("{:?}: {}", shown, self.message), ..self }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

/// Errors of the target's file system. Names and links of the image can cause some of them.
impl From<Errno> for Fault {
    fn from(errno: Errno) -> Fault {
        let message = plain(errno);
        match errno {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::MLINK => Fault::too_large(message),
            Errno::NAMETOOLONG | Errno::LOOP | Errno::TOOBIG | Errno::RANGE => Fault::invalid(message),
            _ => Fault::internal("write to the disk", errno),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        match (Errno::from_io_error(&error), error.downcast::<Fault>()) {
            (_, Ok(fault)) => fault,
            (Some(errno), _) => errno.into(),
            (None, Err(error)) => Fault::internal("unpack", error),
        }
    }
}

/// Passes through decoders, which know errors of their source as these alone.
impl From<Fault> for io::Error {
    fn from(fault: Fault) -> io::Error {
        io::Error::other(fault)
    }
}
