//! Dispatches SFTP requests to file operations.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, symlink};

use crate::broken::Broken;
use crate::sftp::answer::{self, Answer, Code, REQUEST_BYTES, Refused, done, status};
use crate::sftp::attributes::{self, Wanted};
use crate::sftp::extensions;
use crate::sftp::files::{self, path};
use crate::sftp::handles::{Handle, Handles};
use crate::wire::{Message, Reader};

const INIT: u8 = 1;
const VERSION: u32 = 3;
/// Limit of the names in one answer.
const NAMES: usize = 100;

#[derive(Default)]
pub struct Server {
    handles: Handles,
}

impl Server {
    /// Answers a request. An error if the request has no id to answer to.
    pub fn answer(&mut self, request: &[u8]) -> Result<Vec<u8>, Broken> {
        let mut reader = Reader::new(request);
        let kind = reader.u8()?;
        let id = reader.u32()?;
        if kind == INIT {
            let message = Message::new(answer::VERSION).u32(VERSION);
            let offered = extensions::OFFERED.into_iter();
            return Ok(offered
                .fold(message, |m, (name, version)| m.string(name).string(version))
                .into_bytes());
        }
        let answer = self.answer_one(kind, id, &mut reader);
        Ok(answer.unwrap_or_else(|Refused { code, words }| status(id, code, &words)))
    }

    fn answer_one(&mut self, kind: u8, id: u32, request: &mut Reader) -> Answer {
        match kind {
            3 => self.open(id, request),
            4 => self.handles.close(id, request),
            5 => self.read(id, request),
            6 => self.write(id, request),
            7 => attrs(id, &fs::symlink_metadata(path(request)?)?),
            8 => attrs(id, &self.handles.file(request)?.metadata()?),
            9 => done(id, files::set(path(request)?, &Wanted::read(request)?)),
            10 => done(id, files::set_open(self.handles.file(request)?, &Wanted::read(request)?)),
            11 => self.handles.keep(id, Handle::Directory(fs::read_dir(path(request)?)?)),
            12 => self.names(id, request),
            13 => done(id, fs::remove_file(path(request)?)),
            14 => {
                let path = path(request)?;
                let mode = Wanted::read(request)?.permissions.unwrap_or(0o777);
                done(id, fs::DirBuilder::new().mode(mode & 0o777).create(path))
            }
            15 => done(id, fs::remove_dir(path(request)?)),
            16 => answer::name(id, files::real_path(path(request)?)?.as_os_str().as_bytes()),
            17 => attrs(id, &fs::metadata(path(request)?)?),
            18 => done(id, files::rename_new(path(request)?, path(request)?)),
            19 => answer::name(id, fs::read_link(path(request)?)?.as_os_str().as_bytes()),
            // First the link's target, as OpenSSH sends it; the draft has it second.
            20 => done(id, symlink(path(request)?, path(request)?)),
            200 => {
                let name = request.text()?.unwrap_or_default();
                extensions::answer(&self.handles, id, name, request)
            }
            _ => Err(Refused::new(Code::Unsupported, "this request is not known here")),
        }
    }

    fn open(&mut self, id: u32, request: &mut Reader) -> Answer {
        let (path, how) = (path(request)?, request.u32()?);
        let file = files::open(path, how, &Wanted::read(request)?)?;
        self.handles.keep(id, Handle::File(file))
    }

    fn read(&self, id: u32, request: &mut Reader) -> Answer {
        let file = self.handles.file(request)?;
        let (offset, most) = (request.u64()?, request.u32()? as usize);
        answer::data(id, most.min(REQUEST_BYTES), |into| file.read_at(into, offset))
    }

    fn write(&self, id: u32, request: &mut Reader) -> Answer {
        let file = self.handles.file(request)?;
        let offset = request.u64()?;
        done(id, file.write_all_at(request.string()?, offset))
    }

    fn names(&mut self, id: u32, request: &mut Reader) -> Answer {
        let mut entries = Vec::new();
        for entry in self.handles.directory(request)?.take(NAMES) {
            let entry = entry?;
            // An entry that was removed meanwhile is left out.
            let Ok(meta) = entry.metadata() else { continue };
            let name = entry.file_name();
            let line = attributes::line(&name.to_string_lossy(), &meta);
            let part = Message::part().string(name.as_bytes()).string(line);
            entries.push(attributes::write(part, &meta));
        }
        if entries.is_empty() {
            return Err(Refused::new(Code::Eof, "no more names"));
        }
        let message = Message::new(answer::NAME).u32(id).u32(entries.len() as u32);
        Ok(entries.iter().fold(message, |message, entry| message.bytes(entry.as_ref())).into_bytes())
    }
}

fn attrs(id: u32, meta: &fs::Metadata) -> Answer {
    Ok(attributes::write(Message::new(answer::ATTRS).u32(id), meta).into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn ask(server: &mut Server, kind: u8, details: Message) -> Vec<u8> {
        server.answer(Message::new(kind).u32(1).bytes(details.as_ref()).as_ref()).unwrap()
    }

    fn path(path: &Path) -> Message {
        Message::part().string(path.as_os_str().as_bytes())
    }

    fn code(answer: &[u8]) -> u32 {
        assert_eq!(answer[0], 101, "{answer:?}");
        Reader::new(&answer[5..]).u32().unwrap()
    }

    fn handle_in(answer: &[u8]) -> Message {
        assert_eq!(answer[0], 102, "{answer:?}");
        Message::part().bytes(&answer[5..])
    }

    #[test]
    fn a_file_is_written_in_any_order_and_read_until_its_end() {
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("f");
        let mut server = Server::default();
        let opened = ask(&mut server, 3, path(&file).u32(2 | 8 | 16).u32(4).u32(0o600));
        for (offset, data) in [(2, "cd"), (0, "ab")] {
            assert_eq!(code(&ask(&mut server, 6, handle_in(&opened).u64(offset).string(data))), 0);
        }
        assert_eq!(code(&ask(&mut server, 4, handle_in(&opened))), 0);
        assert_eq!(code(&ask(&mut server, 4, handle_in(&opened))), Code::Failure as u32);
        let opened = ask(&mut server, 3, path(&file).u32(1).u32(0));
        let read = ask(&mut server, 5, handle_in(&opened).u64(1).u32(100));
        assert_eq!((read[0], &read[9..]), (103, &b"bcd"[..]));
        let end = ask(&mut server, 5, handle_in(&opened).u64(4).u32(100));
        assert_eq!(code(&end), Code::Eof as u32);
    }

    #[test]
    fn a_directory_is_listed_to_its_end() {
        let room = tempfile::tempdir().unwrap();
        (0..NAMES + 5).for_each(|number| fs::write(room.path().join(number.to_string()), "").unwrap());
        let mut server = Server::default();
        let opened = ask(&mut server, 11, path(room.path()));
        let mut count = 0;
        loop {
            let answer = ask(&mut server, 12, handle_in(&opened));
            if answer[0] == 101 {
                assert_eq!(code(&answer), Code::Eof as u32);
                break;
            }
            count += Reader::new(&answer[5..]).u32().unwrap() as usize;
        }
        assert_eq!(count, NAMES + 5);
    }

    #[test]
    fn refusals_say_which_kind_they_are() {
        let mut server = Server::default();
        assert_eq!(code(&ask(&mut server, 17, path(Path::new("/nowhere")))), Code::NoSuchFile as u32);
        assert_eq!(code(&ask(&mut server, 99, Message::part())), Code::Unsupported as u32);
        assert_eq!(code(&ask(&mut server, 17, Message::part().u32(9))), Code::BadMessage as u32);
        let extension = Message::part().string("unknown@example.com");
        assert_eq!(code(&ask(&mut server, 200, extension)), Code::Unsupported as u32);
        assert!(server.answer(&[17, 0]).is_err());
    }

    #[test]
    fn links_are_made_in_the_order_of_openssh() {
        let room = tempfile::tempdir().unwrap();
        let mut server = Server::default();
        let details = Message::part().string("target").bytes(path(&room.path().join("link")).as_ref());
        assert_eq!(code(&ask(&mut server, 20, details)), 0);
        assert_eq!(fs::read_link(room.path().join("link")).unwrap(), Path::new("target"));
    }
}
