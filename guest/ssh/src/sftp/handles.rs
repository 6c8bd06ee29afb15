//! The table of files and directories that a client has open, by handle number.

use std::collections::HashMap;
use std::fs::{File, ReadDir};

use crate::sftp::answer::{self, Answer, Code, Refused, done};
use crate::wire::Reader;

pub const MOST: usize = 512;

pub enum Handle {
    File(File),
    Directory(ReadDir),
}

#[derive(Default)]
pub struct Handles {
    open: HashMap<u32, Handle>,
    next: u32,
}

impl Handles {
    pub fn keep(&mut self, id: u32, handle: Handle) -> Answer {
        if self.open.len() >= MOST {
            return Err(Refused::new(Code::Failure, "too many files are open"));
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.open.insert(number, handle);
        answer::handle(id, number)
    }

    pub fn close(&mut self, id: u32, request: &mut Reader) -> Answer {
        let number = number(request)?;
        self.open.remove(&number).ok_or_else(not_open)?;
        done(id, Ok(()))
    }

    pub fn file(&self, request: &mut Reader) -> Result<&File, Refused> {
        match self.open.get(&number(request)?) {
            Some(Handle::File(file)) => Ok(file),
            _ => Err(not_open()),
        }
    }

    pub fn directory(&mut self, request: &mut Reader) -> Result<&mut ReadDir, Refused> {
        match self.open.get_mut(&number(request)?) {
            Some(Handle::Directory(names)) => Ok(names),
            _ => Err(not_open()),
        }
    }
}

fn number(request: &mut Reader) -> Result<u32, Refused> {
    let handle: [u8; 4] = request.string()?.try_into().map_err(|_| not_open())?;
    Ok(u32::from_be_bytes(handle))
}

fn not_open() -> Refused {
    Refused::new(Code::Failure, "this handle is not open")
}
