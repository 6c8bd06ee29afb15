//! Answers of the SFTP server.

use std::io;

use rustix::io::Errno;

use crate::broken::{self, Broken};
use crate::wire::Message;

pub const VERSION: u8 = 2;
const STATUS: u8 = 101;
const HANDLE: u8 = 102;
const DATA: u8 = 103;
pub const NAME: u8 = 104;
pub const ATTRS: u8 = 105;
pub const EXTENDED: u8 = 201;

/// Limit of the bytes of one read or write, as in OpenSSH.
pub const REQUEST_BYTES: usize = 256 * 1024;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Code {
    Ok = 0,
    Eof = 1,
    NoSuchFile = 2,
    PermissionDenied = 3,
    Failure = 4,
    BadMessage = 5,
    Unsupported = 8,
}

/// The error of a request.
#[derive(Debug)]
pub struct Refused {
    pub code: Code,
    pub words: String,
}

impl Refused {
    pub fn new(code: Code, words: &str) -> Self {
        Refused { code, words: words.into() }
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        let code = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT | Errno::NOTDIR | Errno::BADF | Errno::LOOP) => Code::NoSuchFile,
            Some(Errno::PERM | Errno::ACCESS | Errno::FAULT | Errno::ROFS) => Code::PermissionDenied,
            Some(Errno::NAMETOOLONG | Errno::INVAL) => Code::BadMessage,
            Some(Errno::NOSYS | Errno::OPNOTSUPP) => Code::Unsupported,
            _ => Code::Failure,
        };
        Refused { code, words: broken::words_of(&error) }
    }
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Self {
        io::Error::from(error).into()
    }
}

impl From<Broken> for Refused {
    fn from(_: Broken) -> Self {
        Refused::new(Code::BadMessage, "the request is cut off")
    }
}

pub type Answer = Result<Vec<u8>, Refused>;

pub fn status(id: u32, code: Code, words: &str) -> Vec<u8> {
    Message::new(STATUS).u32(id).u32(code as u32).string(words).string("").into_bytes()
}

/// The answer without data: success, or the error.
pub fn done(id: u32, result: io::Result<()>) -> Answer {
    Ok(result.map(|()| status(id, Code::Ok, ""))?)
}

pub fn handle(id: u32, handle: u32) -> Answer {
    Ok(Message::new(HANDLE).u32(id).string(handle.to_be_bytes()).into_bytes())
}

/// The answer with at most `most` bytes, which `fill` provides.
pub fn data(id: u32, most: usize, fill: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> Answer {
    let mut answer = Message::new(DATA).u32(id).u32(0).into_bytes();
    let head = answer.len();
    answer.resize(head + most, 0);
    let count = fill(&mut answer[head..])?;
    if count == 0 && most > 0 {
        return Err(Refused::new(Code::Eof, "end of file"));
    }
    answer.truncate(head + count);
    answer[head - 4..head].copy_from_slice(&(count as u32).to_be_bytes());
    Ok(answer)
}

/// The answer with one name, without attributes.
pub fn name(id: u32, name: &[u8]) -> Answer {
    Ok(Message::new(NAME).u32(id).u32(1).string(name).string(name).u32(0).into_bytes())
}
