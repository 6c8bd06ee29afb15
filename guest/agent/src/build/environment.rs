//! Puts the variables of an image into the file in which the agent of its machines finds them.

use std::fs::File;
use std::io::{Read, Write};

use rustix::fs::{FileType, Mode, OFlags, openat};

use super::brought::Brought;
use super::fault::Fault;
use super::root::{self, Directory, Root};

const FOLDER: &[u8] = b"etc";
const NAME: &[u8] = b"environment";
/// A file that is larger is no list of variables.
const MOST_BYTES: u64 = 1024 * 1024;
const MODE: u32 = 0o644;

/// Appends lines to the image's own: of two for one variable the later one counts. Whatever else has the name is replaced.
pub fn append(root: &Root, lines: &str) -> Result<(), Fault> {
    if lines.is_empty() {
        return Ok(());
    }
    let folder = root.make(&[FOLDER], &mut Brought::new(1))?;
    let mut content = read(&folder)?;
    if !content.is_empty() && !content.ends_with(b"\n") {
        content.push(b'\n');
    }
    content.extend_from_slice(lines.as_bytes());
    root::remove(&folder, NAME, None)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(&folder.fd, NAME, flags, Mode::from_raw_mode(MODE))?);
    Ok(file.write_all(&content)?)
}

/// Empty unless it is a regular file.
fn read(folder: &Directory) -> Result<Vec<u8>, Fault> {
    let mut content = Vec::new();
    let found = folder.look(NAME)?.filter(|found| {
        FileType::from_raw_mode(found.st_mode) == FileType::RegularFile && found.st_size as u64 <= MOST_BYTES
    });
    if found.is_some() {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(&folder.fd, NAME, flags, Mode::empty())?);
        file.take(MOST_BYTES).read_to_end(&mut content)?;
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::{Place, Tar};

    const LINES: &str = "A=\"1\"\nB=\"two words\"\n";

    fn after(tar: Tar) -> (Place, String) {
        let place = Place::new();
        place.unpack([tar]).unwrap();
        append(&Root::open(&place.root()).unwrap(), LINES).unwrap();
        place.assert_outside_is_whole();
        let text = place.text("etc/environment");
        (place, text)
    }

    #[test]
    fn the_lines_follow_those_of_the_image() {
        assert_eq!(after(Tar::new().file("etc/environment", "C=3")).1, format!("C=3\n{LINES}"));
        let (place, text) = after(Tar::new().file("other", ""));
        assert_eq!((text.as_str(), place.mode("etc/environment")), (LINES, 0o644));
    }

    #[test]
    fn links_and_directories_in_its_place_are_replaced() {
        for tar in [
            Tar::new().symbolic_link("etc/environment", "../../outside/file"),
            Tar::new().file("etc/environment/x", ""),
            Tar::new().symbolic_link("etc", "../outside"),
            Tar::new().file("etc", ""),
        ] {
            assert_eq!(after(tar).1, LINES);
        }
    }

    #[test]
    fn an_image_without_variables_stays_as_it_is() {
        let place = Place::new();
        place.unpack([Tar::new().file("other", "")]).unwrap();
        append(&Root::open(&place.root()).unwrap(), "").unwrap();
        assert_eq!(place.tree(), ["other"]);
    }
}
