//! `PUT /v1/files/write`: writes a body to a file, completely or not at all. A link at the end of the path is followed,
//! and stays. The old content stays until the new content is on disk.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::time::Instant;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rustix::io::Errno;
use serde::Serialize;
use tokio::task::JoinHandle;

use super::faults::{Code, Fault};
use super::open;
use super::paths::{Path, Workspace};
use super::resolve::{Below, Last, Made, Parents, Spot, resolve};
use super::unfinished::Unfinished;
use super::work::run_as_user;

const FILE_MODE: u32 = 0o644;
/// Bytes that are collected for one write. As many may arrive meanwhile, so the memory use is twice as much.
const PIECE_BYTES: usize = 256 * 1024;
/// Writes end on a page boundary: a page that is written in two parts costs twice.
const PAGE_BYTES: usize = 4096;

#[derive(Debug, Serialize)]
pub struct FileWritten {
    pub bytes: u64,
    pub duration_us: u64,
}

pub async fn write(workspace: Workspace, path: Path, mut body: Incoming) -> Result<FileWritten, Fault> {
    let began = Instant::now();
    let mut upload = Upload::new(run_as_user(move || Draft::begin(&workspace, &path)).await?);
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| Fault::new(Code::INVALID, format!("the body broke off: {error}")))?;
        if let Ok(data) = frame.into_data() {
            upload.take(data).await?;
        }
    }
    let bytes = upload.finish().await?;
    Ok(FileWritten { bytes, duration_us: began.elapsed().as_micros() as u64 })
}

/// The file as far as it is written. Dropped, it is removed with the directories that were made for it.
struct Draft {
    // Dropped in this order: the file before its directories.
    unfinished: Unfinished,
    made: Made,
    name: Vec<u8>,
    mode: u32,
    bytes: u64,
}

impl Draft {
    fn begin(workspace: &Workspace, path: &Path) -> Result<Draft, Fault> {
        let Spot::Below(below) = resolve(workspace, path, Last::Follow, Parents::Make)? else {
            return Err(Errno::ISDIR.into());
        };
        let Below { parent, name, object, made } = below;
        if let Some(object) = &object {
            open::check_regular(object)?;
            // A rename does not check the right to write the file that it replaces.
            open::check_writable(object)?;
        }
        let mode = object.map_or(FILE_MODE, |object| object.stat.st_mode & 0o777);
        let unfinished = Unfinished::create(parent)?;
        Ok(Draft { unfinished, made, name, mode, bytes: 0 })
    }

    fn add(&mut self, pieces: &[Bytes]) -> Result<(), Fault> {
        let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        write_all(&mut self.unfinished.file, &mut slices)?;
        self.bytes += pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        Ok(())
    }

    fn finish(self) -> Result<u64, Fault> {
        self.unfinished.file.sync_all()?;
        self.unfinished.finish(&self.name, self.mode)?;
        self.made.keep();
        Ok(self.bytes)
    }
}

/// Writes all pieces in one call if the kernel takes them. Single pieces (16 KiB) seldom begin on a page boundary.
fn write_all(file: &mut File, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match file.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut slices, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Collects bytes while the bytes before are written on a pool thread.
struct Upload {
    draft: Option<Draft>,
    writing: Option<JoinHandle<Result<Draft, Fault>>>,
    pieces: Vec<Bytes>,
    collected: usize,
}

impl Upload {
    fn new(draft: Draft) -> Upload {
        Upload { draft: Some(draft), writing: None, pieces: vec![], collected: 0 }
    }

    async fn take(&mut self, data: Bytes) -> Result<(), Fault> {
        self.collected += data.len();
        self.pieces.push(data);
        if self.collected >= PIECE_BYTES { self.write_collected().await } else { Ok(()) }
    }

    async fn write_collected(&mut self) -> Result<(), Fault> {
        let mut draft = self.settled().await?;
        let pieces = self.whole_pages();
        self.writing = Some(tokio::task::spawn_local(run_as_user(move || {
            draft.add(&pieces)?;
            Ok(draft)
        })));
        Ok(())
    }

    /// Takes the collected bytes up to the last page boundary. The rest is part of the last piece: before it, the bytes
    /// were fewer than `PIECE_BYTES`, a whole number of pages.
    fn whole_pages(&mut self) -> Vec<Bytes> {
        let mut pieces = std::mem::take(&mut self.pieces);
        let over = self.collected % PAGE_BYTES;
        self.collected = 0;
        if let Some(last) = pieces.last_mut().filter(|_| over > 0) {
            let begun = last.split_off(last.len().saturating_sub(over));
            self.collected = begun.len();
            self.pieces.push(begun);
        }
        pieces
    }

    async fn settled(&mut self) -> Result<Draft, Fault> {
        if let Some(writing) = self.writing.as_mut() {
            let written = writing.await;
            self.writing = None;
            return written.unwrap_or_else(|error| Err(Fault::new(Code::INTERNAL, error.to_string())));
        }
        self.draft.take().ok_or_else(|| Fault::new(Code::INTERNAL, "the upload has ended"))
    }

    async fn finish(mut self) -> Result<u64, Fault> {
        let mut draft = self.settled().await?;
        let pieces = std::mem::take(&mut self.pieces);
        run_as_user(move || {
            draft.add(&pieces)?;
            draft.finish()
        })
        .await
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let (draft, writing) = (self.draft.take(), self.writing.take());
        if draft.is_some() || writing.is_some() {
            tokio::task::spawn_local(clear_away(draft, writing));
        }
    }
}

/// Removes the draft on a pool thread, because a large file takes long to remove.
async fn clear_away(draft: Option<Draft>, writing: Option<JoinHandle<Result<Draft, Fault>>>) {
    let draft = match writing {
        Some(writing) => writing.await.ok().and_then(Result::ok),
        None => draft,
    };
    let _ = run_as_user(move || {
        drop(draft);
        Ok(())
    })
    .await;
}

#[cfg(test)]
#[path = "write_test.rs"]
mod tests;
