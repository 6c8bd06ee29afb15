//! Parses a request's path, without the file system.

use std::path::PathBuf;

use super::faults::{Code, Fault};
use super::names;

pub use search::walk::PATH_BYTES;

const NAME_BYTES: usize = 255;

/// The tree of the file operations, by its path as callers write it. Links in that path are followed.
#[derive(Clone)]
pub struct Workspace {
    pub path: PathBuf,
}

impl Workspace {
    pub fn of_machine() -> Workspace {
        Workspace { path: "/workspace".into() }
    }

    pub fn text(&self) -> &str {
        self.path.to_str().unwrap_or_default()
    }
}

/// A path as the names below the workspace, none of them empty, `.` or `..`.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    pub names: Vec<Vec<u8>>,
}

impl Path {
    /// Parses a path. `..` removes the name before it as text; links are followed later.
    pub fn parse(workspace: &Workspace, text: &str) -> Result<Path, Fault> {
        let bytes = names::to_bytes(text);
        if bytes.is_empty() || bytes.contains(&0) || bytes.len() > PATH_BYTES {
            let words = format!("expected a path of 1 to {PATH_BYTES} bytes without NUL");
            return Err(Fault::new(Code::BAD_PATH, words));
        }
        let root = parts(workspace.text().as_bytes());
        let mut all: Vec<&[u8]> = if bytes[0] == b'/' { vec![] } else { root.clone() };
        for part in parts(&bytes) {
            if part.len() > NAME_BYTES {
                let words = format!("expected names of at most {NAME_BYTES} bytes");
                return Err(Fault::new(Code::BAD_PATH, words));
            }
            match part {
                b".." => drop(all.pop()),
                part => all.push(part),
            }
        }
        let below = all.strip_prefix(root.as_slice()).ok_or_else(outside)?;
        Ok(Path { names: below.iter().map(|name| name.to_vec()).collect() })
    }

    /// The absolute path, as answers show it.
    pub fn absolute(&self, workspace: &Workspace) -> Vec<u8> {
        let mut path = workspace.text().as_bytes().to_vec();
        for name in &self.names {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        path
    }
}

/// The parts of a path, without empty ones and `.`.
pub fn parts(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect()
}

pub fn outside() -> Fault {
    Fault::new(Code::OUTSIDE_WORKSPACE, "the path leads out of /workspace; expected one under it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, Code> {
        let path = Path::parse(&Workspace::of_machine(), text).map_err(|fault| fault.code)?;
        Ok(names::to_text(&path.names.join(&b'/')))
    }

    #[test]
    fn paths_are_absolute_or_relative_to_the_workspace() {
        for (text, below) in [
            ("/workspace/a/b", "a/b"),
            ("a/b", "a/b"),
            ("./a//b/.", "a/b"),
            ("//workspace///a/", "a"),
            ("/workspace", ""),
            ("/workspace/.", ""),
            (".", ""),
            ("a/..", ""),
            ("../workspace/a", "a"),
            ("/etc/../workspace/a", "a"),
            ("/workspace/a/../b", "b"),
            ("-rf", "-rf"),
            ("...", "..."),
            ("a\nb", "a\nb"),
            ("a\\xff", "a\\xff"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(below), "{text}");
        }
    }

    #[test]
    fn paths_that_lead_out_are_refused_as_text_already() {
        for text in [
            "/",
            "/etc/passwd",
            "..",
            "../x",
            "../../etc/shadow",
            "/workspace-evil/x",
            "/workspacex",
            "a/../../b",
        ] {
            assert_eq!(parse(text), Err(Code::OUTSIDE_WORKSPACE), "{text}");
        }
    }

    #[test]
    fn paths_that_no_file_system_takes_are_refused() {
        let long_name = "n".repeat(256);
        let long_path = "a/".repeat(2049);
        for text in ["", "a\0b", &long_name, &long_path, &"x".repeat(5000)] {
            assert_eq!(parse(text), Err(Code::BAD_PATH));
        }
        assert!(parse(&"n".repeat(255)).is_ok());
        assert!(parse(&"a/".repeat(2048)).is_ok());
        assert!(parse(&"\\xff".repeat(255)).is_ok());
    }
}
