//! Errors of file operations, with the codes and statuses of the contract (`errors.ts`).

use hyper::StatusCode;
use rustix::io::Errno;
use search::BadPattern;

use crate::refusal::Refusal;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Code {
    status: u16,
    name: &'static str,
}

impl Code {
    pub const BAD_PATH: Code = Code::new(400, "bad_path");
    pub const OUTSIDE_WORKSPACE: Code = Code::new(400, "outside_workspace");
    pub const WORKSPACE_ROOT: Code = Code::new(400, "workspace_root");
    pub const NO_SUCH_FILE: Code = Code::new(404, "no_such_file");
    pub const PARENT_NOT_A_DIRECTORY: Code = Code::new(404, "parent_not_a_directory");
    pub const NOT_A_DIRECTORY: Code = Code::new(400, "not_a_directory");
    pub const IS_A_DIRECTORY: Code = Code::new(400, "is_a_directory");
    pub const NOT_A_REGULAR_FILE: Code = Code::new(400, "not_a_regular_file");
    pub const PERMISSION_DENIED: Code = Code::new(400, "permission_denied");
    pub const READ_ONLY: Code = Code::new(400, "read_only");
    pub const DIRECTORY_NOT_EMPTY: Code = Code::new(409, "directory_not_empty");
    pub const FILE_EXISTS: Code = Code::new(409, "file_exists");
    pub const NO_SPACE: Code = Code::new(409, "no_space");
    pub const TOO_LARGE: Code = Code::new(400, "too_large");
    pub const BAD_PATTERN: Code = Code::new(400, "bad_pattern");
    pub const BUSY: Code = Code::new(400, "busy");
    pub const INVALID: Code = Code::new(400, "invalid");
    pub const INTERNAL: Code = Code::new(500, "internal");

    const fn new(status: u16, name: &'static str) -> Code {
        Code { status, name }
    }
}

/// The contract's code for an error of the kernel, unless the number has another meaning for a call.
fn code_of(errno: Errno) -> Code {
    match errno {
        Errno::NOENT | Errno::STALE => Code::NO_SUCH_FILE,
        Errno::NOTDIR => Code::NOT_A_DIRECTORY,
        Errno::ISDIR => Code::IS_A_DIRECTORY,
        Errno::ACCESS | Errno::PERM => Code::PERMISSION_DENIED,
        Errno::ROFS => Code::READ_ONLY,
        Errno::NOTEMPTY => Code::DIRECTORY_NOT_EMPTY,
        Errno::EXIST => Code::FILE_EXISTS,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Code::NO_SPACE,
        Errno::NAMETOOLONG | Errno::INVAL | Errno::LOOP | Errno::ILSEQ | Errno::MLINK => Code::BAD_PATH,
        // XDEV: a rename or removal would cross file systems. AGAIN: another process holds a lease on the file.
        Errno::BUSY | Errno::TXTBSY | Errno::XDEV | Errno::AGAIN => Code::BUSY,
        Errno::NXIO | Errno::NODEV => Code::NOT_A_REGULAR_FILE,
        _ => Code::INTERNAL,
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

    /// Puts a path of the request in front of the message.
    pub fn about(self, path: &str) -> Fault {
        Fault { words: format!("{path}: {}", self.words), ..self }
    }

    pub fn into_refusal(self) -> Refusal {
        let status = StatusCode::from_u16(self.code.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Refusal::new(status, self.code.name, self.words)
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Fault {
        Fault::new(code_of(errno), errno.to_string())
    }
}

impl From<BadPattern> for Fault {
    fn from(bad: BadPattern) -> Fault {
        Fault::new(Code::BAD_PATTERN, bad.words)
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Fault {
        match error.raw_os_error() {
            Some(number) => Errno::from_raw_os_error(number).into(),
            None => Fault::new(Code::INTERNAL, error.to_string()),
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
            let Code { status, name } = code;
            assert!(CONTRACT.contains(&format!("  {name}: {{ status: {status}, ")), "{name}");
        }
    }

    #[test]
    fn errors_of_the_kernel_have_the_contracts_codes() {
        for (errno, code) in [
            (Errno::NOENT, Code::NO_SUCH_FILE),
            (Errno::ACCESS, Code::PERMISSION_DENIED),
            (Errno::ROFS, Code::READ_ONLY),
            (Errno::DQUOT, Code::NO_SPACE),
            (Errno::XDEV, Code::BUSY),
            (Errno::IO, Code::INTERNAL),
        ] {
            assert_eq!(Fault::from(errno).code, code);
            assert_eq!(Fault::from(std::io::Error::from(errno)).code, code);
        }
    }

    const ALL: [Code; 16] = [
        Code::BAD_PATH,
        Code::OUTSIDE_WORKSPACE,
        Code::WORKSPACE_ROOT,
        Code::NO_SUCH_FILE,
        Code::PARENT_NOT_A_DIRECTORY,
        Code::NOT_A_DIRECTORY,
        Code::IS_A_DIRECTORY,
        Code::NOT_A_REGULAR_FILE,
        Code::PERMISSION_DENIED,
        Code::READ_ONLY,
        Code::DIRECTORY_NOT_EMPTY,
        Code::FILE_EXISTS,
        Code::NO_SPACE,
        Code::TOO_LARGE,
        Code::BAD_PATTERN,
        Code::BUSY,
    ];
}
