//! Why an operation on files was not done, in the codes of the contract (`errors.ts`), each with its status once.

use hyper::StatusCode;
use rustix::io::Errno;
use search::BadPattern;

use crate::refusal::Refusal;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Code {
    BadPath,
    OutsideWorkspace,
    WorkspaceRoot,
    NoSuchFile,
    ParentNotADirectory,
    NotADirectory,
    IsADirectory,
    NotARegularFile,
    PermissionDenied,
    ReadOnly,
    DirectoryNotEmpty,
    FileExists,
    NoSpace,
    TooLarge,
    BadPattern,
    Busy,
    Invalid,
    Internal,
}

impl Code {
    fn row(self) -> (u16, &'static str) {
        match self {
            Code::BadPath => (400, "bad_path"),
            Code::OutsideWorkspace => (400, "outside_workspace"),
            Code::WorkspaceRoot => (400, "workspace_root"),
            Code::NoSuchFile => (404, "no_such_file"),
            Code::ParentNotADirectory => (404, "parent_not_a_directory"),
            Code::NotADirectory => (400, "not_a_directory"),
            Code::IsADirectory => (400, "is_a_directory"),
            Code::NotARegularFile => (400, "not_a_regular_file"),
            Code::PermissionDenied => (400, "permission_denied"),
            Code::ReadOnly => (400, "read_only"),
            Code::DirectoryNotEmpty => (409, "directory_not_empty"),
            Code::FileExists => (409, "file_exists"),
            Code::NoSpace => (409, "no_space"),
            Code::TooLarge => (400, "too_large"),
            Code::BadPattern => (400, "bad_pattern"),
            Code::Busy => (400, "busy"),
            Code::Invalid => (400, "invalid"),
            Code::Internal => (500, "internal"),
        }
    }
}

/// The contract's code for an error of the kernel. A call for which a number has another meaning maps it itself.
fn code_of(errno: Errno) -> Code {
    match errno {
        Errno::NOENT | Errno::STALE => Code::NoSuchFile,
        Errno::NOTDIR => Code::NotADirectory,
        Errno::ISDIR => Code::IsADirectory,
        Errno::ACCESS | Errno::PERM => Code::PermissionDenied,
        Errno::ROFS => Code::ReadOnly,
        Errno::NOTEMPTY => Code::DirectoryNotEmpty,
        Errno::EXIST => Code::FileExists,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Code::NoSpace,
        Errno::NAMETOOLONG | Errno::INVAL | Errno::LOOP | Errno::ILSEQ | Errno::MLINK => Code::BadPath,
        // A border between file systems cannot be crossed by a rename or a removal; a lease makes an opening wait.
        Errno::BUSY | Errno::TXTBSY | Errno::XDEV | Errno::AGAIN => Code::Busy,
        Errno::NXIO | Errno::NODEV => Code::NotARegularFile,
        _ => Code::Internal,
    }
}

#[derive(Debug)]
pub struct Fault {
    pub code: Code,
    pub words: String,
}

impl Fault {
    pub fn new(code: Code, words: impl Into<String>) -> Fault {
        Fault { code, words: words.into() }
    }

    /// Puts the request's path in front of the words.
    pub fn about(self, path: &str) -> Fault {
        Fault { words: format!("{path}: {}", self.words), ..self }
    }

    pub fn into_refusal(self) -> Refusal {
        let (status, code) = self.code.row();
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Refusal::new(status, code, self.words)
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Fault {
        Fault::new(code_of(errno), errno.to_string())
    }
}

impl From<BadPattern> for Fault {
    fn from(bad: BadPattern) -> Fault {
        Fault::new(Code::BadPattern, bad.words)
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Fault {
        match error.raw_os_error() {
            Some(number) => Errno::from_raw_os_error(number).into(),
            None => Fault::new(Code::Internal, error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTRACT: &str = include_str!("../../../../packages/contract/src/guest/errors.ts");

    #[test]
    fn every_code_is_the_contracts_and_has_its_status() {
        for code in ALL {
            let (status, name) = code.row();
            assert!(CONTRACT.contains(&format!("  {name}: {{ status: {status}, ")), "{name}");
        }
    }

    #[test]
    fn errors_of_the_kernel_have_the_contracts_codes() {
        for (errno, code) in [
            (Errno::NOENT, Code::NoSuchFile),
            (Errno::ACCESS, Code::PermissionDenied),
            (Errno::ROFS, Code::ReadOnly),
            (Errno::DQUOT, Code::NoSpace),
            (Errno::XDEV, Code::Busy),
            (Errno::IO, Code::Internal),
        ] {
            assert_eq!(Fault::from(errno).code, code);
            assert_eq!(Fault::from(std::io::Error::from(errno)).code, code);
        }
    }

    const ALL: [Code; 16] = [
        Code::BadPath,
        Code::OutsideWorkspace,
        Code::WorkspaceRoot,
        Code::NoSuchFile,
        Code::ParentNotADirectory,
        Code::NotADirectory,
        Code::IsADirectory,
        Code::NotARegularFile,
        Code::PermissionDenied,
        Code::ReadOnly,
        Code::DirectoryNotEmpty,
        Code::FileExists,
        Code::NoSpace,
        Code::TooLarge,
        Code::BadPattern,
        Code::Busy,
    ];
}
