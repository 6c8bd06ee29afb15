//! `GET /v1/files/list`: lists all names in one directory. Directories, and links to directories, end with `/`.

use rustix::fs::{AtFlags, FileType, statat};
use search::directory::{self, Name, Order};
use search::pace::Pace;

use super::answers::{ANSWER_BYTES, Budget};
use super::faults::Fault;
use super::paths::{Path, Workspace};
use super::{names, open, unfinished};

pub struct FileList {
    pub entries: Vec<String>,
    pub truncated: bool,
}

pub fn list(workspace: &Workspace, path: &Path, pace: &Pace) -> Result<FileList, Fault> {
    let directory = open::directory(&open::existing(workspace, path)?)?;
    let found = directory::read(&directory, Order::Names, unfinished::is_hidden, directory::NAMES, pace)?;
    let mut list = FileList { entries: Vec::with_capacity(found.first.len()), truncated: found.is_cut };
    let mut budget = Budget::new(ANSWER_BYTES);
    for name in found.first {
        let mut text = names::to_text(&name.bytes);
        if leads_to_directory(&directory, &name) {
            text.push('/');
        }
        if !budget.takes(&text) {
            list.truncated = true;
            break;
        }
        list.entries.push(text);
    }
    Ok(list)
}

fn leads_to_directory(directory: &std::os::fd::OwnedFd, name: &Name) -> bool {
    match name.kind {
        FileType::Symlink => statat(directory, name.bytes.as_slice(), AtFlags::empty())
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
        kind => kind == FileType::Directory,
    }
}

#[cfg(test)]
#[path = "list_test.rs"]
mod tests;
