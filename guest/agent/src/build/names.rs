//! Paths of an archive, taken apart into names. Absolute ones count from the image's root, as tar and container engines
//! read them.

use super::fault::Fault;
use super::limits::{PATH_BYTES, PATH_LEVELS};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Names with this beginning are notes of a file system that engines once used, and mean nothing in an image.
const NOTES: &[u8] = b".wh..wh.";

/// The names of a path. Empty for the root itself.
pub fn names_of(path: &[u8]) -> Result<Vec<&[u8]>, Fault> {
    if path.is_empty() {
        return Err(Fault::invalid("an entry has an empty name"));
    }
    if path.len() > PATH_BYTES {
        return Err(Fault::too_large(format!("a path has more than {PATH_BYTES} bytes")));
    }
    if path.contains(&0) {
        return Err(Fault::invalid("a path holds a NUL"));
    }
    let names: Vec<&[u8]> =
        path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
    if names.contains(&&b".."[..]) {
        return Err(Fault::invalid("a path holds \"..\""));
    }
    if names.len() > PATH_LEVELS {
        return Err(Fault::too_large(format!("a path has more than {PATH_LEVELS} levels")));
    }
    Ok(names)
}

/// The meaning of an entry's last name.
#[derive(Debug, PartialEq)]
pub enum Mark<'a> {
    /// An entry like any other.
    Plain,
    /// Removes this name, as lower layers have made it.
    Whiteout(&'a [u8]),
    /// Empties its directory of everything that lower layers have made.
    Opaque,
    Ignored,
}

pub fn mark_of(name: &[u8]) -> Result<Mark<'_>, Fault> {
    match name.strip_prefix(WHITEOUT) {
        None => Ok(Mark::Plain),
        Some(_) if name == OPAQUE => Ok(Mark::Opaque),
        Some(_) if name.starts_with(NOTES) => Ok(Mark::Ignored),
        Some(b"" | b"." | b"..") => Err(Fault::invalid("a whiteout names no file")),
        Some(hidden) => Ok(Mark::Whiteout(hidden)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::fault::Code;

    fn code_of<T: std::fmt::Debug>(result: Result<T, Fault>) -> Code {
        result.unwrap_err().code
    }

    #[test]
    fn every_path_counts_from_the_root() {
        let etc: [&[u8]; 2] = [b"etc", b"passwd"];
        for path in ["etc/passwd", "/etc/passwd", "./etc/passwd", "//etc//./passwd/"] {
            assert_eq!(names_of(path.as_bytes()).unwrap(), etc, "{path}");
        }
        for root in ["/", ".", "./"] {
            assert!(names_of(root.as_bytes()).unwrap().is_empty(), "{root}");
        }
    }

    #[test]
    fn a_path_that_climbs_or_has_no_name_is_refused() {
        for path in ["", "..", "../etc/passwd", "a/../../b", "a/..", "a\0b"] {
            assert_eq!(code_of(names_of(path.as_bytes())), Code::Invalid, "{path:?}");
        }
    }

    #[test]
    fn a_path_has_a_longest_length_and_depth() {
        let level = |count: usize| vec!["a"; count].join("/");
        assert_eq!(names_of(level(256).as_bytes()).unwrap().len(), 256);
        assert_eq!(code_of(names_of(level(257).as_bytes())), Code::TooLarge);
        assert_eq!(names_of(&[b'a'; 1024]).unwrap().len(), 1);
        assert_eq!(code_of(names_of(&[b'a'; 1025])), Code::TooLarge);
    }

    #[test]
    fn whiteouts_are_known_by_their_names() {
        assert_eq!(mark_of(b"file").unwrap(), Mark::Plain);
        assert_eq!(mark_of(b".wh.file").unwrap(), Mark::Whiteout(b"file"));
        assert_eq!(mark_of(b".wh..wh..opq").unwrap(), Mark::Opaque);
        assert_eq!(mark_of(b".wh..wh.plnk").unwrap(), Mark::Ignored);
        for nothing in [".wh.", ".wh..", ".wh..."] {
            assert_eq!(code_of(mark_of(nothing.as_bytes())), Code::Invalid, "{nothing}");
        }
    }
}
