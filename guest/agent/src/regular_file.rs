//! Reads and writes files at well-known paths. Root in the guest may have replaced any of them with a FIFO without a
//! writer, a device, a link or a directory, so only regular files of limited size are used.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const LIMIT_BYTES: u64 = 16 * 1024 * 1024;
/// A changed file is written in pieces of this size, that of a block of its file system.
const BLOCK_BYTES: usize = 4096;

/// Opens a regular file. Does not follow a link, and does not wait for the other end of a FIFO.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// The content of a regular file, also behind a link; empty without such a file. Does not wait for a FIFO.
pub fn text(path: impl AsRef<Path>) -> String {
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    let regular = opened.ok().filter(|file| file.metadata().is_ok_and(|meta| meta.is_file()));
    regular.and_then(|mut file| read(&mut file).ok()).unwrap_or_default()
}

pub fn read(file: &mut File) -> io::Result<String> {
    String::from_utf8(read_bytes(file)?).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))
}

pub fn read_bytes(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(file.metadata()?.len().min(LIMIT_BYTES) as usize + 1);
    file.take(LIMIT_BYTES + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > LIMIT_BYTES {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, "much larger than it has reason to be")),
        false => Ok(bytes),
    }
}

/// Writes the blocks in which a file is to differ from what it contains. Every written block adds to every snapshot. After
/// an error, as on a full disk, the file has its old content again.
pub fn patch(file: &File, before: &[u8], after: &[u8]) -> io::Result<()> {
    write_difference(file, before, after).inspect_err(|_| drop(write_difference(file, after, before)))
}

fn write_difference(file: &File, before: &[u8], after: &[u8]) -> io::Result<()> {
    for (number, block) in after.chunks(BLOCK_BYTES).enumerate() {
        let start = number * BLOCK_BYTES;
        if before.get(start..start + block.len()) != Some(block) {
            file.write_all_at(block, start as u64)?;
        }
    }
    match after.len() == before.len() {
        true => Ok(()),
        false => file.set_len(after.len() as u64),
    }
}

/// Overwrites a file in place: the boot id's file is mounted elsewhere, and watchers keep their descriptor. Not truncated
/// first, which would write the file to disk at its close, and not synced: only the machine's memory needs the content.
pub fn fill(file: &mut File, text: &(impl AsRef<[u8]> + ?Sized)) -> io::Result<()> {
    let bytes = text.as_ref();
    file.seek(SeekFrom::Start(0))?;
    file.write_all(bytes)?;
    match file.metadata()?.len() == bytes.len() as u64 {
        true => Ok(()),
        false => file.set_len(bytes.len() as u64),
    }
}

pub fn overwrite(path: impl AsRef<Path>, text: &(impl AsRef<[u8]> + ?Sized), mode: u32) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(mode);
    let mut file = open(path.as_ref(), &mut options)?;
    fill(&mut file, text)?;
    match file.metadata()?.permissions().mode() & 0o7777 == mode {
        true => Ok(()),
        false => file.set_permissions(Permissions::from_mode(mode)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_are_overwritten_in_place() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("f");
        overwrite(&path, "a long first text\n", 0o644).unwrap();
        let watcher = File::open(&path).unwrap();
        for text in ["short\n", "a longer text than before\n"] {
            overwrite(&path, text, 0o444).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(watcher.metadata().unwrap().len(), text.len() as u64);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o444);
        }
    }

    #[test]
    fn a_changed_file_gets_its_other_blocks_and_its_length() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("f");
        let long = [vec![1; BLOCK_BYTES], vec![2; BLOCK_BYTES], vec![3; 10]].concat();
        let other = [vec![1; BLOCK_BYTES], vec![4; BLOCK_BYTES], vec![3; 9]].concat();
        for (before, after) in [(&long, &other), (&other, &long), (&long, &vec![]), (&vec![], &long)] {
            fs::write(&path, before).unwrap();
            patch(&File::options().write(true).open(&path).unwrap(), before, after).unwrap();
            assert!(fs::read(&path).unwrap() == *after);
        }
        // Only the block that differs: the others are not what `before` says, and stay.
        fs::write(&path, vec![9; long.len()]).unwrap();
        patch(&File::options().write(true).open(&path).unwrap(), &long, &other[..long.len() - 1]).unwrap();
        let blocks = fs::read(&path).unwrap();
        assert_eq!((blocks[0], blocks[BLOCK_BYTES], blocks.len()), (9, 4, other.len()));
    }

    #[test]
    fn other_objects_than_files_are_refused_at_once_and_unchanged() {
        let room = tempfile::tempdir().unwrap();
        let [target, link, fifo, dir] = ["target", "link", "fifo", "dir"].map(|name| room.path().join(name));
        fs::write(&target, "kept").unwrap();
        symlink(&target, &link).unwrap();
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        fs::create_dir(&dir).unwrap();
        for path in [&link, &fifo, &dir] {
            assert!(overwrite(path, "new", 0o644).is_err(), "{path:?}");
            assert!(open(path, File::options().read(true)).is_err(), "{path:?}");
        }
        // With a reader a FIFO opens, and would take bytes.
        let reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&fifo).unwrap();
        assert!(overwrite(&fifo, "new", 0o644).is_err());
        drop(reader);
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
        assert!(overwrite("/dev/null", "new", 0o644).is_err());
    }

    #[test]
    fn only_plain_files_have_text_and_no_read_waits() {
        let room = tempfile::tempdir().unwrap();
        let [plain, link, fifo, to_fifo] =
            ["plain", "link", "fifo", "to-fifo"].map(|name| room.path().join(name));
        fs::write(&plain, "A=1\n").unwrap();
        symlink(&plain, &link).unwrap();
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        symlink(&fifo, &to_fifo).unwrap();
        assert_eq!([&plain, &link].map(text), ["A=1\n", "A=1\n"]);
        for path in [&fifo, &to_fifo, &room.path().join("none"), &room.path().into(), &"/dev/zero".into()] {
            assert_eq!(text(path), "", "{path:?}");
        }
    }

    #[test]
    fn a_file_without_end_is_not_read() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(LIMIT_BYTES).unwrap();
        assert_eq!(read(&mut file).unwrap().len() as u64, LIMIT_BYTES);
        file.set_len(1 << 40).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        assert!(read(&mut file).is_err());
    }
}
