//! The operator's settings for guests: variables of all programs, and the sources of apt. They replace those of the
//! machine that this one was loaded from. Nothing else of the files changes: what the template or the user wrote into
//! them stays.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;

use crate::regular_file::{self, overwrite};

const ENVIRONMENT: &str = "etc/environment";
const BEGIN: &str = "# Settings of the operator begin; they are replaced with each new session";
const END: &str = "# Settings of the operator end";
const APT_SOURCES: &str = "etc/apt/vivarium.list";
const APT_CONFIGURATION: &str = "etc/apt/apt.conf.d/90vivarium";
const APT_USES_SOURCES: &str = "Dir::Etc::sourcelist \"/etc/apt/vivarium.list\";\n";

#[derive(Deserialize)]
pub struct Settings {
    variables: BTreeMap<String, String>,
    apt_sources: Vec<String>,
}

impl Settings {
    pub fn write(&self, root: &Path) -> io::Result<()> {
        self.write_environment(&root.join(ENVIRONMENT))?;
        self.write_apt(root)
    }

    /// The variables come first in the file: of two lines for one variable the later one counts.
    fn write_environment(&self, path: &Path) -> io::Result<()> {
        let before = match regular_file::open(path, fs::File::options().read(true)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            file => regular_file::read(&mut file?)?,
        };
        let after = self.block() + &without_block(&before);
        match after == before {
            true => Ok(()),
            false => overwrite(path, &after, 0o644),
        }
    }

    fn block(&self) -> String {
        if self.variables.is_empty() {
            return String::new();
        }
        let lines: String =
            self.variables.iter().map(|(key, value)| format!("{key}=\"{value}\"\n")).collect();
        format!("{BEGIN}\n{lines}{END}\n")
    }

    fn write_apt(&self, root: &Path) -> io::Result<()> {
        let (sources, configuration) = (root.join(APT_SOURCES), root.join(APT_CONFIGURATION));
        if self.apt_sources.is_empty() {
            return remove(&configuration).and_then(|()| remove(&sources));
        }
        let lines: String = self.apt_sources.iter().map(|line| format!("{line}\n")).collect();
        overwrite(sources, &lines, 0o644)?;
        overwrite(configuration, APT_USES_SOURCES, 0o644)
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The text without the block of an earlier machine. A block without its end is left as it is: it may be anything.
fn without_block(text: &str) -> String {
    let begin = format!("{BEGIN}\n");
    let end = format!("{END}\n");
    let block = text.split_once(&begin).and_then(|(head, rest)| Some((head, rest.split_once(&end)?.1)));
    block.map_or_else(|| text.to_owned(), |(head, tail)| format!("{head}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: &str = "PATH=\"/bin\"\nPIP_CERT=\"/x\"\n";

    fn guest() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc/apt/apt.conf.d")).unwrap();
        fs::write(root.path().join(ENVIRONMENT), IMAGE).unwrap();
        root
    }

    fn settings(variables: &[(&str, &str)], sources: &[&str]) -> Settings {
        Settings {
            variables: variables.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            apt_sources: sources.iter().map(|line| line.to_string()).collect(),
        }
    }

    #[test]
    fn variables_come_before_the_images_and_are_replaced() {
        let root = guest();
        let read = || fs::read_to_string(root.path().join(ENVIRONMENT)).unwrap();
        settings(&[("A", "1 2"), ("B", "")], &[]).write(root.path()).unwrap();
        assert_eq!(read(), format!("{BEGIN}\nA=\"1 2\"\nB=\"\"\n{END}\n{IMAGE}"));
        fs::write(root.path().join(ENVIRONMENT), format!("FIRST=1\n{}LAST=1\n", read())).unwrap();
        settings(&[("C", "3")], &[]).write(root.path()).unwrap();
        assert_eq!(read(), format!("{BEGIN}\nC=\"3\"\n{END}\nFIRST=1\n{IMAGE}LAST=1\n"));
        settings(&[], &[]).write(root.path()).unwrap();
        assert_eq!(read(), format!("FIRST=1\n{IMAGE}LAST=1\n"));
    }

    #[test]
    fn a_guest_without_the_file_gets_it_and_one_without_settings_does_not() {
        let root = guest();
        let path = root.path().join(ENVIRONMENT);
        fs::remove_file(&path).unwrap();
        settings(&[], &[]).write(root.path()).unwrap();
        assert!(!path.exists());
        settings(&[("A", "1")], &[]).write(root.path()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{BEGIN}\nA=\"1\"\n{END}\n"));
    }

    #[test]
    fn a_block_without_its_end_is_left_alone() {
        let text = format!("A=1\n{BEGIN}\nB=2\n");
        assert_eq!(without_block(&text), text);
    }

    #[test]
    fn apt_uses_the_operators_sources_as_long_as_there_are_any() {
        let root = guest();
        settings(&[], &["deb http://a/ b c", "deb http://d/ e f"]).write(root.path()).unwrap();
        let read = |path| fs::read_to_string(root.path().join(path)).unwrap();
        assert_eq!(read(APT_SOURCES), "deb http://a/ b c\ndeb http://d/ e f\n");
        assert_eq!(read(APT_CONFIGURATION), APT_USES_SOURCES);
        settings(&[], &[]).write(root.path()).unwrap();
        assert!(!root.path().join(APT_SOURCES).exists());
        assert!(!root.path().join(APT_CONFIGURATION).exists());
    }

    #[test]
    fn a_guest_without_apt_gets_its_variables_all_the_same() {
        let root = guest();
        fs::remove_dir_all(root.path().join("etc/apt")).unwrap();
        assert!(settings(&[("A", "1")], &["deb http://a/ b c"]).write(root.path()).is_err());
        assert!(fs::read_to_string(root.path().join(ENVIRONMENT)).unwrap().contains("A=\"1\""));
        settings(&[], &[]).write(root.path()).unwrap();
    }
}
