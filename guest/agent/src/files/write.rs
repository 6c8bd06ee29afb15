//! `PUT /v1/files/write`: a body becomes a file completely or not at all. The target of the path's last link is
//! written, in its own directory; the old content stays until the new content is on disk.

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
/// Written in one go. Memory use is twice as much: the bytes being written and the bytes that arrive meanwhile.
const PIECE_BYTES: usize = 256 * 1024;
/// The kernel's unit of file data. A page written in two parts costs twice.
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
            frame.map_err(|error| Fault::new(Code::Invalid, format!("the body broke off: {error}")))?;
        if let Ok(data) = frame.into_data() {
            upload.take(data).await?;
        }
    }
    let bytes = upload.finish().await?;
    Ok(FileWritten { bytes, duration_us: began.elapsed().as_micros() as u64 })
}

/// The file as far as it has come. Dropped, it leaves nothing behind.
struct Draft {
    // In the order in which they go.
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
            // The rename would not ask.
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

/// In one call where the kernel takes all of it: a frame of HTTP/2 is 16 KiB, and seldom begins where a page does.
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

/// Collects while the piece before is being written beside.
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

    /// The collected bytes up to the last page boundary. The incomplete page is in the last piece: with that piece
    /// the bytes reached a whole number of pages.
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
            return written.unwrap_or_else(|error| Err(Fault::new(Code::Internal, error.to_string())));
        }
        self.draft.take().ok_or_else(|| Fault::new(Code::Internal, "the upload has ended"))
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

/// Beside as well: a large file takes its time to go.
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
